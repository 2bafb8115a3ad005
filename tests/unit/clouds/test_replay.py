import math
import os
from itertools import islice
from pathlib import Path

import pytest

from mlcd.clouds.provider import LeaseFailed, Order, Purpose
from mlcd.clouds.replay import ReplayCloud, ReplayInstance, ReplayWorkload, load_workloads
from mlcd.errors import BadInput
from mlcd.jobs.resolved_job import replay_space
from mlcd.space import Config
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd

D = Config.deployment
TABLES = Path(os.environ.get("MLCD_TABLES") or Path(__file__).resolve().parents[4] / "shared" / "measured")

INSTANCES = "instance,vcpus,memory_gib,usd_per_hour\na,2,8,0.1\nb,4,16,0.2\n"
JOB = (
    "instance,nodes,seconds,status\na,4,100,ok\na,4,300,ok\na,2,500,failed\na,2,400,ok\nb,2,50,failed\nb,2,60,failed\n"
)


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in {"instances": INSTANCES, **files}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def test_repeats_are_averaged_and_a_row_fails_when_all_do(tmp_path: Path) -> None:
    workload = load_workloads(folder(tmp_path, job=JOB))["job"]
    assert workload.seconds == {D("a", 2): 400.0, D("a", 4): 200.0, D("b", 2): None}
    assert list(workload.seconds) == [D("a", 2), D("a", 4), D("b", 2)]
    assert workload.fastest_seconds == 200
    assert workload.instances["b"] == ReplayInstance(name="b", usd_per_hour=Usd.of("0.2"), vcpus=4.0, memory_gib=16.0)


def test_a_job_is_scaled_to_hours(tmp_path: Path) -> None:
    workload = load_workloads(folder(tmp_path, job=JOB))["job"].scaled(2)
    assert workload.seconds == {D("a", 2): pytest.approx(14_400), D("a", 4): pytest.approx(7200), D("b", 2): None}


def test_rows_without_a_status_succeeded(tmp_path: Path) -> None:
    workload = load_workloads(folder(tmp_path, job="instance,nodes,seconds\na,1,10\n"))["job"]
    assert workload.seconds == {D("a", 1): 10.0}


def test_a_family_is_a_workload_for_each_setting_at_the_most_samples(tmp_path: Path) -> None:
    table = (
        "instance,nodes,batch,learning_rate,mode,samples,seconds\n"
        "a,1,16,0.1,sync,100,1\na,1,16,0.1,sync,900,9\na,2,16,0.1,sync,900,5\n"
        "a,1,16,0.1,async,900,8\na,1,64,0.1,sync,900,7\n"
    )
    workloads = load_workloads(folder(tmp_path, cnn=table))
    assert list(workloads) == ["cnn-b16-lr0.1-sync", "cnn-b16-lr0.1-async", "cnn-b64-lr0.1-sync"]
    assert workloads["cnn-b16-lr0.1-sync"].seconds == {D("a", 1): 9.0, D("a", 2): 5.0}


def test_the_cloud_answers_with_the_row(tmp_path: Path) -> None:
    cloud = ReplayCloud(load_workloads(folder(tmp_path, job=JOB))["job"], folder="made")
    assert (cloud.name, cloud.simulated, cloud.noise) == ("replay/made", True, 0.0)
    assert cloud.true_samples_per_second(D("a", 4)) == pytest.approx(1 / 200)
    assert cloud.true_samples_per_second(D("b", 2)) is None
    with cloud.lease(Order(config=D("a", 4), attempt=1, purpose=Purpose.RUN)) as lease:
        points = list(islice(lease.progress(), 200))
    assert points[0].seconds == points[0].samples == 0
    assert all(p.samples == pytest.approx(p.seconds / 200) for p in points)
    with (
        cloud.lease(Order(config=D("b", 2), attempt=1, purpose=Purpose.TRIAL)) as lease,
        pytest.raises(LeaseFailed) as caught,
    ):
        list(lease.progress())
    assert caught.value.kind is FailureKind.ERROR
    assert caught.value.seconds > 0
    assert caught.value.billed


def test_features_are_logarithms_of_what_is_known() -> None:
    full = ReplayInstance(name="x", usd_per_hour=Usd.of(2), vcpus=4.0, memory_gib=8.0)
    assert full.features == (2.0, 3.0, 1.0)
    assert ReplayInstance(name="x", usd_per_hour=Usd.of("0.5")).features == (-1.0,)


def test_the_space_has_sizes_only_where_all_are_known(tmp_path: Path) -> None:
    workload = load_workloads(folder(tmp_path, job=JOB))["job"]
    assert replay_space(workload.instances, tuple(workload.seconds)).encoding.totals.shape == (3, 1)
    (tmp_path / "instances.csv").write_text("instance,usd_per_hour\na,0.1\nb,0.2\n")
    workload = load_workloads(tmp_path)["job"]
    assert replay_space(workload.instances, tuple(workload.seconds)).encoding.totals.shape == (3, 0)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no workload"),
        ({"job": "instance,nodes,seconds\n"}, "job.csv: no rows"),
        ({"job": "instance,nodes,seconds\na,1,fast\n"}, r"job.csv:2: seconds: not a number \(got 'fast'\)"),
        ({"job": "instance,nodes,seconds\na,1,5\na,2,-5\n"}, r"job.csv:3: seconds: must be positive"),
        ({"job": "instance,nodes,seconds\na,1,inf\n"}, "seconds: must be positive and finite"),
        ({"job": "instance,nodes,seconds\na,1.5,5\n"}, "job.csv:2: nodes: must be a whole number"),
        ({"job": "instance,seconds\na,5\n"}, "job.csv:2: nodes: column is missing"),
        ({"job": "instance,nodes,seconds\nzz,1,5\n"}, "instance 'zz' is not in instances.csv"),
        ({"job": "instance,nodes,seconds,status\na,1,5,failed\n"}, "workload 'job' has no row that finished"),
        ({"instances": "instance,usd_per_hour\na,0\n", "job": JOB}, "instances.csv:2: usd_per_hour: must be positive"),
        ({"instances": INSTANCES + "a,2,8,0.1\n", "job": JOB}, "instances.csv:4: instance: 'a' is listed twice"),
        ({"instances": "usd_per_hour\n1\n", "job": JOB}, "instances.csv:2: instance: is missing"),
        ({"instances": INSTANCES + "c,,8,0.1\n", "job": JOB}, "instances.csv: vcpus: is missing for 'c'"),
        ({"job": "instance,nodes,learning_rate,samples,seconds\na,1,1,1,5\n"}, "job.csv:2: batch: column is missing"),
        ({"instances": "instance\na\n", "job": JOB}, "instances.csv:2: usd_per_hour: column is missing"),
    ],
)
def test_bad_tables_name_file_line_and_field(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_workloads(folder(tmp_path, **files))


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder of measured tables"):
        load_workloads(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"instances.csv: no such file"):
        load_workloads(tmp_path)
    (folder(tmp_path) / "job.csv").write_bytes(b"instance,nodes\n\xff\xfe\x00,1\n")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        load_workloads(tmp_path)


def tables(name: str) -> dict[str, ReplayWorkload]:
    if not (TABLES / name).is_dir():
        pytest.skip(f"{TABLES / name} is not here; set MLCD_TABLES to the folder of measured tables")
    return load_workloads(TABLES / name)


def test_scout() -> None:
    workloads = tables("scout")
    assert len(workloads) == 18
    assert {len(w.seconds) for w in workloads.values()} == {69}
    failures = sum(s is None for w in workloads.values() for s in w.seconds.values())
    assert failures == 75
    assert min(c.nodes for w in workloads.values() for c in w.seconds) == 4


def test_multicloud() -> None:
    workloads = tables("multicloud")
    assert len(workloads) == 28
    assert {c.nodes for w in workloads.values() for c in w.seconds} <= {2, 3, 4, 5}


def test_trimtuner() -> None:
    workloads = tables("trimtuner")
    assert len(workloads) == 24
    assert {len(w.seconds) for w in workloads.values()} == {24}
    assert all(s is not None for w in workloads.values() for s in w.seconds.values())


@pytest.mark.parametrize("name", ["scout", "multicloud", "trimtuner"])
def test_measured_tables_are_sane(name: str) -> None:
    for workload in tables(name).values():
        space = replay_space(workload.instances, tuple(workload.seconds))
        assert len(space) == len(workload.seconds)
        assert all(s is None or (s > 0 and math.isfinite(s)) for s in workload.seconds.values())
        assert workload.scaled(6).fastest_seconds == pytest.approx(6 * 3600)
