"""Files of the store in unusual states: large, empty, linked, already there."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mlcd.run.moment import Moment, elapsed_between
from mlcd.store import backups, migration, restore, wal
from mlcd.store.rows import DamagedRow, checked
from mlcd.store.sqlite import SqliteDatabase
from mlcd.store.store import FILE, Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with Store(tmp_path):
        pass
    return tmp_path / FILE


def test_a_store_that_is_too_large_is_not_copied(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "LARGEST_BYTES", 10)
    assert not backups.back_up(file, paid=True)
    monkeypatch.undo()
    assert backups.back_up(file, paid=True)
    assert len(backups.backups(file.parent)) == 1


def test_a_store_that_is_gone_is_not_copied(tmp_path: Path) -> None:
    assert not backups.back_up(tmp_path / FILE, paid=True)


def test_an_empty_or_missing_log_is_intact(tmp_path: Path) -> None:
    assert wal.damage(tmp_path / "none") == ""
    (tmp_path / "empty").touch()
    assert wal.damage(tmp_path / "empty") == ""
    (tmp_path / "short").write_bytes(b"7")
    assert wal.damage(tmp_path / "short") == "its header is cut off"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"number": 2, "shard": 1, "digest": "x"}, "a function call of step 2"),
        ({"number": 2, "outcome": object(), "digest": "x"}, "the outcome of step 2"),
        ({"number": 2, "digest": "x"}, "the start of step 2"),
    ],
)
def test_a_damaged_row_is_named(row: dict[str, object], says: str) -> None:
    with pytest.raises(DamagedRow, match=says):
        checked(row)


def test_a_step_that_ended_without_a_start_is_a_missing_row() -> None:
    rows: dict[str, list[dict[str, object]]] = {
        "runs": [{}], "statuses": [{"id": 1}], "steps_started": [{"number": 1}], "steps_ended": [{"number": 2}],
    }  # fmt: skip
    with pytest.raises(DamagedRow, match="a row is missing"):
        restore._check(rows)
    with pytest.raises(DamagedRow, match="a row is missing"):
        restore._check({**rows, "steps_started": [{"number": 2}]})


def test_a_damaged_file_keeps_each_name_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / FILE
    file.write_bytes(b"data")
    first = restore._free_name(file)
    restore._link_or_copy(file, first)
    assert file.samefile(first)

    def no_links(*_: object) -> None:
        raise OSError("no such links on this disk")

    monkeypatch.setattr(os, "link", no_links)
    second = restore._free_name(file)
    assert second.name == f"{FILE}.damaged-2"
    restore._link_or_copy(file, second)
    assert not file.samefile(second)
    assert second.read_bytes() == b"data"


def test_a_linked_copy_of_an_earlier_schema_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"not mlcd's")
    (tmp_path / "copy").symlink_to(tmp_path / "elsewhere")
    migration._strip_backup(tmp_path / "copy")
    assert (tmp_path / "elsewhere").read_bytes() == b"not mlcd's"


def test_a_status_that_no_version_knew_is_not_final() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE statuses (id INTEGER PRIMARY KEY, run_id TEXT, status TEXT)")
        assert not migration._is_final(db, "run")
        for status, final in (("done", True), ("asleep", False)):
            db.execute("INSERT INTO statuses (run_id, status) VALUES ('run', ?)", (status,))
            assert migration._is_final(db, "run") is final


def test_a_boot_clock_that_ran_backwards_or_a_wall_clock_that_is_none_is_not_believed() -> None:
    then = Moment(wall_seconds=1000.0, boot_seconds=500.0, boot="b")
    assert elapsed_between(then, Moment(wall_seconds=1200.0, boot_seconds=400.0, boot="b")).seconds == 200.0
    unreadable = elapsed_between(then, Moment(wall_seconds=float("nan"), boot_seconds=600.0, boot="b"))
    assert unreadable.seconds == 100.0
    assert "the wall clock is not readable" in unreadable.note


def test_store_in_memory_has_no_file_to_change_or_to_check() -> None:
    database = SqliteDatabase(None)
    try:
        assert database.is_as_opened()
        database.check()
        assert database.where == "the store in memory"
    finally:
        database.close()
