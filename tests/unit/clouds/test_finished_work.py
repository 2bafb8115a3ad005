"""A trial's outputs are handed over only if its job did all of the work and wrote them."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.clouds.test_job_files import ONE, FakeEngine, FakeNodes

from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.provider import Order, Purpose, Settled
from mlcd.errors import ProviderError
from mlcd.spec.batches import TargetSpec

Act = Callable[[Path], object]
TARGET = TargetSpec(metric="accuracy", value=0.9)


def job(*outputs: str, samples: int = 100, text: str = "new", metrics: dict[str, float] | None = None) -> Act:
    """Writes its progress and its outputs, and ends successfully."""

    def act(folder: Path) -> None:
        row = {"time": time.time(), "samples": samples, **({"metrics": metrics} if metrics else {})}
        (folder / "progress.jsonl").write_text(json.dumps(row) + "\n")
        for name in outputs:
            path = folder / "workdir" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "node-0" / "exit.json").write_text('{"code": 0}')

    return act


def cloud_of(home: Path, act: Act, **given: Any) -> JobCloud:
    made: dict[str, Any] = {"run": "true", "outputs": ("model",), "samples": 100.0, **given}
    return JobCloud(FakeEngine(act), RealJob(**made), home=home)


def trial(cloud: JobCloud) -> Settled:
    with JobLease(cloud, Order(config=ONE, purpose=Purpose.TRIAL, seconds=60.0, run_id="run")) as lease:
        return lease.finish(list(lease.progress())[-1])


def taken(cloud: JobCloud) -> str:
    path = cloud.workspace("run").outputs / "model"
    return path.read_text() if path.is_file() else ""


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """The user's folder, with the model of an earlier training."""
    folder = tmp_path / "mine"
    (folder / "runs").mkdir(parents=True)
    for name in ("model", "runs/last"):
        (folder / name).write_text("old")
        os.utime(folder / name, (1e9, 1e9))
    return folder


def test_an_output_that_came_with_the_users_folder_is_not_the_trials(tmp_path: Path, workdir: Path) -> None:
    for given in ({}, {"samples": None}):
        cloud = cloud_of(tmp_path / "home", job(), workdir=workdir, **given)
        assert not trial(cloud).is_finished
        assert taken(cloud) == ""
    assert not trial(cloud_of(tmp_path / "home", job(), workdir=workdir, outputs=("runs",))).is_finished


def test_one_that_the_job_wrote_anew_is(tmp_path: Path, workdir: Path) -> None:
    cloud = cloud_of(tmp_path / "home", job("model"), workdir=workdir)
    assert trial(cloud).is_finished
    assert taken(cloud) == "new"
    assert trial(cloud_of(tmp_path / "home", job("runs/new"), workdir=workdir, outputs=("runs",))).is_finished
    assert trial(cloud_of(tmp_path / "home", job("model"))).is_finished


@pytest.mark.parametrize(
    ("metrics", "is_finished"), [({}, False), ({"accuracy": 0.5}, False), ({"accuracy": 0.9}, True)]
)
def test_with_a_target_it_is_finished_only_if_that_is_met(
    tmp_path: Path, metrics: dict[str, float], is_finished: bool
) -> None:
    cloud = cloud_of(tmp_path, job("model", metrics=metrics), target=TARGET)
    assert trial(cloud).is_finished is is_finished
    assert taken(cloud) == ("new" if is_finished else "")


def test_a_later_trial_neither_replaces_nor_deletes_what_another_one_left(tmp_path: Path) -> None:
    cloud = cloud_of(tmp_path / "home", job("model"))
    assert trial(cloud).is_finished
    cloud.engine.act = job("model", text="other")  # type: ignore[attr-defined]
    assert not trial(cloud).is_finished

    def leads_out(folder: Path) -> None:
        job()(folder)
        (folder / "workdir" / "model").symlink_to(tmp_path / "secret")

    cloud.engine.act = leads_out  # type: ignore[attr-defined]
    assert not trial(cloud).is_finished
    assert taken(cloud) == "new"


def test_a_job_that_has_reported_all_of_its_work_says_so(tmp_path: Path) -> None:
    def half(folder: Path) -> None:
        (folder / "progress.jsonl").write_text(json.dumps({"time": time.time(), "samples": 50, "total": 100}) + "\n")
        (folder / "node-0" / "exit.json").write_text('{"code": 0}')

    for act, given, is_done in (
        (job(), {}, True),
        (half, {}, False),
        (half, {"samples": None}, False),  # the script's own total counts
        (job(), {"samples": None}, False),  # nobody knows how much work there is
        (job(metrics={"accuracy": 0.95}), {"target": TARGET}, True),
        (job(metrics={"accuracy": 0.5}), {"target": TARGET}, False),
    ):
        cloud = cloud_of(tmp_path / "home", act, **given)
        with JobLease(cloud, Order(config=ONE, purpose=Purpose.TRIAL, seconds=60.0, run_id="run")) as lease:
            list(lease.progress())
            assert lease.has_done_all() is is_done


def test_a_job_that_ends_while_the_trial_ends_is_finished(tmp_path: Path) -> None:
    """Its results come while mlcd waits for it to save: the trial did all of the work."""
    whole = job("model")

    def slow(folder: Path) -> None:
        whole(folder)
        (folder / "node-0" / "exit.json").rename(folder / "node-0" / "later.json")

    cloud = cloud_of(tmp_path / "home", slow, checkpoints=True)
    with JobLease(cloud, Order(config=ONE, purpose=Purpose.TRIAL, seconds=60.0, run_id="run")) as lease:
        point = next(point for point in lease.progress() if point.samples >= 100)
        ended = lease.folder / "node-0" / "later.json"
        threading.Timer(0.5, lambda: ended.rename(ended.with_name("exit.json"))).start()
        assert lease.finish(point).is_finished
    assert taken(cloud) == "new"


def training(cloud: JobCloud) -> Settled:
    with JobLease(cloud, Order(config=ONE, purpose=Purpose.RUN, seconds=60.0, run_id="run")) as lease:
        return lease.finish(list(lease.progress())[-1])


@pytest.mark.parametrize("continues", [False, True])
def test_what_an_earlier_attempt_left_counts_only_where_the_training_continued(tmp_path: Path, continues: bool) -> None:
    cloud = cloud_of(tmp_path, job("model"), checkpoints=True)
    assert training(cloud).missing_outputs == ()
    if continues:
        checkpoint = cloud.workspace("run").checkpoint / "step-50"
        checkpoint.mkdir(parents=True)
        (checkpoint / "mlcd.json").write_text('{"samples": 50}')
    cloud.engine.act = job()  # type: ignore[attr-defined]
    settled = training(cloud)
    assert settled.missing_outputs == (() if continues else ("model",))
    assert bool(settled.kept_folder) is not continues
    cloud.engine.act = job("model", text="other")  # type: ignore[attr-defined]
    assert (training(cloud).missing_outputs, taken(cloud)) == ((), "other")


@pytest.mark.parametrize("error", [ProviderError("rsync did not end in 600 s"), OSError(28, "No space left on device")])
def test_a_training_without_its_output_ends_also_where_not_everything_can_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked: list[list[str]] = []

    def fetch(_nodes: object, paths: list[str]) -> None:
        asked.append(paths)
        if paths == ["workdir"]:
            raise error

    monkeypatch.setattr(FakeNodes, "fetch", fetch, raising=False)
    with JobLease(
        cloud_of(tmp_path, job()), Order(config=ONE, purpose=Purpose.RUN, seconds=60.0, run_id="run")
    ) as lease:
        settled = lease.finish(list(lease.progress())[-1])
    assert asked == [["workdir/model"], ["workdir"]]
    assert settled.missing_outputs == ("model",)
    assert [reading.warning for reading in lease.heard] == [f"{error}; not everything that the node wrote is kept"]
