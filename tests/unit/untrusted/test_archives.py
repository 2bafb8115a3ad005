"""Archives that a stranger made: their index is read within limits."""

import struct
import zipfile
from pathlib import Path

import pytest

from mlcd.untrusted import Malformed, entries, pickles


def archive(path: Path, count: int, *, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for number in range(count):
            made.writestr(f"data/{number}", b"")
        made.comment = comment
    return path


@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_the_names_in_an_archive(comment: bytes, tmp_path: Path) -> None:
    assert entries(archive(tmp_path / "a.pt", 3, comment=comment)) == ["data/0", "data/1", "data/2"]


def test_a_large_index_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "a.pt", 300)
    assert len(entries(path)) == 300
    monkeypatch.setattr(pickles, "_MOST_INDEX_BYTES", 4096)
    with pytest.raises(Malformed, match="is an archive of more files than 100,000"):
        entries(path)


def test_an_index_that_is_said_to_be_large_takes_no_memory(tmp_path: Path) -> None:
    """The end of the archive says how long its index is; here, half of a sparse file of a terabyte."""
    path = tmp_path / "a.pt"
    size = 2**40
    index = size // 2
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, index, size - index - 98)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size - 98, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with path.open("wb") as file:
        file.seek(size - len(end64 + locator + end))
        file.write(end64 + locator + end)
    with pytest.raises(Malformed, match="is an archive of more files"):
        entries(path)
