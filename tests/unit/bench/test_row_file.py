"""benchmarks/row_file.py: a recording that was stopped continues; rows of other code count if a sample is the same."""

from pathlib import Path

from row_file import SAMPLE_LEAST, Row, RowFile, codes, core_minutes, origin, verifiers

calls: list[int] = []


def square(number: int) -> list[Row]:
    calls.append(number)
    return [{"square": number**2, "pair": (number, 1.5)}]


def other_square(number: int) -> list[Row]:
    """The present code, which differs for odd numbers."""
    calls.append(number)
    return [{"square": number**2 + number % 2 * 1e-12, "pair": (number, 1.5)}]


def tasks(count: int) -> dict[str, tuple[int]]:
    return {f"task {number}": (number,) for number in range(count)}


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    file = of_commit(tmp_path / "new" / "rows.jsonl", "abc")
    calls.clear()
    assert [each.rows[0]["square"] for each in file.complete(square, tasks(2), jobs=1).values()] == [0, 1]
    made = file.complete(square, tasks(4), jobs=1)
    assert calls == [0, 1, 2, 3]
    assert list(made) == list(tasks(4))
    assert [each.rows[0]["square"] for each in made.values()] == [0, 1, 4, 9]
    assert codes(made) == "abc"
    assert core_minutes(made) >= 0
    assert file.knows_any(tasks(1))
    assert not file.knows_any({"another": ()})


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    file = of_commit(tmp_path / "rows.jsonl", "abc")
    file.complete(square, tasks(3), jobs=1)
    text = file.path.read_text()
    file.path.write_text(text[:-15])
    calls.clear()
    file.complete(square, tasks(3), jobs=1)
    assert calls == [2]
    file.complete(square, tasks(3), jobs=1)
    assert calls == [2], "the new line does not continue the one that was cut off"


def grouped(count: int) -> dict[str, tuple[int]]:
    """Even numbers are of one group, odd ones of another."""
    return {f"{'odd' if number % 2 else 'even'}/{number}": (number,) for number in range(count)}


def group(name: str) -> str:
    return name.split("/", maxsplit=1)[0]


def of_commit(path: Path, code: str) -> RowFile:
    return RowFile(path=path, code=code, group=group)


def test_rows_of_an_older_commit_count_if_a_sample_of_their_group_is_measured_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    of_commit(path, "old").complete(square, grouped(40), jobs=1)
    calls.clear()
    made = of_commit(path, "new").complete(other_square, grouped(42), jobs=1)
    even = [number for number in calls if number % 2 == 0]
    odd = [number for number in calls if number % 2]
    assert len(even) == SAMPLE_LEAST + 1, "a sample of the group, and the one that was missing"
    assert sorted(odd) == list(range(1, 42, 2)), "one of the sample differs: the whole group is measured again"
    assert len(odd) == len(set(odd)), "the sample is not measured twice"
    assert list(made) == list(grouped(42))
    assert {each.code for name, each in made.items() if group(name) == "odd"} == {"new"}
    verified = {name: each for name, each in made.items() if each.code == "old"}
    assert len(verified) == 20 - SAMPLE_LEAST
    assert {each.verified for each in verified.values()} == {"new"}
    assert (set(codes(made).split(", ")), verifiers(made)) == ({"old", "new"}, "new")
    assert origin("old", "new") == "old; a random sample of older rows is exactly the same with new"
    assert origin("new", "") == "new"
    calls.clear()
    again = of_commit(path, "new").complete(other_square, grouped(42), jobs=1)
    assert calls == []
    assert again == made


def test_a_sample_that_is_not_whole_verifies_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    of_commit(path, "old").complete(square, grouped(40), jobs=1)
    made = of_commit(path, "new").complete(square, grouped(40), jobs=1, minutes=0.0)
    assert {each.code for each in made.values()} == {"new"}
    assert len(made) == 1
    assert len(of_commit(path, "new").complete(square, grouped(40), jobs=1)) == 40


def test_every_commit_verifies_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    of_commit(path, "old").complete(square, grouped(40), jobs=1)
    of_commit(path, "new").complete(square, grouped(40), jobs=1)
    calls.clear()
    made = of_commit(path, "newest").complete(other_square, grouped(40), jobs=1)
    assert {number for number in calls if number % 2} == set(range(1, 40, 2))
    assert {each.verified for each in made.values()} == {"", "newest"}


def test_two_percent_of_a_large_group_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    many = {f"even/{number}": (number,) for number in range(1000)}
    of_commit(path, "old").complete(square, many, jobs=1)
    calls.clear()
    of_commit(path, "new").complete(square, many, jobs=1)
    assert len(calls) == 20
    assert sorted(calls) != list(range(20)), "not simply the first"
    calls.clear()
    of_commit(path, "new").complete(square, dict(list(many.items())[:500]), jobs=1)
    assert len(calls) < 10, "a part of the tasks has nearly the same sample"


def test_rows_of_uncommitted_code_are_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    dirty = of_commit(path, "old with changes")
    assert len(dirty.complete(square, grouped(4), jobs=1)) == 4
    calls.clear()
    dirty.complete(square, grouped(4), jobs=1)
    of_commit(path, "new").complete(square, grouped(4), jobs=1)
    assert calls == [0, 1, 2, 3] * 2
