"""CSV files of numbers: what is taken, and the one line that names what is wrong."""

import tracemalloc
from pathlib import Path

import pytest

from mlcd.untrusted import Column, Malformed, read_table, tables

COLUMNS = (
    Column(name="at", least=0, most=100, is_rising=True),
    Column(name="tokens", least=1, most=1000, is_whole=True),
    Column(name="more", least=0, most=1, is_optional=True),
)


def read(folder: Path, text: str | bytes, *, least_rows: int = 1, most_rows: int = 5) -> dict[str, list[float]]:
    file = folder / "t.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(file, COLUMNS, least_rows=least_rows, most_rows=most_rows)


def test_columns_are_found_by_their_name(tmp_path: Path) -> None:
    found = read(tmp_path, '\ufefftokens, at ,note\r\n5,0,"a, b"\r\n\r\n7,0.5,c\r\n')
    assert found == {"at": [0.0, 0.5], "tokens": [5.0, 7.0]}
    assert read(tmp_path, "at,tokens,more\n1,2,0.5\n")["more"] == [0.5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column at: its first line has nothing"),
        ("time,tokens\n1,2\n", "no column at: its first line has time, tokens"),
        ("at,at,tokens\n1,1,2\n", "the column at twice"),
        ("at,tokens\n", "has 0 rows after its first line, and needs 1"),
        ("at,tokens\n1,2,3\n", "line 2 has 3 values for 2 columns"),
        ("at,tokens\n1,x\n", "line 2: tokens is 'x', which is no number"),
        ("at,tokens\n1,nan\n", "which is no number"),
        ("at,tokens\n1,1_0\n", "which is no number"),
        ("at,tokens\n1,inf\n", "tokens is inf, and must be 1 to 1,000"),
        ("at,tokens\n-1,2\n", "line 2: at is -1, and must be 0 to 100"),
        ("at,tokens\n1,2.5\n", "must be a whole number"),
        ("at,tokens\n5,2\n3,2\n", "line 3: at is 3 after 5 in the row before: sort the rows by it"),
        ("at,tokens\n" + "1,2\n" * 6, "more than 5 rows"),
        (b"at,tokens\n\xff,2\n", "not UTF-8"),
        ("at,tokens\n1," + "9" * 200_000 + "\n", "line 2 is not CSV: field larger"),
        (",".join(map(str, range(2000))) + "\n", "more than 1,000 columns"),
        ("\x1b[31mred,tokens\n1,2\n", "has no column at: its first line has \ufffd\\[31mred"),
    ],
)
def test_what_is_wrong_is_named(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=words) as found:
        read(tmp_path, text)
    assert len(str(found.value)) < 400
    assert "\n" not in str(found.value)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_TABLE_BYTES", 10)
    with pytest.raises(Malformed, match="larger than 10 bytes"):
        read(tmp_path, "at,tokens\n1,2\n")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv", COLUMNS, least_rows=1, most_rows=1)


def test_columns_that_may_all_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a\n1\n")
    with pytest.raises(Malformed, match="has none of the columns more"):
        read_table(file, COLUMNS[2:], least_rows=1, most_rows=5)


@pytest.mark.parametrize("text", ["ab\n", "\n", "a,b\n\n", ","])
def test_a_table_takes_little_more_memory_than_its_file(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of all lines, or a line of commas, took up to 25 times as much."""
    monkeypatch.setattr(tables, "MOST_TABLE_BYTES", 2**20)
    data = (text * (2**19 // len(text))).encode()
    file = tmp_path / "t.csv"
    file.write_bytes(b"at,tokens\n" + data)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            read_table(file, COLUMNS, least_rows=1, most_rows=5)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


def test_lines_end_as_they_did(tmp_path: Path) -> None:
    assert read(tmp_path, "at,tokens\r1,2\r\n3,4\n5,6")["at"] == [1.0, 3.0, 5.0]
