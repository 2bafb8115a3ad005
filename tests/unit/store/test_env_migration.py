"""Values of environment variables in homes of earlier schemas leave the database, its free pages and its copies."""

import json
import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from tests.old_rows import OldHome
from tests.unit.store.test_store import header, nodes_problem

from mlcd.errors import BadInput, StoreError
from mlcd.run.run import Run
from mlcd.store.damage import DamagedStore
from mlcd.store.rows import COUNTS, FACTS
from mlcd.store.store import FILE, SCHEMA, Store
from mlcd.trial.outcome import Status

MARK = "s3cr3t-marker"
SOURCE = f"name: t\ngoal: {{minimize: time}}\nenvs:\n  TOKEN: {MARK}\n  OTHER: 1.10\nrun: x\n"
SPEC = {"source": SOURCE, "file": "", "overrides": {}, "now": "2026-08-01T00:00:00"}


def marked(folder: Path) -> set[str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)) for path in found if MARK.encode() in path.read_bytes()}


def _drop_digests(db: sqlite3.Connection) -> None:
    schema = files("mlcd.store").joinpath("schema.sql").read_text()
    schema = re.sub(r",( *--[^\n]*)?\n +digest +TEXT\n\)", r"\1\n)", schema)
    schema = re.sub(r"\n +digest +TEXT,", "", schema)
    db.execute("PRAGMA legacy_alter_table = ON")
    db.execute(f"DROP TABLE {COUNTS}")
    for table in FACTS:
        db.execute(f"ALTER TABLE {table} RENAME TO with_{table}")
    for index in ("verdicts_by_run", "statuses_by_run"):
        db.execute(f"DROP INDEX {index}")
    for statement in schema.split(";\n"):
        db.execute(statement)
    db.execute(f"DROP TABLE {COUNTS}")
    for table in FACTS:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        assert "digest" not in columns
        db.execute(f"INSERT INTO {table} SELECT {', '.join(columns)} FROM with_{table}")
    for table in reversed(FACTS):
        db.execute(f"DROP TABLE with_{table}")


def schema_6(folder: Path) -> None:
    """A home as it was before digests: an ended run and one that can be resumed, both with values."""
    with Store(folder) as store:
        for name in ("ended", "open"):
            store.add(Run(header=header(name), problem=nodes_problem()), spec=SPEC)
        store.set_status("ended", Status.DONE)
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE more AS SELECT * FROM runs")
        db.execute("DROP TABLE more")  # leaves its pages, with what they hold
        _drop_digests(db)
        db.execute("PRAGMA user_version = 6")
    lease = folder / "work" / "ended" / "leases" / "l"
    lease.mkdir(parents=True)
    (lease / "job.json").write_text(json.dumps({"run": "x", "envs": {"TOKEN": MARK}}))
    (lease / "job.json").chmod(0o644)


def test_a_home_of_schema_6_keeps_values_of_unfinished_runs_only_and_apart(tmp_path: Path) -> None:
    schema_6(tmp_path)
    assert marked(tmp_path) == {FILE, "work/ended/leases/l/job.json"}
    with Store(tmp_path) as store:
        assert store.load("open").status is Status.RUNNING
        assert store.load("ended").status is Status.DONE
        assert store.spec("open")["envs"] == {"OTHER": "1.10", "TOKEN": MARK}
        assert store.spec("ended")["envs"] == {"OTHER": None, "TOKEN": None}
        assert MARK not in store.spec("open")["source"]
    assert marked(tmp_path) == {"envs/open.json"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
    with closing(sqlite3.connect(tmp_path / f"{FILE}.schema6.bak")) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)


def test_only_folders_of_runs_are_closed_to_others(tmp_path: Path) -> None:
    """A home may be a folder of the user's own, with a `work` that mlcd did not make."""
    schema_6(tmp_path)
    mine = tmp_path / "work" / "thesis"
    mine.mkdir()
    mine.chmod(0o755)
    tmp_path.chmod(0o755)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for table in FACTS:  # a name that leads out of the folder
            db.execute(f"UPDATE {table} SET run_id = '../work' WHERE run_id = 'open'")
    with pytest.raises(DamagedStore, match="a name that mlcd does not give"):
        Store(tmp_path)
    assert mine.stat().st_mode & 0o777 == 0o755


def test_a_job_that_no_version_wrote_is_left_as_it_is(tmp_path: Path) -> None:
    schema_6(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as db:
        db.execute("UPDATE runs SET spec = '{}' WHERE run_id = 'open'")
    with Store(tmp_path) as store:
        assert store.spec("open") == {}


@pytest.mark.parametrize("schema", [2, 5])
def test_a_home_of_0_1_and_its_copy_have_no_values(tmp_path: Path, schema: int) -> None:
    old = OldHome(tmp_path, schema)
    old.train("t")
    old.db.execute("UPDATE runs SET spec = ?", (json.dumps(SPEC),))
    old.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    old.close()
    earlier = tmp_path / f"{FILE}.schema3.bak"
    earlier.write_bytes((tmp_path / FILE).read_bytes())  # of a migration before values were taken out
    with Store(tmp_path) as store:
        assert store.load("t").run_id == "t"
    assert marked(tmp_path) <= {"envs/t.json"}
    assert (tmp_path / f"{FILE}.schema{schema}.bak").exists()


def test_a_run_has_its_values_apart_until_it_has_ended(tmp_path: Path) -> None:
    spec = {**SPEC, "source": "name: t\n", "envs": ["TOKEN"]}
    with Store(tmp_path) as store:
        store.add(Run(header=header("r"), problem=nodes_problem()), spec=spec, envs={"TOKEN": MARK})
        assert store.spec("r")["envs"] == {"TOKEN": MARK}
        assert store.spec("r", envs={"TOKEN": "new"})["envs"] == {"TOKEN": "new"}
        with pytest.raises(BadInput, match="has no variable 'OTHER'; allowed: TOKEN"):
            store.spec("r", envs={"OTHER": "x"})
        assert marked(tmp_path) == {"envs/r.json"}
        store.set_status("r", Status.INTERRUPTED)
        assert marked(tmp_path) == {"envs/r.json"}
        store.finish("r", Status.DONE, None)
        assert marked(tmp_path) == set()
        assert store.spec("r")["envs"] == {"TOKEN": None}


def test_values_that_cannot_be_kept_leave_no_run_behind(tmp_path: Path) -> None:
    (tmp_path / "envs").write_text("in the way")
    with Store(tmp_path) as store:
        with pytest.raises(StoreError, match="envs"):
            store.add(Run(header=header("r"), problem=nodes_problem()), spec={}, envs={"TOKEN": MARK})
        assert store.runs() == ()


def test_values_that_are_damaged_are_named(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(Run(header=header("r"), problem=nodes_problem()), spec={"envs": ["TOKEN"]}, envs={"TOKEN": MARK})
        (tmp_path / "envs" / "r.json").write_text("{")
        with pytest.raises(StoreError, match=r"envs/r\.json: is not JSON.*give the values with --env"):
            store.spec("r")


def test_a_number_that_no_version_wrote_is_not_migrated(tmp_path: Path) -> None:
    old = OldHome(tmp_path, 5)
    old.train("t")
    old.db.execute("UPDATE trials_started SET started_seconds = 1e999")
    old.close()
    with pytest.raises(StoreError, match="run t is damaged: started_seconds is inf"):
        Store(tmp_path)
