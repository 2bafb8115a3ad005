"""benchmarks/row_file.py: a recording that was stopped continues, and rows of other code do not count."""

from pathlib import Path

from row_file import Row, RowFile, codes, core_minutes

calls: list[int] = []


def square(number: int) -> list[Row]:
    calls.append(number)
    return [{"square": number**2}]


def tasks(count: int) -> dict[str, tuple[int]]:
    return {f"task {number}": (number,) for number in range(count)}


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    file = RowFile(path=tmp_path / "new" / "rows.jsonl", code="abc")
    calls.clear()
    assert [each.rows for each in file.complete(square, tasks(2), jobs=1).values()] == [
        [{"square": 0}],
        [{"square": 1}],
    ]
    made = file.complete(square, tasks(4), jobs=1)
    assert calls == [0, 1, 2, 3]
    assert list(made) == list(tasks(4))
    assert [each.rows[0]["square"] for each in made.values()] == [0, 1, 4, 9]
    assert codes(made) == "abc"
    assert core_minutes(made) >= 0


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    file = RowFile(path=tmp_path / "rows.jsonl", code="abc")
    file.complete(square, tasks(3), jobs=1)
    text = file.path.read_text()
    file.path.write_text(text[:-15])
    assert len(file.read()) == 2
    calls.clear()
    file.complete(square, tasks(3), jobs=1)
    assert calls == [2]
    assert len(file.read()) == 3, "the new line does not continue the one that was cut off"


def test_rows_of_another_commit_count_only_when_mixed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    RowFile(path=path, code="old").complete(square, tasks(2), jobs=1)
    calls.clear()
    mixed = RowFile(path=path, code="new", mixed=True).complete(square, tasks(3), jobs=1)
    assert calls == [2]
    assert codes(mixed) == "old, new"
    RowFile(path=path, code="new").complete(square, tasks(3), jobs=1)
    assert calls == [2, 0, 1]
