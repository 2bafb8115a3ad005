"""A store on a PostgreSQL server: who may do what, what is said when something is wrong, and what is never said."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from tests.postgres_server import OWNER, Server
from tests.unit.store.test_store import FUNCTIONS, add, call, epoch, epoch_step, header, measured, nodes_problem, step

import mlcd
from mlcd import codec
from mlcd.cli.main import cli, run
from mlcd.errors import BadInput, MlcdError, RunBusy, StoreError
from mlcd.functions import FunctionProblem
from mlcd.jobs.earlier_runs import earlier_runs
from mlcd.jobs.prepared import check_here
from mlcd.jobs.train import prepare
from mlcd.problem import Problem
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.spec import read_train
from mlcd.store import advisory_locks
from mlcd.store import postgres as postgres_module
from mlcd.store.address import parsed
from mlcd.store.copying import copy_runs
from mlcd.store.damage import DamagedStore, NotWritable
from mlcd.store.database import Connection
from mlcd.store.postgres import Found, PostgresDatabase, Session
from mlcd.store.rows import TABLES, insert, insert_numbered
from mlcd.store.sqlite import SCHEMA, SqliteDatabase
from mlcd.store.store import FILE, Store, has_store
from mlcd.store.team import make_store
from mlcd.trial.outcome import Status

SECRET = "hunter2-and-more"


@pytest.fixture
def here(team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The team's store, as its owner on this machine sees it."""
    monkeypatch.setenv("MLCD_STORE", team)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    with Store(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def roles(postgres: Server) -> Iterator[None]:
    for role in ("ana", "bo", "guest"):
        postgres.sql(f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN")
    yield
    for role in ("ana", "bo", "guest"):
        postgres.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def database(store: Store) -> PostgresDatabase:
    assert isinstance(store._database, PostgresDatabase)
    return store._database


# ---- the same tables


def test_both_databases_have_the_same_tables_and_columns(postgres: Server, team: str) -> None:
    assert team
    found = postgres.sql("SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'mlcd'")
    theirs = {(table, column) for table, column in found if table in TABLES and column != "rowid"}
    ours = SqliteDatabase(None).db
    assert theirs == {
        (table, row["name"]) for table in TABLES for row in ours.execute(f"PRAGMA table_info({table})").fetchall()
    }


def test_ids_are_unique_in_a_run_and_need_no_lock_of_the_table(here: Store, tmp_path: Path) -> None:
    add(here, "one")
    with Store(tmp_path / "other") as other, psycopg.connect(os.environ["MLCD_STORE"]) as busy:
        busy.execute("INSERT INTO mlcd.statuses VALUES (99, 'one', 'running', 1.0, NULL)")  # not committed
        add(other, "two")
        other.set_status("two", Status.INTERRUPTED)
        busy.rollback()
    assert here.status("two") is Status.INTERRUPTED


# ---- one process at a time


def test_the_lock_of_a_run_is_the_connection_s(here: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisory_locks, "RELEASE_SECONDS", 0.1)
    add(here, "r")
    elsewhere = Store(tmp_path / "elsewhere")
    with here.lock("r"):
        assert elsewhere.is_live("r")
        with pytest.raises(RunBusy, match="run r is in use"), elsewhere.lock("r"):
            pytest.fail("held twice")
        with pytest.raises(RunBusy, match="run r is in use"), here.lock("r"):
            pytest.fail("held twice by one process")
    assert not elsewhere.is_live("r")
    lock = elsewhere.lock("r")
    lock.__enter__()
    database(elsewhere).close()  # as its process ends
    with here.lock("r"):
        pass


def test_a_connection_that_is_lost_is_made_again_with_its_locks(here: Store, postgres: Server, tmp_path: Path) -> None:
    run = add(here, "r")
    with here.lock("r"):
        here.start("r", [step(1)])
        postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'mlcd-%'")
        here.end("r", step(1).ended(measured()))
        with Store(tmp_path / "elsewhere") as elsewhere:
            assert elsewhere.is_live("r")
    assert here.load("r").steps == run.with_started([step(1)]).with_ended(1, measured()).steps


def test_a_process_whose_run_was_taken_over_writes_no_more(
    here: Store, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory_locks, "RELEASE_SECONDS", 0.1)
    add(here, "r")
    with here.lock("r"), Store(tmp_path / "elsewhere") as elsewhere:
        pid = database(here)._connected().pid
        postgres.sql(f"SELECT pg_terminate_backend({pid})")
        with elsewhere.lock("r"):
            with pytest.raises(RunBusy, match="another mlcd process now works on run r: this one stops"):
                here.start("r", [step(1)])
            with pytest.raises(RunBusy):
                here.start("r", [step(1)])
        assert elsewhere.load("r").steps == ()


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_looked_up_and_done_once(
    here: Store, postgres: Server, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    add(here, "r")
    execute = Session.execute
    lost: list[int] = []

    def interrupted(self: Session, query: str, values: Sequence[object] = (), /) -> Found:
        if query == "COMMIT" and not lost:
            lost.append(self.pid)
            if committed:
                execute(self, query)
            postgres.sql(f"SELECT pg_terminate_backend({self.pid}, 10000)")
        return execute(self, query, values)  # which fails then: the connection is gone

    monkeypatch.setattr(Session, "execute", interrupted)
    here.set_status("r", Status.INTERRUPTED)
    assert lost
    assert postgres.sql("SELECT count(*) FROM mlcd.statuses") == [(2,)]
    assert here.status("r") is Status.INTERRUPTED


def test_a_server_that_stays_away_stops_the_engine_and_says_what_to_do(
    postgres: Server, here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "RECONNECT_SECONDS", 0.3)
    add(here, "r")
    postgres.stop()
    try:
        with pytest.raises(
            StoreError, match=r"was lost and not restored within 0 s .*nothing new was started: `mlcd r"
        ):
            here.start("r", [step(1)])
        with pytest.raises(StoreError, match=r"cannot be reached \(.*refused.*try again when it is up"):
            Store(Path("nowhere"))
    finally:
        postgres.start()
    here.start("r", [step(1)])
    assert len(here.load("r").steps) == 1


def test_a_pooler_that_changes_connections_is_refused(here: Store) -> None:
    add(here, "r")
    database(here)._connected().pid += 1
    with pytest.raises(StoreError, match="a pooler changes the connection between transactions"):
        here.start("r", [step(1)])
    assert here.load("r").steps == ()


# ---- roles


def test_readers_see_and_spenders_record_and_only_the_owner_deletes(
    postgres: Server, team: str, roles: None, tmp_path: Path
) -> None:
    assert roles is None
    made = make_store(team, what="URL", readers=["ana"], spenders=["bo"])
    assert (made.is_new, made.readers, made.spenders) == (False, ("ana",), ("bo",))
    with Store(tmp_path, url=postgres.url(user="bo")) as store:
        store.check()
        add(store, "r")
        with store.lock("r"):
            store.start("r", [step(1)])
            store.end("r", step(1).ended(measured()))
            store.finish("r", Status.DONE, None)
        with pytest.raises(NotWritable, match=r"role bo may not do that .*permission denied for table row_counts"):
            store.remove("r")
    assert postgres.sql("SELECT count(*) FROM mlcd.last_writes") == [(0,)]
    with Store(tmp_path, url=postgres.url(user="ana")) as store:
        assert store.load("r").status is Status.DONE
        assert not store.is_live("r")
        for refused in (store.check, lambda: add(store, "mine")):
            with pytest.raises(NotWritable, match=r"role ana may.*mlcd store init --spender ana"):
                refused()
    with pytest.raises(StoreError, match=r"role guest may not see this store; .* mlcd store init --reader guest"):
        Store(tmp_path, url=postgres.url(user="guest"))
    with Store(tmp_path, url=team) as store:
        store.remove("r")
        assert store.runs() == ()


def test_a_reading_store_cannot_write(here: Store, team: str, tmp_path: Path) -> None:
    add(here, "r")
    with Store(tmp_path, url=team, reading=True) as store, pytest.raises(NotWritable, match="is read-only"):
        store.start("r", [step(1)])


def test_a_role_that_is_not_there_is_named_and_nothing_is_granted(postgres: Server, team: str) -> None:
    with pytest.raises(BadInput, match="there is no role 'nobody\"; DROP'; create it with"):
        make_store(team, what="URL", readers=['nobody"; DROP'])


# ---- errors, in one line without a password


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (f"UPDATE mlcd.store_schema SET version = {SCHEMA + 1}", "was made by a newer mlcd .*: upgrade mlcd"),
        (f"UPDATE mlcd.store_schema SET version = {SCHEMA - 1}", "was made by an older mlcd .* `mlcd store copy`"),
        ("DROP SCHEMA mlcd CASCADE", "has no mlcd store yet; its owner makes it with: mlcd store init"),
    ],
)
def test_a_store_of_another_version_or_none_is_left_alone(
    postgres: Server, team: str, tmp_path: Path, change: str, message: str
) -> None:
    postgres.sql(change)
    with pytest.raises(StoreError, match=message):
        Store(tmp_path, url=team)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://u:{secret}@127.0.0.1:1/x", r"^postgresql://u@127\.0\.0\.1:1/x: cannot be reached \(.*refused"),
        ("postgresql://u:{secret}@127.0.0.1:1/x?bad", "is not an address that PostgreSQL knows"),
        ("postgresql://u:{secret}%zz@127.0.0.1:1/x", "is not an address that PostgreSQL knows"),
        ("mysql://u:{secret}@h/x", r"MLCD_STORE: is not the address of a PostgreSQL server \(got mysql://\.\.\.\)"),
        (
            "u:{secret}@h",
            r"MLCD_STORE: is not the address of a PostgreSQL server \(got a value that does not begin with postgresql://\)",
        ),
        ("postgresql://u:{secret}@h/x y", "is not the address of a PostgreSQL server"),
        ("postgresql://no.such.host.invalid/x?user=u&password={secret}", "cannot be reached"),
    ],
)
def test_addresses_that_do_not_work_get_one_line_without_a_password(
    address: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_STORE", address.format(secret=SECRET))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    with pytest.raises(MlcdError, match=message) as raised:
        Store(tmp_path)
    error: BaseException | None = raised.value
    assert "\n" not in str(error)
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


def test_a_wrong_password_a_missing_role_and_a_missing_database_are_told_apart(
    postgres: Server, team: str, roles: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert roles is None
    postgres.sql(f"ALTER ROLE guest PASSWORD '{SECRET}'")
    postgres.set_login("password")
    try:
        for url in (postgres.url(user="guest:wrong"), postgres.url(user="guest")):
            with pytest.raises(StoreError, match=r"refuses the login .*set PGPASSWORD, or add a line to ~/\.pgpass"):
                Store(tmp_path, url=url)
        monkeypatch.setenv("PGPASSWORD", SECRET)
        with pytest.raises(StoreError, match="may not see this store"):
            Store(tmp_path, url=postgres.url(user="guest"))
    finally:
        postgres.set_login("trust")
    with pytest.raises(StoreError, match='role "stranger" does not exist'):
        Store(tmp_path, url=postgres.url(user="stranger"))
    with pytest.raises(StoreError, match='database "none" does not exist; create it with: createdb'):
        Store(tmp_path, url=postgres.url("none"))
    assert team


@pytest.mark.parametrize(
    ("url", "where", "secrets"),
    [
        (
            "postgres://ana:s%40cret@h1:1,h2:2/team?sslmode=require",
            "postgresql://ana@h1:1,h2:2/team",
            ["s%40cret", "s@cret"],
        ),
        ("postgresql:///team?host=/run/pg&password=secret", "postgresql:///run/pg/team", ["secret"]),
        ("postgresql://ana:p@ss@host/team", "postgresql://ana@host/team", ["p@ss"]),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, where: str, secrets: list[str]) -> None:
    address = parsed(url, "URL")
    assert address.where == where
    assert sorted(address.secrets) == sorted(secrets)
    assert not any(secret in repr(address) for secret in secrets)
    assert address.without_secrets(f"failed for {secrets[0]}") == "failed for ***"


def test_no_password_is_in_what_mlcd_records_or_prints(
    postgres: Server, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.url(user=f"{OWNER}:{SECRET}")
    monkeypatch.setenv("MLCD_STORE", url)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    said = ""
    for command in (["demo", "-o", "json"], ["runs"], ["runs", "-o", "json"], ["check", "-o", "json"], ["show"],
                    ["store", "init", "-o", "json"], ["store", "copy", url, url]):  # fmt: skip
        said += CliRunner().invoke(cli, command).output
    assert "postgresql://team_owner@" in said
    assert SECRET not in said
    dumped = str([postgres.sql(f"SELECT * FROM mlcd.{table}") for table in TABLES])
    assert SECRET not in dumped
    assert not any(SECRET in file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert team


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "mlcd.store.postgres")
    monkeypatch.setattr("mlcd.extras.find_spec", lambda _name: None)
    with pytest.raises(MlcdError, match=r"a store on PostgreSQL needs the extra 'postgres' \(psycopg not installed\)"):
        Store(tmp_path, url="postgresql://h/x")


# ---- damage


def test_a_row_that_somebody_changed_is_named_and_the_others_can_be_used(here: Store, postgres: Server) -> None:
    add(here, "good")
    add(here, "bad")
    here.start("bad", [step(1)])
    postgres.sql("UPDATE mlcd.steps_started SET authorised_usd_micros = 1")
    with pytest.raises(
        DamagedStore, match=r"run bad is damaged: the start of step 1 .*restore it from a backup of the"
    ):
        here.load("bad")
    assert [(line.run_id, bool(line.damage)) for line in here.runs()] == [("good", False), ("bad", True)]
    postgres.sql("DELETE FROM mlcd.steps_started")
    with pytest.raises(DamagedStore, match="1 of its 3 rows are missing"):
        here.status("bad")


# ---- a team


def test_a_run_says_who_made_it_and_is_resumed_only_there(
    here: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replace(header("real"), simulated=False)
    here.add(Run(header=real, problem=nodes_problem()), spec={})
    add(here, "simulated")
    monkeypatch.setattr("mlcd.store.store._me", lambda: "bo@elsewhere")
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "elsewhere"))
    with Store(tmp_path / "elsewhere") as other:
        made_by = other.load("real").header.made_by
        assert "@" in made_by
        with pytest.raises(BadInput, match=f"run real was started by {made_by}, .*resume it there"):
            check_here(other.load("real"), other)
        check_here(other.load("simulated"), other)
        check_here(here.load("real"), here)
        with pytest.raises(BadInput, match="there is no run to continue"):
            other.latest(unfinished=True)
        assert here.latest(unfinished=True) == "simulated"
        assert other.latest() == "simulated"
    assert run(["resume", "real"]) == 2
    assert run(["logs", "real"]) == 2
    said = capsys.readouterr().err
    assert f"was started by {made_by}" in said
    assert "its logs are there" in said
    assert run(["runs"]) == 0
    assert made_by in capsys.readouterr().out
    assert run(["runs", "-o", "json"]) == 0
    assert {row["made_by"] for row in json.loads(capsys.readouterr().out)["runs"]} == {made_by}
    assert run(["runs", "--restore"]) == 2
    assert "a server is restored from its own backups" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["..", ".", "", "../owned", "/etc", "a/b", "x" * 101, "-rf", "a\nb"])
def test_a_run_that_a_colleague_gave_a_path_as_name_is_no_run_of_this_machine(
    here: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "home" / "work" / "owned").mkdir(parents=True)
    (tmp_path / "home" / "locks").mkdir(exist_ok=True)
    written(here, name, header(name))
    with pytest.raises(BadInput, match="there is no run to continue"):
        here.latest(unfinished=True)  # before: "..", whose files are here; `mlcd resume` ran its command
    with pytest.raises(DamagedStore, match="its name is none that mlcd gives to runs"):
        here.load(name)
    for arguments in (
        ["resume"],
        ["resume", "--", name],
        ["runs", "rm", "-y", "--force", "--", name],
        ["logs", "--", name],
    ):
        assert run(arguments) in (1, 2)
    with pytest.raises(BadInput, match="is no name of a run"), here.lock(name):
        pass
    assert run(["runs"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    assert (tmp_path / "home" / "work" / "owned").is_dir()


def test_a_run_whose_header_names_another_one_is_damaged(here: Store) -> None:
    written(here, "innocent-0a1b2c", header("../../elsewhere"))
    with pytest.raises(DamagedStore, match="what was recorded when it started is of another run"):
        here.load("innocent-0a1b2c")
    with pytest.raises(DamagedStore, match="is of another run"):
        here.kind("innocent-0a1b2c")
    assert [bool(line.damage) for line in here.runs()] == [True]


def test_a_run_that_a_colleague_gave_the_name_of_one_of_this_machine_is_not_continued_here(
    here: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are here, from a time before the team's store; the record is not the one that was written here."""
    name = "mine-0a1b2c"
    (tmp_path / "home" / "work" / name).mkdir(parents=True)
    (tmp_path / "home" / "locks").mkdir(exist_ok=True)
    (tmp_path / "home" / "locks" / f"{name}.lock").touch()
    written(here, name, header(name))
    assert not here.is_here(name)  # before: yes, and `mlcd resume` ran its command
    with pytest.raises(BadInput, match="there is no run to continue"):
        here.latest(unfinished=True)
    assert run(["resume", name]) == 2
    assert "resume it there" in capsys.readouterr().err
    add(here, "own")
    assert here.is_here("own")
    here.remove("own")
    assert not list((tmp_path / "home" / "locks").glob("own.*"))


def test_a_run_with_a_hostile_name_is_not_copied_and_the_others_are(here: Store, team: str, tmp_path: Path) -> None:
    add(here, "good")
    written(here, "../x", header("../x"))
    done = copy_runs(team, str(tmp_path / "archive"))
    assert (done.copied, done.damaged) == (("good",), (("../x", "its name is none that mlcd gives to runs"),))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["store", f"postgresql://ana:{SECRET}@h/team"], "no such command 'postgresql://ana@h/team'"),
        (["store", "copy", "~nosuchuser", "x"], "FROM: there is no folder '~nosuchuser'"),
        (["store", "copy", "HOME", "~nosuchuser"], "TO: there is no folder '~nosuchuser'"),
    ],
)
def test_arguments_of_store_that_cannot_be_get_one_line_without_a_password(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([each.replace("HOME", str(tmp_path)) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert SECRET not in said


def test_a_colleague_s_run_that_is_called_simulated_runs_nothing_here(
    here: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is continued anywhere must be simulated. Before, its command was run."""
    job = tmp_path / "job.yaml"
    job.write_text(
        f"name: harmless\nresources: {{infra: local}}\nnum_nodes: 1\nrun: touch {tmp_path}/owned\n"
        "job: {samples: 1000}\ngoal: {minimize: time, deadline: 1h}\nsearch: {strategy: random, max_trials: 1}\n"
    )
    prepared = prepare(read_train(job), seed=0, folder=tmp_path / "colleague")
    made = prepared.new_run()
    header = replace(made.header, simulated=True, cloud="sim/aws")
    row = {
        "run_id": made.run_id,
        "header": codec.encode(header),
        "problem": codec.encode(made.problem, Problem | FunctionProblem),
        "spec": codec.dump(dict(prepared.spec)),
    }
    written(here, made.run_id, header, row)
    assert run(["resume", made.run_id]) == 2
    assert "is recorded as simulated on sim/aws, but its job would run on local" in capsys.readouterr().err
    with pytest.raises(BadInput, match="would run on local"):
        mlcd.resume(made.run_id, home=tmp_path / "home")
    assert not (tmp_path / "owned").exists()
    assert here.load(made.run_id).steps == ()


def written(store: Store, name: str, made: Header, row: dict[str, str] | None = None) -> None:
    """A run on real nodes as a colleague may write it, who has the right to add rows and computes their digests."""
    whole = row or {
        "run_id": name,
        "header": codec.encode(replace(made, simulated=False, cloud="local")),
        "problem": codec.encode(nodes_problem(), Problem | FunctionProblem),
        "spec": '{"run": "touch owned"}',
    }

    def work(db: Connection) -> None:
        insert(db, "runs", [whole])
        insert_numbered(db, "statuses", {"run_id": name, "status": "running", "at": 1.0})

    store._database.write(work)


def test_what_others_measured_is_known_to_auto(here: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same job, started in another home: its trials are those of a colleague."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: shared\nresources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]}\n"
        "job: {model: resnet152, samples: 50000, epochs: 4}\ngoal: {minimize: time, budget: 150 USD}\n"
    )
    assert run(["train", str(job), "-o", "json"]) == 0
    assert not (tmp_path / "home" / FILE).exists()
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "colleague"))
    assert has_store(tmp_path / "colleague")
    spec = read_train(job)
    prepared = prepare(spec, seed=0, folder=tmp_path / "colleague")
    known = earlier_runs(tmp_path / "colleague", "sim/aws", spec, prepared.problem)
    assert len(known.reused) == len(here.load(here.latest()).trials) > 0


# ---- copies


def fill(store: Store) -> None:
    add(store, "trained")
    store.start("trained", [step(1)])
    store.end("trained", step(1).ended(measured()))
    store.finish("trained", Status.DONE, None)
    store.add(Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS), spec={"a": 1})
    store.start("f", [epoch_step(1)])
    store.end("f", epoch_step(1).ended(epoch(1)), [call(0), call(1)])


def test_runs_are_copied_to_a_server_and_back_and_a_repeated_copy_changes_nothing(
    team: str, postgres: Server, tmp_path: Path
) -> None:
    home, back = tmp_path / "home", tmp_path / "back"
    with Store(home, url="") as store:
        fill(store)
        runs = {name: store.load(name) for name in ("trained", "f")}
    first = copy_runs(str(home), team)
    assert (first.copied, first.is_complete) == (("trained", "f"), True)
    assert copy_runs(str(home), team).unchanged == ("trained", "f")
    assert copy_runs(team, str(back)).copied == ("trained", "f")
    with Store(home, url=team) as there, Store(back, url="") as again:
        for store in (there, again):
            assert {name: store.load(name) for name in runs} == runs
            assert store.calls("f") == (call(0), call(1))
        assert there.is_here("f"), "its files are in the home that it was copied from"
    with Store(home, url="") as store, store.lock("f"):
        store.start("f", [epoch_step(2)])
        busy = copy_runs(str(home), team)
        assert (busy.busy, busy.is_complete) == (("f",), False)
    assert copy_runs(str(home), team).continued == ("f",)
    assert copy_runs(team, str(back)).continued == ("f",)
    with Store(back, url="") as again:
        again.set_status("trained", Status.OVERRAN)
    assert copy_runs(str(back), team).continued == ("trained",)
    with Store(home, url="") as store:
        store.set_status("trained", Status.INTERRUPTED)
    assert copy_runs(str(home), team).differing == ("trained",)
    postgres.sql("UPDATE mlcd.runs SET spec = '{}' WHERE run_id = 'f'")
    (damaged,) = copy_runs(team, str(tmp_path / "third")).damaged
    assert damaged == ("f", "what was recorded when it started is not as mlcd wrote it")


def test_copy_and_init_as_commands(team: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path / "home", url="") as store:
        fill(store)
    assert run(["store", "copy", str(tmp_path / "home"), team, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["copied"] == ["trained", "f"]
    assert run(["store", "copy", str(tmp_path / "home"), team]) == 0
    assert capsys.readouterr().out == "Copied 0 runs; added steps to 0; 2 were there.\n"
    assert run(["store", "copy", str(tmp_path / "nowhere"), team]) == 2
    assert "FROM: there is no folder" in capsys.readouterr().err
    assert run(["store", "copy", team, team]) == 2
    assert "the same store" in capsys.readouterr().err
    assert run(["store", "init", team]) == 0
    assert "The store is there: postgresql://team_owner@" in capsys.readouterr().out
    assert run(["store", "init"]) == 2
    assert "URL: give the address of a database, or set MLCD_STORE" in capsys.readouterr().err
