"""`mlcd logs` where jobs write: names and contents of its folders are shown harmlessly, or not at all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.test_store import header, nodes_problem, step

import mlcd.cli.logs as command
from mlcd.cli.main import run
from mlcd.home.logs import lease_logs
from mlcd.run.logs import failed_log, step_logs
from mlcd.run.run import Run
from mlcd.store.store import Store
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd

ESCAPES = "\x1b]52;c;QUFB\x07"
RUN = "real-1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    with Store(tmp_path) as store:
        store.add(Run(header=replace(header(RUN), simulated=False), problem=nodes_problem()), spec={})
        store.start(RUN, [step(1)])
    return tmp_path


def lease(home: Path, name: str, text: str) -> Path:
    log = home / "work" / RUN / "leases" / name / "node-0" / "log.txt"
    log.parent.mkdir(parents=True)
    (log.parents[1] / "job.json").write_text("{}")
    log.write_text(text)
    return log


@pytest.mark.parametrize("arguments", [[], ["--paths"], ["-o", "json"]])
def test_a_folder_with_a_name_that_mlcd_does_not_give_is_no_lease(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    lease(home, "mlcd-real-1-abc123", f"good {ESCAPES}\n")
    for name in (f"x{ESCAPES}", "y\nmlcd: done", "-rf", ".hidden"):
        lease(home, name, "forged\n")
    assert run(["logs", RUN, *arguments]) == 0
    said = capsys.readouterr()
    assert "mlcd-real-1-abc123" in said.out + said.err
    for bad in ("\x1b", "\x07", "forged", "mlcd: done", "\\u001b"):
        assert bad not in said.out + said.err


def _fifo(log: Path) -> None:
    os.mkfifo(log)


def _folder(log: Path) -> None:
    log.mkdir()


def _link(log: Path) -> None:
    log.symlink_to("/etc/passwd")


def _device(log: Path) -> None:
    log.symlink_to("/dev/zero")


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize("make", [_fifo, _folder, _link, _device, _nothing])
def test_a_log_that_is_replaced_after_it_was_found_is_not_read(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, make: object
) -> None:
    log = lease(home, "mlcd-real-1-abc123", "one\n")
    chosen = command._chosen

    def then_replaced(*arguments: object, **named: object) -> object:
        found = chosen(*arguments, **named)  # type: ignore[arg-type]
        log.unlink(missing_ok=True)
        make(log)  # type: ignore[operator]
        return found

    monkeypatch.setattr(command, "_chosen", then_replaced)
    assert run(["logs", RUN]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "bug" not in said.err


def test_a_log_that_goes_away_does_not_keep_a_run_from_being_loaded(home: Path) -> None:
    log = lease(home, "mlcd-real-1-abc123", "one\n")
    failed = Failure(config=step(1).config, attempt=1, kind=FailureKind.ERROR, message="m", seconds=1.0, usd=Usd(1))
    logs = step_logs([step(1).ended(failed)], lease_logs(home, RUN))
    assert failed_log(logs) == log
    log.unlink()
    assert failed_log(logs) == log
