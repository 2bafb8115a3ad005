"""A tracker is told everything, and whatever becomes of it, the run goes on: one warning, no more."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mlcd
from mlcd.errors import BadInput, MissingExtra, MlcdError
from mlcd.events import Event, RunBegan, RunEnded, StepEnded, Warned
from mlcd.extras import install_line
from mlcd.track import tracked, worker
from mlcd.track.messages import messages
from mlcd.trial.outcome import Status

JOB = {
    "name": "tracked",
    "resources": {"infra": "sim/aws", "instance_type": ["c5.xlarge", "p3.2xlarge"]},
    "num_nodes": "1..4",
    "job": {"model": "resnet152", "samples": 50000, "epochs": 5},
    "goal": {"minimize": "time", "budget": "40 USD"},
    "search": {"max_trials": 3},
}
RECORDER = """
import json, os
def Settings(**_): return None
class Artifact:
    def __init__(self, name, type): self.files = []
    def add_file(self, file): self.files.append(open(file, encoding="utf-8").read())
class Run:
    def __init__(self, **given): self.given, self.summary = given, {}; self.say("init", given)
    def say(self, what, value):
        line = json.dumps([self.given["name"], what, value], default=str)
        with open(os.environ["RECORD"], "a") as file: file.write(line + "\\n")
    def log(self, values): self.say("log", values)
    def log_artifact(self, artifact): self.say("artifact", [text[:15] for text in artifact.files])
    def finish(self, exit_code): self.say("finish", [exit_code, dict(self.summary)])
def init(**given): return Run(**given)
"""


@pytest.fixture
def events(tmp_path: Path) -> list[Event]:
    """Those of a simulated training."""
    seen: list[Event] = []
    assert mlcd.train(JOB, home=tmp_path / "home", observer=seen.append).status is Status.DONE
    return seen


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module `wandb`, for the tests to fill."""
    (tmp_path / "modules").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("MLCD_TRACK_PYTHON", sys.executable)
    monkeypatch.setenv("RECORD", str(tmp_path / "record.jsonl"))
    return tmp_path / "modules" / "wandb.py"


def retold(events: list[Event], *, flush_seconds: float = 30.0, names: tuple[str, ...] = ("wandb",)) -> list[Event]:
    """What the user's observer is told while the events are tracked."""
    told: list[Event] = []
    with tracked(names, told.append, flush_seconds=flush_seconds) as observer:
        for event in events:
            observer(event)
    return told


def warnings(told: list[Event]) -> list[str]:
    return [event.text for event in told if isinstance(event, Warned)]


def test_a_run_begins_and_ends_for_its_observers(events: list[Event]) -> None:
    assert isinstance(events[0], RunBegan)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].run.status is Status.DONE
    assert events[-1].run.run_id == events[0].run.run_id


def test_messages_have_configuration_price_money_and_reason(events: list[Event]) -> None:
    steps = [event for event in events if isinstance(event, StepEnded)]
    first, account = messages(steps[0])
    assert first["params"]["instance"] in ("c5.xlarge", "p3.2xlarge")
    assert float(first["params"]["usd_per_hour"]) > 0
    assert first["metrics"]["usd"] == steps[0].step.trial.usd.dollars
    assert first["tags"]["reason"] == steps[0].step.reason
    assert account["metrics"]["spent_usd"] == steps[0].money.spent.dollars
    (end,) = messages(events[-1])
    assert end["metrics"]["total_usd"] == events[-1].run.spent.dollars  # type: ignore[union-attr]
    json.dumps([message for event in events for message in messages(event)], allow_nan=False)


def test_a_tracker_is_told_of_parent_children_and_report(events: list[Event], fake: Path, tmp_path: Path) -> None:
    fake.write_text(RECORDER)
    assert retold(events) == events
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    steps = [event for event in events if isinstance(event, StepEnded)]
    parent = events[0].run.run_id  # type: ignore[union-attr]
    started = [name for name, what, _ in lines if what == "init"]
    assert started[0] == parent
    assert len(started) == 1 + len(steps)
    assert [value for name, what, value in lines if what == "artifact"] == [["<!doctype html>", '{\n  "schema": 1']]
    assert lines[-1][:2] == [parent, "finish"]
    assert lines[-1][2][0] == 0
    assert lines[-1][2][1]["status"] == "done"


def test_a_run_that_was_cut_off_is_marked_so(events: list[Event], fake: Path, tmp_path: Path) -> None:
    fake.write_text(RECORDER)
    retold(events[:-1])
    last = json.loads((tmp_path / "record.jsonl").read_text().splitlines()[-1])
    assert last[1:] == ["finish", [130, {}]]


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("raise RuntimeError('no such project')", "RuntimeError: no such project"),
        ("import os; os._exit(7)", "its process ended with 7"),
        ("import time; time.sleep(600)", "did not take everything within 1 s"),
        (RECORDER.replace("def log(", "def log(self, values): raise OSError('disk full')\n    def _("), "disk full"),
        ("def init(**_): pass", "AttributeError"),
    ],
    ids=["raises", "dies", "hangs", "fails later", "another version"],
)
def test_a_tracker_that_fails_warns_once_and_nothing_else(
    events: list[Event], fake: Path, module: str, says: str
) -> None:
    fake.write_text(module)
    told = retold(events, flush_seconds=1.0 if "sleep" in module else 30.0)
    (warning,) = warnings(told)
    assert warning.startswith("wandb: ")
    assert says in warning
    assert [event for event in told if not isinstance(event, Warned)] == events


HANGS_WITH_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(os.environ["RECORD"], "w") as file: file.write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def gone(file: Path) -> bool:
    """Whether every process that the file names has ended, within 20 s."""
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        named = file.read_text().split() if file.exists() else []
        states = [Path(f"/proc/{pid}/stat") for pid in named]
        if named and not any(state.exists() and state.read_text().split()[2] != "Z" for state in states):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_tracker_that_hangs_is_ended_with_what_it_started(events: list[Event], fake: Path, tmp_path: Path) -> None:
    fake.write_text(HANGS_WITH_A_CHILD)
    (warning,) = warnings(retold(events, flush_seconds=2.0))
    assert "within 2 s" in warning
    assert gone(tmp_path / "record.jsonl")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_tracker_that_hangs_ends_also_where_mlcd_was_killed(fake: Path, tmp_path: Path) -> None:
    fake.write_text(HANGS_WITH_A_CHILD)
    command = [sys.executable, str(Path(worker.__file__)), "wandb", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        time.sleep(0.5)
        process.stdin.close()
        assert gone(tmp_path / "record.jsonl")


def test_a_python_that_is_not_there_warns(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_TRACK_PYTHON", "/nowhere/python")
    (warning,) = warnings(retold(events))
    assert "/nowhere/python cannot be started" in warning


def test_more_than_a_pipe_holds_is_told_without_waiting(events: list[Event], fake: Path) -> None:
    fake.write_text("import time; time.sleep(600)")
    many = [*events, *[event for event in events if isinstance(event, StepEnded)] * 2000]
    (warning,) = warnings(retold(many, flush_seconds=0.5))
    assert "within 0.5 s" in warning


@pytest.mark.parametrize(
    ("track", "kind", "says"),
    [
        ("wanb", BadInput, "allowed: mlflow, wandb; did you mean 'wandb'?"),
        ("mlflow", MissingExtra, f"track: mlflow is not installed; {install_line('mlflow')}, or set MLCD_TRACK_PYTHON"),
    ],
)
def test_what_cannot_be_tracked_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track: str, kind: type[MlcdError], says: str
) -> None:
    monkeypatch.delenv("MLCD_TRACK_PYTHON", raising=False)
    monkeypatch.setattr("mlcd.track.reporting.importlib.util.find_spec", lambda _: None)
    with pytest.raises(kind, match=says.replace("[", r"\[").replace("?", r"\?")):
        mlcd.train(JOB, home=tmp_path / "home", track=track)
    assert mlcd.runs(home=tmp_path / "home") == ()


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "1e9"])
def test_a_wait_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, fake: Path, seconds: str) -> None:
    monkeypatch.setenv("MLCD_TRACK_SECONDS", seconds)
    with pytest.raises(BadInput, match="MLCD_TRACK_SECONDS: must be a number of seconds"):
        retold([])


def test_the_wait_at_the_end_can_be_set(events: list[Event], fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.write_text("import time; time.sleep(600)")
    monkeypatch.setenv("MLCD_TRACK_SECONDS", "0.25")
    told: list[Event] = []
    with tracked("wandb", told.append) as observer:
        for event in events:
            observer(event)
    (warning,) = warnings(told)
    assert "within 0.25 s" in warning


def test_the_frame_of_a_result_has_a_row_for_each_trial(tmp_path: Path) -> None:
    result = mlcd.train(JOB, home=tmp_path / "home")
    frame = result.to_frame()
    assert len(frame) == len(result.trials)
    assert list(frame["usd"]) == [step.trial.usd.dollars for step in result.trials]
