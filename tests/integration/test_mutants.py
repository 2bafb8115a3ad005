"""scripts/mutants judges rightly, its list fits the code, and docs/mutants.md says what its last record says."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mutants import runner
from mutants.__main__ import commit_of, failures, main, tables, unfit
from mutants.mutant import Mutant, Unfit, read_list

ROOT = Path(__file__).parents[2]
LISTED = read_list()
LEAST, LEAST_KILLED_SHARE = 124, 0.9
ROOMS = {
    "ledger", "engine", "store", "trial", "search", "schedulers", "models", "profiler", "loadgen", "server", "bench",
    "asktell",
}  # fmt: skip


def test_every_mutant_can_be_applied() -> None:
    assert unfit(LISTED) == []


def test_the_list_covers_the_rooms() -> None:
    assert len(LISTED) >= LEAST
    assert {mutant.room for mutant in LISTED} >= ROOMS


def test_the_page_shows_the_record_and_nine_in_ten_are_killed() -> None:
    record = json.loads((ROOT / "mutants" / "result.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in record] == [mutant.name for mutant in LISTED]
    assert failures(record, LISTED) == [], "survivors are explained, and only they"
    assert sum(row["state"] == "killed" for row in record) >= LEAST_KILLED_SHARE * len(record)
    assert tables(record, LISTED) in (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")


# ---- the runner, on a made-up package


def mutant(name: str, old: str, new: str, tests: Sequence[str] = ("tests/test_tiny.py",)) -> str:
    fields = {"name": name, "file": "src/tiny.py", "old": old, "new": new, "what": "wrong", "tests": list(tests)}
    return "\n".join(["[[mutant]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items()), ""])


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one module, whose function `both` is tested and `either` is not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its tests need none, and loading them takes seconds
    for folder in ("src", "tests", "list"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "tiny.py").write_text(
        "def both(a, b):\n    return a and b\n\n\ndef either(a, b):\n    return a or b\n"
    )
    (tmp_path / "tests" / "test_tiny.py").write_text(
        "import tiny\n\n\ndef test_both():\n    assert not tiny.both(1, 0)\n"
    )
    (tmp_path / "tests" / "test_red.py").write_text("def test_red():\n    assert False\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_the_runner_tells_killed_from_survived(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [
        mutant("noticed", "a and b", "a"),
        mutant("unnoticed", "a or b", "a"),
        mutant("gone", "a xor b", "a"),
        mutant("twice", "return a", "return"),
        mutant("red", "a or b", "a", ["tests/test_red.py"]),
    ]
    (tiny / "list" / "room.toml").write_text("\n".join(entries))
    words = ["-o", "json", "--processes", "1", "--record", str(tiny / "record.json")]
    assert main(words, root=tiny, folder=tiny / "list") == 1
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["state"] for row in rows} == {
        "noticed": "killed",
        "unnoticed": "survived",
        "gone": "error",
        "twice": "error",
        "red": "error",
    }
    by = {row["name"]: row["by"] for row in rows}
    assert by["noticed"] == "test_tiny.py::test_both"
    assert by["gone"] == "src/tiny.py: has 'a xor b' 0 times, not once"
    assert by["twice"] == "src/tiny.py: has 'return a' 2 times, not once"
    assert by["red"] == "tests/test_red.py fails without the fault: test_red.py::test_red"
    assert "a and b" in (tiny / "src" / "tiny.py").read_text(), "the checkout is as it was"
    assert json.loads((tiny / "record.json").read_text()) == rows
    assert {row["commit"] for row in rows} == {"unknown"}, "nothing is committed there"


def test_a_verdict_names_the_commit_it_is_of(tiny: Path) -> None:
    named = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "add", "."], cwd=tiny, check=True)
    subprocess.run([*named, "commit", "-qm", "tiny"], cwd=tiny, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tiny, check=True, capture_output=True, text=True).stdout
    assert head.startswith(commit_of(tiny))
    (tiny / "src" / "tiny.py").write_text("")
    assert commit_of(tiny).endswith("-dirty")


@pytest.mark.extra
def test_a_fault_that_makes_tests_endless_is_killed(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LEAST_LIMIT_SECONDS", 2.0)
    monkeypatch.setattr(runner, "LIMIT_FACTOR", 0.0)
    (tiny / "list" / "room.toml").write_text(mutant("endless", "return a and b", "while True: pass"))
    (verdict,) = runner.judge(tiny, read_list(tiny / "list"), tiny / "copies", processes=1)
    assert (verdict.state, verdict.by) == (runner.State.KILLED, "does not end")


LISTED_TINY = [
    Mutant(name=name, room="room", file="f.py", old="a", new="b", what="wrong", tests=("t.py",), equivalent=why)
    for name, why in (("plain", ""), ("explained", "it is the same"))
]


@pytest.mark.parametrize(
    ("plain", "explained", "wrong"),
    [
        ("killed", "survived", []),
        ("survived", "survived", ["plain"]),
        ("error", "survived", ["plain"]),
        ("killed", "killed", ["explained"]),
        ("killed", "error", ["explained"]),
    ],
)
def test_survivors_need_an_explanation_and_no_other_has_one(plain: str, explained: str, wrong: list[str]) -> None:
    rows = [
        {"name": name, "room": "room", "state": state, "by": "", "seconds": 1.0}
        for name, state in (("plain", plain), ("explained", explained))
    ]
    assert [row["name"] for row in failures(rows, LISTED_TINY)] == wrong
    if explained == "survived":
        assert "| `explained` | wrong | survived | it is the same |" in tables(rows, LISTED_TINY)


def test_a_fault_that_is_no_python_or_changes_nothing_is_refused(tiny: Path) -> None:
    for new, why in (("a and", "is no Python"), ("a and b", "changes nothing")):
        made = Mutant(
            name="m", room="r", file="src/tiny.py", old="a and b", new=new, what="w", tests=("tests/test_tiny.py",)
        )
        with pytest.raises(Unfit, match=why):
            made.applied(tiny)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[mutant]]\nname = "x"\n', "room.toml: x: needs file, name, new"),
        (mutant("x", "a", "b") + 'why = "?"\n', "may have equivalent"),
        (mutant("x", "a", "b", []), "room.toml: x: needs"),
        (mutant("x", "a", "b") + mutant("x", "a", "b"), "the name is taken"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "room.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_list(tmp_path)
