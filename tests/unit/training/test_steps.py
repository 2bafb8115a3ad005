"""mlcd.steps and mlcd.checkpoint: counting, reporting, stopping, continuing; with folders and files of a real job."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd.errors import BadInput
from mlcd.training import checkpoints
from mlcd.training.training_progress import current_progress
from mlcd.training.worker_env import WorkerEnv

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "TF_CONFIG")


class Job:
    """The variables and the folder of a job; `restart` gives the state of a new process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.env = folder, monkeypatch
        self.checkpoints = folder / "checkpoint"
        monkeypatch.setenv("MLCD_PROGRESS_FILE", str(folder / "progress.jsonl"))
        monkeypatch.setenv("MLCD_STOP_FILE", str(folder / "stop"))
        monkeypatch.setenv("MLCD_CHECKPOINT_DIR", str(self.checkpoints))
        monkeypatch.setenv("MLCD_BATCH", "10")

    def restart(self) -> None:
        current_progress.cache_clear()

    def lines(self) -> list[dict[str, Any]]:
        file = self.folder / "progress.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def values(self, key: str) -> list[Any]:
        return [line[key] for line in self.lines() if key in line]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*VARIABLES, *(name for name in os.environ if name.startswith("MLCD_"))]:
        monkeypatch.delenv(name, raising=False)
    # A stopped process is ended after a while; here that process would be pytest.
    monkeypatch.setattr("mlcd.training.training_progress._exit_after_cleanup", lambda: None)
    current_progress.cache_clear()
    yield
    current_progress.cache_clear()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time advances only when the test advances it."""
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def go_on(seconds: float) -> None:
        now[0] += seconds

    return go_on


class Weights:
    """The state of a training: one number."""

    def __init__(self) -> None:
        self.value = 0
        self.saves = 0

    def save(self, folder: Path) -> None:
        self.saves += 1
        (folder / "weights").write_text(str(self.value))

    def load(self, folder: Path) -> None:
        self.value = int((folder / "weights").read_text())

    def restore(self) -> int:
        return mlcd.checkpoint(save=self.save, load=self.load)


class Loader:
    """Five batches, with a sampler that records the epoch."""

    def __init__(self) -> None:
        self.sampler = self
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


# ---- outside mlcd


def test_by_hand_it_only_iterates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = Weights()
    assert weights.restore() == 0
    assert list(mlcd.steps("abc")) == ["a", "b", "c"]
    assert weights.saves == 0
    assert list(tmp_path.iterdir()) == []


def test_by_hand_the_total_counts_too() -> None:
    assert list(mlcd.steps([1, 2], batch_size=10, total=45)) == [1, 2, 1, 2, 1]


def test_import_is_light() -> None:
    code = (
        "import sys, mlcd; list(mlcd.steps([1])); mlcd.checkpoint; mlcd.share_of_batch; "
        "print([name for name in ('numpy', 'scipy', 'yaml', 'click', 'torch', 'mlcd.api') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- counting


def test_one_pass_counts_the_global_batch_per_step(job: Job) -> None:
    assert list(mlcd.steps([1, 2, 3], batch_size=192)) == [1, 2, 3]
    assert current_progress().samples == 3 * 192
    assert job.values("samples")[0] == 0


def test_a_step_counts_when_it_is_done(job: Job) -> None:
    loop = mlcd.steps([1, 2, 3])
    next(loop)
    assert current_progress().samples == 0
    next(loop)
    assert current_progress().samples == 10


def test_a_scripts_own_epochs_are_empty_once_the_work_is_done(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "70.0")
    given = [list(mlcd.steps(range(3))) for _ in range(4)]
    assert given == [[0, 1, 2], [0, 1, 2], [0], []]
    assert job.values("samples")[-1] == 70


def test_a_total_repeats_the_loader_and_sets_the_epoch(job: Job) -> None:
    loader = Loader()
    assert len(list(mlcd.steps(loader, total=120))) == 12
    assert loader.epochs == [0, 1, 2]
    assert job.lines()[0]["total"] == 120
    assert job.values("samples")[-1] == 120


def test_without_a_total_the_script_sets_the_epoch(job: Job) -> None:
    loader = Loader()
    list(mlcd.steps(loader))
    assert loader.epochs == []


# ---- epochs


def nested(job: Job, weights: Weights, *, stop_at: int | None = None, loader: Any = None) -> list[tuple[int, int]]:
    """A script with a loop over epochs around its steps: (epoch, step in it); mlcd asks it to stop after a step."""
    job.restart()
    weights.restore()
    seen: list[tuple[int, int]] = []
    for epoch in mlcd.epochs(3):
        for at, _ in enumerate(mlcd.steps(Loader() if loader is None else loader)):
            weights.value += 1
            seen.append((epoch, at))
            if len(seen) == stop_at:
                (job.folder / "stop").touch()
    return seen


@pytest.mark.parametrize("stop_at", [1, 4, 5, 6, 10, 14])
def test_epochs_are_counted_right_after_a_checkpoint(job: Job, stop_at: int) -> None:
    job.env.setenv("MLCD_SAMPLES", "150")
    whole = [(epoch, at) for epoch in range(3) for at in range(5)]
    assert nested(job, Weights()) == whole
    for file in job.checkpoints.iterdir():
        shutil.rmtree(file)
    weights = Weights()
    with pytest.raises(SystemExit):
        nested(job, weights, stop_at=stop_at)
    (job.folder / "stop").unlink()
    rest = nested(job, weights)
    assert [epoch for epoch, _ in rest] == [epoch for epoch, _ in whole[stop_at:]]
    assert weights.value == 15


@pytest.mark.parametrize("stop_at", [4, 5, 14])
def test_epochs_tell_the_work_where_the_job_file_does_not(job: Job, stop_at: int) -> None:
    weights = Weights()
    with pytest.raises(SystemExit):
        nested(job, weights, stop_at=stop_at)
    (job.folder / "stop").unlink()
    nested(job, weights)
    assert job.values("total") == [150, 150]
    assert job.values("samples")[-1] == 150
    assert job.values("checkpoint")[-1] == 150  # saved at the end, as where the samples are known
    assert weights.value == 15


def test_epochs_do_not_tell_the_work_where_it_is_known_or_cannot_be(job: Job) -> None:
    nested(job, Weights(), loader=_Stream())
    job.env.setenv("MLCD_SAMPLES", "150")
    nested(job, Weights())
    assert job.values("total") == []


def test_epochs_of_a_loader_without_length_continue_in_their_epoch(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "150")
    weights = Weights()
    with pytest.raises(SystemExit):
        nested(job, weights, stop_at=7, loader=_Stream())
    (job.folder / "stop").unlink()
    assert {epoch for epoch, _ in nested(job, weights, loader=_Stream())} == {1, 2}


def test_an_epoch_of_the_script_is_the_epoch_of_the_sampler(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "150")
    loader = Loader()
    nested(job, Weights(), loader=loader)
    assert loader.epochs == [0, 1, 2]


def test_epochs_may_have_numbers_of_their_own_and_end_with_the_target(job: Job) -> None:
    job.env.setenv("MLCD_TARGET", json.dumps({"metric": "loss", "value": 0.1, "higher": False}))
    seen = []
    for epoch in mlcd.epochs(range(1, 9)):
        seen.append(epoch)
        for _ in mlcd.steps(Loader()):
            mlcd.score(loss=0.5 if epoch < 3 else 0.05)
    assert seen == [1, 2, 3]


def test_epochs_that_are_done_are_not_repeated(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "160")  # more than three passes are: the job file says a little too much
    weights = Weights()
    nested(job, weights)
    current_progress().save()
    assert nested(job, weights) == []


def test_a_checkpoint_without_an_epoch_is_placed_by_its_samples(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "150")
    weights = Weights()
    job.restart()
    weights.restore()
    for _ in mlcd.steps(range(7), total=70):
        weights.value += 1
    rest = nested(job, weights)
    assert [epoch for epoch, _ in rest] == [1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("wrong", ["3", 2.5, None, True])
def test_epochs_are_a_number_or_a_range(wrong: Any) -> None:
    with pytest.raises(BadInput, match=r"mlcd\.epochs: epochs"):
        mlcd.epochs(wrong)


def test_own_epochs_that_start_again_after_a_checkpoint_are_warned_about_once(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "150")
    weights = Weights()
    weights.restore()
    for _ in mlcd.steps(range(3), total=30):
        weights.value += 1
    assert job.values("warning") == []
    job.restart()
    weights.restore()
    for _ in range(3):
        for _ in mlcd.steps(Loader()):
            pass
    (warning,) = job.values("warning")
    assert "20% of the training" in warning
    assert "for epoch in mlcd.epochs(3)" not in warning  # it does not know how many there are
    assert "mlcd.epochs(" in warning


def test_by_hand_epochs_are_a_range() -> None:
    assert list(mlcd.epochs(3)) == [0, 1, 2]


class _Stream:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


@pytest.mark.parametrize("loader", [[], iter([1, 2])])
def test_an_empty_loader_does_not_loop_forever(job: Job, loader: Any) -> None:
    with pytest.raises(ValueError, match="the loader gave no batch"):
        list(mlcd.steps(loader, total=100))


def test_a_loader_of_unknown_length(job: Job) -> None:
    class Stream(Loader):
        def __len__(self) -> int:
            raise TypeError("a stream has no length")

    assert len(list(mlcd.steps(Stream(), total=70))) == 7


def test_the_batch_must_be_known_in_a_job(job: Job) -> None:
    job.env.delenv("MLCD_BATCH")
    with pytest.raises(ValueError, match="give batch_size="):
        mlcd.steps([1])
    with pytest.raises(ValueError, match="at least 1"):
        mlcd.steps([1], batch_size=0)


def test_a_malformed_variable_is_named(job: Job) -> None:
    job.env.setenv("MLCD_SAMPLES", "many")
    with pytest.raises(ValueError, match="MLCD_SAMPLES: must be a number"):
        mlcd.steps([1])


@pytest.mark.parametrize(("batch", "workers"), [(192, 5), (7, 7), (10, 3), (100, 1)])
def test_shares_add_up_to_the_batch(monkeypatch: pytest.MonkeyPatch, batch: int, workers: int) -> None:
    shares = []
    for rank in range(workers):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(workers))
        current_progress.cache_clear()
        shares.append(mlcd.share_of_batch(batch))
    assert sum(shares) == batch
    assert max(shares) - min(shares) <= 1


def test_a_batch_smaller_than_the_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="cannot be shared by 4 workers"):
        mlcd.share_of_batch(3)
    with pytest.raises(ValueError, match="give batch_size="):
        mlcd.share_of_batch()


# ---- reporting


def test_lines_come_at_most_every_tenth_of_a_second_and_the_last_always(
    job: Job, clock: Callable[[float], None]
) -> None:
    for _ in mlcd.steps(range(100), total=1000):
        clock(0.025)
    counts = job.values("samples")
    assert counts[0] == 0
    assert counts[-1] == 1000
    assert 20 <= len(counts) <= 27
    assert job.values("time") == sorted(job.values("time"))


def test_unreported_progress_is_reported_when_the_process_ends(job: Job) -> None:
    code = "import mlcd\nfor i in mlcd.steps(range(7)): pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert job.values("samples")[-1] == 70


@pytest.mark.parametrize(
    ("variables", "head"),
    [
        ({}, True),
        ({"RANK": "0", "MLCD_RANK": "1"}, True),
        ({"RANK": "1", "MLCD_RANK": "0"}, False),
        ({"MLCD_RANK": "1"}, False),
        ({"SLURM_PROCID": "2"}, False),
        ({"MLCD_ROLE": "ps"}, False),
        ({"MLCD_ROLE": "chief"}, True),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": ["a:2"]}, "task": {"type": "worker"}}'}, False),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": ["a:2"]}, "task": {"type": "chief"}}'}, True),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:2"]}, "task": {"type": "worker"}}'}, True),
    ],
)
def test_only_one_process_of_a_job_reports(variables: dict[str, str], head: bool) -> None:
    assert WorkerEnv.read(variables).head is head


def test_other_ranks_train_and_stay_silent(job: Job) -> None:
    job.env.setenv("RANK", "1")
    weights = Weights()
    weights.restore()
    (job.folder / "stop").touch()
    assert len(list(mlcd.steps(range(5), total=100))) == 10
    assert job.lines() == []
    assert weights.saves == 0


def test_a_full_disk_under_the_progress_file_does_not_end_the_training(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    job.env.setenv("MLCD_PROGRESS_FILE", "/dev/full")
    assert len(list(mlcd.steps(range(5), total=200))) == 20
    assert capsys.readouterr().err.count("cannot report progress") == 1


# ---- checkpoints


def stopped_after(job: Job, weights: Weights, count: int) -> None:
    """Train until this many steps are done and mlcd asks the job to stop."""
    for number, _ in enumerate(mlcd.steps(Loader(), total=200), 1):
        weights.value += 1
        if number == count:
            (job.folder / "stop").touch()


def test_a_training_continues_where_the_last_one_stopped(job: Job) -> None:
    weights = Weights()
    assert weights.restore() == 0
    with pytest.raises(SystemExit) as ended:
        stopped_after(job, weights, 12)
    assert ended.value.code == 0
    assert job.lines()[-1]["checkpoint"] == 120
    job.restart()
    (job.folder / "stop").unlink()

    again, loader = Weights(), Loader()
    assert again.restore() == 120
    assert again.value == 12
    assert len(list(mlcd.steps(loader, total=200))) == 8
    assert loader.epochs == [2, 3], "it does not see the first epochs' order again"
    assert job.values("samples")[-1] == 200
    job.restart()

    assert Weights().restore() == 200
    assert list(mlcd.steps(Loader(), total=200)) == []


def test_it_saves_periodically_and_keeps_only_the_newest(job: Job, clock: Callable[[float], None]) -> None:
    job.env.setenv("MLCD_CHECKPOINT_SECONDS", "30")
    weights = Weights()
    weights.restore()
    for _ in mlcd.steps(range(10), total=100):
        clock(7)
    assert job.values("checkpoint") == [50, 100]
    assert [path.name for path in job.checkpoints.iterdir()] == ["step-100"]
    assert json.loads((job.checkpoints / "step-100" / "mlcd.json").read_text()) == {"samples": 100}


def test_without_a_checkpoint_folder_nothing_is_saved(job: Job) -> None:
    job.env.delenv("MLCD_CHECKPOINT_DIR")
    weights = Weights()
    weights.restore()
    (job.folder / "stop").touch()
    with pytest.raises(SystemExit):
        list(mlcd.steps(range(5)))
    assert weights.saves == 0
    assert job.values("checkpoint") == []
    assert job.values("samples")[-1] == 10


def test_after_a_failed_save_the_old_checkpoint_stays_and_the_training_continues(
    job: Job, clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    weights = Weights()
    full = [False]

    def save(folder: Path) -> None:
        weights.save(folder)
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")

    mlcd.checkpoint(save=save, load=weights.load)
    for number, _ in enumerate(mlcd.steps(range(10), total=100)):
        full[0] = number >= 4
        clock(20)
    assert job.values("checkpoint") == [30]
    assert all("No space left" in warning for warning in job.values("warning"))
    assert job.values("warning")
    assert [path.name for path in job.checkpoints.iterdir()] == ["step-30"]
    assert "No space left" in capsys.readouterr().err


def test_a_bug_in_save_is_not_hidden(job: Job) -> None:
    def save(folder: Path) -> None:
        raise KeyError(folder.name)

    mlcd.checkpoint(save=save, load=save)
    with pytest.raises(KeyError):
        list(mlcd.steps(range(5), total=50))
    assert list(job.checkpoints.iterdir()) == []


def test_a_full_disk_does_not_end_the_training(job: Job) -> None:
    """No file may grow beyond 20 kB here, so that the system itself refuses the write."""
    code = """
import resource, mlcd
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
size = 1000
def save(folder): (folder / "weights").write_bytes(b"x" * size)
mlcd.checkpoint(save=save, load=print)
for step in mlcd.steps(range(5), total=100):
    size += 10_000 * (mlcd.training.training_progress.current_progress().samples > 40)
"""
    job.env.setenv("MLCD_CHECKPOINT_SECONDS", "1e-9")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert job.values("samples")[-1] == 100
    kept = job.values("checkpoint")[-1]
    assert [path.name for path in job.checkpoints.iterdir()] == [f"step-{kept}"]
    assert kept < 100
    assert "could not be saved" in job.values("warning")[-1]


def test_incomplete_checkpoints_are_ignored(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, 30, lambda folder: (folder / "weights").touch())
    (tmp_path / ".step-40.partial").mkdir()
    (tmp_path / "step-50").mkdir()  # without its mark: copied incompletely
    (tmp_path / "step-x").mkdir()
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.samples == 30
    checkpoints.write(tmp_path, 60, lambda folder: (folder / "weights").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-50", "step-60", "step-x"]


def test_there_may_be_no_checkpoint_yet(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None
    assert checkpoints.newest(tmp_path / "nowhere") is None


# ---- the end


def test_a_stopped_process_ends_although_its_cleanup_hangs(job: Job) -> None:
    """Like a worker that waits for the others in its process group."""
    code = """
import time, mlcd, mlcd.training.training_progress
mlcd.training.training_progress.CLEANUP_SECONDS = 0.2
try:
    for step in mlcd.steps(range(1000)): pass
finally:
    while True: time.sleep(1)
"""
    (job.folder / "stop").touch()
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
    assert job.values("samples")[-1] == 10


def test_the_page_on_progress_runs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "progress.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 6
    (tmp_path / "page.py").write_text("\n".join(blocks))
    subprocess.run([sys.executable, "page.py"], cwd=tmp_path, check=True)
