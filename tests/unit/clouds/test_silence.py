"""A job that reports no sample: the message says what it wrote, and what to change."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.clouds.test_job_files import ONE, FakeEngine

from mlcd.cli.main import run
from mlcd.clouds.busy import busy_text
from mlcd.clouds.job import JobCloud, RealJob
from mlcd.engine.checked import CheckedCloud
from mlcd.problem import TrialPolicy
from mlcd.profiler.measure import measure
from mlcd.spec.real import ProgressRule
from mlcd.trial.trial import Failure
from mlcd.units import Usd

PATTERN = ProgressRule(pattern=r"step (?P<steps>[0-9]+)")


def said(home: Path, act: Callable[[Path], object], rule: ProgressRule, **job: object) -> str:
    """The message of a trial in which the job wrote what `act` writes."""
    made = RealJob(run="true", progress=rule, **job)  # type: ignore[arg-type]
    cloud = CheckedCloud(cloud=JobCloud(FakeEngine(act), made, home=home))
    policy = TrialPolicy(seconds=0.3, extension=0.0, watchdog_seconds=6.0)
    found = measure(cloud, ONE, attempt=1, policy=policy, usd_per_hour=Usd.of("1"), run_id="run")
    assert isinstance(found, Failure)
    return found.message


def log(*lines: str, code: int | None = None) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        (folder / "node-0" / "log.txt").write_text("".join(f"{line}\n" for line in lines))
        if code is not None:
            (folder / "node-0" / "exit.json").write_text(json.dumps({"code": code}))

    return act


def test_a_script_that_never_calls_mlcd_steps(tmp_path: Path) -> None:
    text = said(tmp_path, log("epoch 1", "", "epoch 2 \x1b[31mloss 0.3"), ProgressRule())
    assert "the script had not called mlcd.steps by then; node 0 wrote 2 lines" in text
    assert "the last one: 'epoch 2 \ufffd[31mloss 0.3'" in text
    assert "loop over mlcd.steps(loader) in the script, or set progress.pattern" in text


def test_a_script_without_any_output(tmp_path: Path) -> None:
    text = said(tmp_path, lambda _folder: None, ProgressRule())
    assert "the script had not called mlcd.steps by then, and node 0 wrote no output; it may still have been" in text
    assert "never called" not in text
    assert text.index("increase search.trial.minutes") < text.index("loop over mlcd.steps(loader)")


def test_a_job_that_ended_without_a_sample(tmp_path: Path) -> None:
    text = said(tmp_path, log("done", code=0), ProgressRule())
    assert text.startswith("the job ended before its first sample")
    assert "the script never called mlcd.steps; node 0 wrote 1 line, the last one: 'done'" in text
    assert "increase search.trial.minutes" not in text


def test_mlcd_steps_that_has_begun_is_not_blamed(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        (folder / "progress.jsonl").write_text('{"time": 1, "samples": 0}\n')

    text = said(tmp_path, act, ProgressRule())
    assert "mlcd.steps was called, and no step has ended" in text
    assert "increase search.trial.minutes" in text
    assert "never" not in text


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    text = said(tmp_path, log("epoch 1", "epoch 2"), PATTERN)
    assert "node 0 wrote 2 lines, the last one: 'epoch 2'; none matches progress.pattern" in text
    assert "'step (?P<steps>[0-9]+)'; correct the pattern or what the script prints" in text


def test_a_pattern_that_matches_without_samples(tmp_path: Path) -> None:
    text = said(tmp_path, log("step 0", "hello"), PATTERN, batch=10)
    assert "1 of 2 lines matched progress.pattern" in text
    assert "print progress more often, or increase search.trial.minutes" in text


@pytest.mark.parametrize(
    ("content", "found"), [("", "it has no line"), ("loss 1\nloss 2\n", "none of its 2 lines has")]
)
def test_a_file_without_progress(tmp_path: Path, content: str, found: str) -> None:
    def act(folder: Path) -> None:
        (folder / "workdir" / "p.jsonl").write_text(content)

    text = said(tmp_path, act, ProgressRule(file="p.jsonl"))
    assert f"progress.file 'p.jsonl': {found}" in text
    assert 'append lines such as {"samples": 640} there' in text


def test_a_long_last_line_is_cut_and_values_of_variables_are_hidden(tmp_path: Path) -> None:
    text = said(tmp_path, log("key-123456 " + "x" * 5000), ProgressRule(), envs={"KEY": "key-123456"})
    assert "$KEY" in text
    assert "key-123456" not in text
    assert len(text) < 500


def test_a_training_that_ends_without_a_sample_says_so(tmp_path: Path) -> None:
    """Where the job is short, it is run without a trial: the same words, as a warning."""
    cloud = JobCloud(FakeEngine(log("done", code=0)), RealJob(run="true"), home=tmp_path)
    from mlcd.clouds.provider import Order, Purpose
    from mlcd.engine.stretch import TrainingNodes

    order = Order(config=ONE, purpose=Purpose.RUN, seconds=60.0, run_id="run")
    with TrainingNodes(cloud=CheckedCloud(cloud=cloud), order=order) as nodes:
        assert [point.samples for point in nodes.progress()][-1] == 0
        assert "node 0 wrote 1 line" in nodes.silence()


BUSY = "this machine is busy: 16 processes want to run on its 2 processors (load average)"


def test_a_busy_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.busy.usable_cpus", lambda: (0, 1))
    monkeypatch.setattr("os.getloadavg", lambda: (16.2, 3.0, 1.0))
    assert busy_text() == BUSY
    assert "busy" not in said(tmp_path, lambda _folder: None, ProgressRule()), "nodes elsewhere do not mind"
    monkeypatch.setattr(FakeEngine, "shares_this_machine", True, raising=False)
    assert said(tmp_path, lambda _folder: None, ProgressRule()).endswith(f"; {BUSY}")
    assert "busy" not in said(tmp_path, log("done", code=0), ProgressRule()), "a job that ended was not held up"
    monkeypatch.setattr("os.getloadavg", lambda: (2.9, 16.0, 16.0))
    assert busy_text() == ""
    assert "busy" not in said(tmp_path, lambda _folder: None, ProgressRule())
    monkeypatch.delattr("os.getloadavg")
    assert busy_text() == ""


@pytest.mark.parametrize("load", [16.0, 0.1])
def test_check_and_dry_runs_say_that_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], load: float
) -> None:
    monkeypatch.setattr("mlcd.clouds.busy.usable_cpus", lambda: (0, 1))
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    job = "name: own\nresources: {infra: local}\nrun: 'true'\njob: {samples: 10, batch: 1}\ngoal: {minimize: time}\n"
    Path("own.yaml").write_text(job)
    model = "name: m\nmodel: x\nserver: {run: 'true $N $PORT'}\nknobs: {N: [1]}\ngoal: {maximize: tokens per dollar}\n"
    Path("llm.yaml").write_text(model)
    for command in (["check"], ["train", "own.yaml", "--dry-run"], ["serve", "llm.yaml", "--dry-run"]):
        run(command)
        said = " ".join("".join(capsys.readouterr()).split())
        assert (BUSY in said) is (load > 3), command
