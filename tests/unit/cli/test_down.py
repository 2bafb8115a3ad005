"""`mlcd down`: lists and asks before it ends everything; ends one run alone."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlcd.cli.main import run
from mlcd.clouds.nodes import Leftover, Unproved


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
    assert "this would end these 3, and there is no terminal to ask on: give -y, RUN or --dry-run" in said
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
    assert "these 2, 1 of which an active run uses" in capsys.readouterr().err


def test_a_dry_run_ends_nothing(engine: Engine) -> None:
    assert run(["down", "--on", "local", "--dry-run"]) == 0
    assert engine.ended == []
