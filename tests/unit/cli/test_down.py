"""`mlcd down`: lists and asks before it ends everything; ends one run alone."""

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run

from mlcd.cli.main import run
from mlcd.clouds.nodes import Leftover, Unproved
from mlcd.errors import ProviderError
from mlcd.store.store import Store


@dataclass
class Engine:
    """Nodes of three leases, two of one run."""

    name: str = "local"
    ended: list[str] = field(default_factory=list)
    owned: tuple[str, ...] = ()

    def leftovers(self) -> tuple[Leftover, ...]:
        names = ("mlcd-one-a1b2c3-0d0d0d", "mlcd-one-a1b2c3-0e0e0e", "mlcd-two-ffffff-0f0f0f")
        return tuple(
            Leftover(cloud="local", lease_id=name, what="2 processes", owned=name in self.owned)
            for name in names
            if name not in self.ended
        )

    def end(self, leftover: Leftover) -> None:
        self.ended.append(leftover.lease_id)

    def unproved(self) -> tuple[Unproved, ...]:
        return ()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    for name in ("one-a1b2c3/leases/mlcd-one-a1b2c3-0d0d0d", "one-a1b2c3/leases/mlcd-one-a1b2c3-0e0e0e", "two-ffffff"):
        (tmp_path / "work" / name).mkdir(parents=True)
    made = Engine()
    monkeypatch.setattr("mlcd.jobs.down._engine", lambda _kind, _home: made)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def answer(text: str) -> None:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("click.confirm", lambda *_, **__: text == "y")

    return answer


@pytest.mark.parametrize(("cloud", "is_said"), [("sim/aws", False), ("slurm", True)])
def test_a_cloud_that_no_run_was_on_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cloud: str, is_said: bool
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))

    def engine(kind: str, _home: Path) -> None:
        if kind == "slurm":
            raise ProviderError("squeue failed")

    monkeypatch.setattr("mlcd.jobs.down._engine", engine)
    made = make_run(make_problem(), SyntheticCloud(), "auto", run_id="one-a1b2c3")
    with Store(tmp_path) as store:
        store.add(replace(made, header=replace(made.header, cloud=cloud)), spec={})
    assert run(["down"]) == 0
    assert ("Not searched: slurm: squeue failed" in capsys.readouterr().err) is is_said
    assert run(["down", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_looked"] == {"slurm": "squeue failed"}


def test_a_run_is_ended_alone_and_without_asking(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "one-a1b2c3", "--on", "local"]) == 0
    assert engine.ended == ["mlcd-one-a1b2c3-0d0d0d", "mlcd-one-a1b2c3-0e0e0e"]
    assert "mlcd-two" not in capsys.readouterr().out


def test_a_run_that_has_nothing_says_so(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "two-ffffff", "--on", "local"]) == 0
    assert (engine.ended, capsys.readouterr().out) == ([], "Nothing of two-ffffff is running.\n")


@pytest.mark.parametrize("name", ["no-such-run", "..", "../../etc", "one"])
def test_a_run_that_is_not_there_is_refused(engine: Engine, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", name, "--on", "local"]) == 2
    assert engine.ended == []
    assert capsys.readouterr().err.count("\n") == 1


def test_everything_off_a_terminal_is_listed_and_needs_yes(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "--on", "local"]) == 2
    assert engine.ended == []
    said = capsys.readouterr().err
    assert "mlcd-two-ffffff-0f0f0f" in said
    assert "this would end these 3 leases, and there is no terminal to ask on: give -y, RUN or --dry-run" in said
    assert run(["down", "--on", "local", "-y", "-o", "json"]) == 0
    assert [each["ended"] for each in json.loads(capsys.readouterr().out)["found"]] == [True] * 3


@pytest.mark.parametrize(("reply", "code", "ended"), [("y", 0, 3), ("n", 2, 0)])
def test_everything_on_a_terminal_is_listed_and_asked_for(
    engine: Engine, terminal: Callable[[str], None], reply: str, code: int, ended: int
) -> None:
    terminal(reply)
    assert run(["down", "--on", "local"]) == code
    assert len(engine.ended) == ended


def test_a_run_that_is_active_is_asked_for(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.owned = ("mlcd-one-a1b2c3-0e0e0e",)
    assert run(["down", "one-a1b2c3", "--on", "local"]) == 2
    assert engine.ended == []
    assert "these 2 leases, 1 of them in use" in capsys.readouterr().err


def test_a_dry_run_ends_nothing(engine: Engine) -> None:
    assert run(["down", "--on", "local", "--dry-run"]) == 0
    assert engine.ended == []


def test_a_lease_that_cannot_be_ended_keeps_no_other_running(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(leftover: Leftover) -> None:
        if "0d0d0d" in leftover.lease_id:
            raise OSError(errno.ENODEV, "No such device")
        engine.ended.append(leftover.lease_id)

    monkeypatch.setattr(engine, "end", end)
    assert run(["down", "--on", "local", "-y", "-o", "json"]) == 7
    said = capsys.readouterr()
    assert [row["ended"] for row in json.loads(said.out)["found"]] == [False, True, True]
    assert said.err == "mlcd: mlcd-one-a1b2c3-0d0d0d: [Errno 19] No such device\n"


@pytest.mark.parametrize(("on", "code"), [([], 0), (["--on", "local"], 7)])
def test_a_cloud_that_cannot_be_searched_is_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on: list[str], code: int
) -> None:
    def leftovers() -> tuple[Leftover, ...]:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/sys/fs/cgroup/gone")

    monkeypatch.setattr(engine, "leftovers", leftovers)
    assert run(["down", *on, "-y", "-o", "json"]) == code
    said = capsys.readouterr()
    assert "/sys/fs/cgroup/gone" in (said.err if on else json.loads(said.out)["not_looked"]["local"])


def test_folders_that_another_process_deletes_meanwhile_are_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("pathlib.Path.iterdir", gone)
    assert run(["down", "one-a1b2c3", "--on", "local", "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["found"] == []
