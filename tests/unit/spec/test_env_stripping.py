import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.errors import SpecError
from mlcd.spec import parse_train, spec_from_mapping, with_overrides
from mlcd.spec.env_values import without_env_values

HEAD = "name: j\ngoal: {minimize: time}\n"


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("envs: {A: s3cr3t, B: 1.10}  # mine\nrun: x\n", "envs: {A: null, B: null}  # mine\nrun: x\n"),
        ("envs:\n  A: s3cr3t\n  B: \n  C: 's3cr3t'\n", "envs:\n  A: null\n  B: \n  C: null\n"),
        ('envs: {"A": "s3cr3t\\u0041"}\n', 'envs: {"A": null}\n'),
        ("envs:\n  A: |\n    s3cr3t\n    more\n  B: b\nrun: x\n", "envs:\n  A: null\n\n\n  B: null\nrun: x\n"),
        ("envs:\n  A: s3cr3t\n    more\n# end\nrun: x\n", "envs:\n  A: null\n\n# end\nrun: x\n"),
        ("run: envs\nworkdir: A\n", "run: envs\nworkdir: A\n"),
    ],
)
def test_values_are_taken_out_and_every_other_line_stays(text: str, stripped: str) -> None:
    found, values = without_env_values(HEAD + text)
    assert found == HEAD + stripped
    assert "s3cr3t" not in found
    before, after = parse_train(HEAD + text), parse_train(found)
    assert values == {name: value for name, value in before.envs.items() if value is not None}
    assert after.envs == dict.fromkeys(before.envs)
    assert with_overrides(after, envs=values).envs == before.envs


@given(envs=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), st.text(max_size=30), max_size=4))
def test_any_value_is_taken_out(envs: dict[str, str]) -> None:
    marked = {name: f"s3cr3t{value}" for name, value in envs.items()}
    source = spec_from_mapping({"name": "j", "goal": {"minimize": "time"}, "envs": marked, "run": "go"}).source
    found, values = without_env_values(source)
    assert "s3cr3t" not in found
    assert values == marked
    assert parse_train(found, flags={"envs": values or None}).envs == marked


def test_a_value_may_be_left_to_be_given() -> None:
    spec = parse_train(HEAD + "envs: {A: , B: b}\n")
    assert spec.envs == {"A": None, "B": "b"}
    assert with_overrides(spec, envs={"A": "1", "C": "c"}).envs == {"A": "1", "B": "b", "C": "c"}
    from_python = spec_from_mapping({"name": "j", "goal": {"minimize": "time"}, "envs": {"A": None}})
    assert from_python.envs == parse_train(from_python.source).envs == {"A": None}


@pytest.mark.parametrize("envs", ["{A: [s3cr3t]}", "{A: {b: s3cr3t}}", "{9: s3cr3t}"])
def test_no_message_shows_a_value(envs: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_train(f"{HEAD}envs: {envs}\n")
    assert "s3cr3t" not in str(caught.value)
