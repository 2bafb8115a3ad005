"""What a cloud's monitoring says of nodes: read with limits, and handed on by the lease."""

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clouds.test_job_files import FakeEngine, FakeNodes, write

from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.nodes import NodeOrder
from mlcd.clouds.provider import Order, Settled
from mlcd.clouds.skypilot import cloudwatch
from mlcd.clouds.skypilot.client import SkyError
from mlcd.clouds.skypilot.metrics_file import FILE, read_node_metrics
from mlcd.clouds.skypilot.nodes import SkyNodes
from mlcd.clouds.skypilot.task import SkySettings
from mlcd.space import Config
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.untrusted import Malformed

TWO_NODES = {
    "region": "us-east-1",
    "instances": {
        "i-1": {
            "CPUUtilization": [[0, 20.0], [60, 60.0]],
            "NetworkIn": [[0, 1e6], [60, 3e6]],
            "NetworkOut": [[0, 500]],
        },
        "i-2": {"CPUUtilization": [[0, 90.0]], "NetworkIn": [[0, 2e6]], "NetworkOut": []},
        "i-3": {"CPUUtilization": [], "NetworkIn": [], "NetworkOut": []},
    },
}
SUMMARY = NodeMetrics(source="CloudWatch", nodes=2, cpu_percent=65.0, received_bytes=3e6, sent_bytes=500.0)


def test_nodes_are_weighed_alike_and_one_without_data_is_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(TWO_NODES))
    assert read_node_metrics(tmp_path) == SUMMARY


@pytest.mark.parametrize(
    "data",
    [None, {"missing": "AccessDenied"}, {"instances": {}}, {"instances": {"i-1": {"CPUUtilization": []}}}],
    ids=["no file", "refused", "no instance", "late"],
)
def test_no_data_is_no_metrics(tmp_path: Path, data: object) -> None:
    if data is not None:
        (tmp_path / FILE).write_text(json.dumps(data))
    assert read_node_metrics(tmp_path) is None


def test_an_average_may_exceed_100_percent_by_rounding_only(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"instances": {"i": {"CPUUtilization": [[0, 100.0000001]]}}}')
    assert read_node_metrics(tmp_path) == NodeMetrics(source="CloudWatch", nodes=1, cpu_percent=100.0)


def point(value: str) -> Callable[[Path], object]:
    return write(FILE, f'{{"instances": {{"i": {{"CPUUtilization": [[0, {value}]]}}}}}}')


MALFORMED: dict[str, tuple[Callable[[Path], object], str]] = {
    "not JSON": (write(FILE, "{"), "is not JSON"),
    "a list": (write(FILE, "[]"), "should be a mapping"),
    "instances": (write(FILE, '{"instances": [1]}'), "should be a mapping"),
    "an instance": (write(FILE, '{"instances": {"i": 3}}'), "should be a mapping"),
    "points": (write(FILE, '{"instances": {"i": {"NetworkIn": 3}}}'), "should be a list"),
    "no pair": (write(FILE, '{"instances": {"i": {"NetworkIn": [3]}}}'), "pairs of seconds and value"),
    "NaN": (point("NaN"), "NaN"),
    "negative": (point("-1"), "between 0 and 100.5"),
    "beyond 100%": (point("101"), "between 0 and 100.5"),
    "text": (point('"50"'), "should be a number"),
    "too many points": (
        write(FILE, json.dumps({"instances": {"i": {"NetworkIn": [[0, 1]] * 10_001}}})),
        "at most 10,000",
    ),
    "too many nodes": (write(FILE, json.dumps({"instances": {str(n): {} for n in range(10_001)}})), "10,001 instances"),
    "a link": (lambda folder: (folder / FILE).symlink_to("/etc/hostname"), "regular file"),
    "a FIFO": (lambda folder: os.mkfifo(folder / FILE), "regular file"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_data_is_refused_and_the_file_named(tmp_path: Path, kind: str) -> None:
    act, problem = MALFORMED[kind]
    act(tmp_path)
    with pytest.raises(Malformed, match=problem) as refused:
        read_node_metrics(tmp_path)
    assert FILE in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": ""},
        {"source": "x" * 41},
        {"nodes": 0},
        {"cpu_percent": 100.1},
        {"cpu_percent": float("nan")},
        {"sent_bytes": -1.0},
        {"received_bytes": float("inf")},
        {"cpu_percent": None, "received_bytes": None, "sent_bytes": None},
    ],
)
def test_a_summary_cannot_be_built_wrong(wrong: dict[str, Any]) -> None:
    right = {"source": "CloudWatch", "nodes": 1, "cpu_percent": 1.0, "received_bytes": 1.0, "sent_bytes": 1.0}
    NodeMetrics(**right)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must|need|has"):
        NodeMetrics(**{**right, **wrong})


# ---- the lease


class MonitoredNodes(FakeNodes):
    """Nodes that the cloud watches; its file is there once they are released."""

    def release(self) -> None:
        super().release()
        self.engine.act(self.order.folder)

    def node_metrics(self) -> NodeMetrics | None:
        return read_node_metrics(self.order.folder)


class MonitoredEngine(FakeEngine):
    def start(self, order: NodeOrder) -> FakeNodes:
        return MonitoredNodes(self, order)


def settled(home: Path, engine: FakeEngine) -> tuple[Settled, list[str]]:
    """A trial's result, and what it warned of."""
    lease = JobLease(JobCloud(engine, RealJob(run="true"), home=home), Order(config=ONE, seconds=60.0, run_id="run"))
    with lease:
        result = lease.finish(next(iter(lease.progress())))
    return result, [reading.warning for reading in lease.heard]


ONE = Config.deployment("fake.1", 1)


def test_a_lease_reports_what_the_monitoring_measured(tmp_path: Path) -> None:
    act = write(FILE, json.dumps(TWO_NODES))
    result, warned = settled(tmp_path, MonitoredEngine(act))
    assert (result.node_metrics, warned) == (SUMMARY, [])
    assert settled(tmp_path, FakeEngine(act))[0].node_metrics is None  # these nodes are not monitored


def test_malformed_metrics_are_a_warning_and_the_trial_counts(tmp_path: Path) -> None:
    result, warned = settled(tmp_path, MonitoredEngine(write(FILE, "[]")))
    assert result.node_metrics is None
    (text,) = warned
    assert text.endswith(f"{FILE}: should be a mapping, is a list; the nodes' metrics are not taken")


# ---- SkyPilot


class AwsWorker:
    """Answers as SkyPilot does for a cluster on AWS."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def call(self, op: str, *, seconds: float, **given: object) -> object:
        if op == "poll":
            return {"state": "PENDING"}
        if op == "status":
            return [{"name": "mlcd-n", "state": "UP", "on_cloud": "mlcd-n-1", "region": "us-east-1"}]
        if op == "cloudwatch":
            assert (given["cluster_on_cloud"], given["region"]) == ("mlcd-n-1", "us-east-1")
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        assert op == "down"
        return True


@pytest.mark.parametrize(
    ("infra", "answer", "expected"),
    [("aws", TWO_NODES, SUMMARY), ("aws", SkyError(("ClientError",), "AccessDenied", ()), None), ("gcp", {}, None)],
    ids=["data", "refused", "another cloud"],
)
def test_nodes_on_aws_have_the_metrics_of_cloudwatch(
    infra: str, answer: object, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.nodes.POLL_SECONDS", 0.01)
    order = NodeOrder(lease_id="mlcd-n", instance="m5.large", count=1, seconds=60.0, folder=tmp_path)
    worker: Any = AwsWorker(answer)
    settings = SkySettings(infra=infra, outputs=())
    nodes = SkyNodes(worker, order, settings, cluster="mlcd-n", request="r", released=lambda: None)
    assert nodes.node_metrics() is None
    nodes.release()
    assert nodes.node_metrics() == expected
    assert (tmp_path / FILE).exists() == (infra == "aws")


@pytest.mark.parametrize(("hours", "period"), [(0.1, 60), (24, 60), (25, 120), (24 * 30, 1800)])
def test_a_long_lease_has_longer_periods_so_that_its_file_is_bounded(
    hours: float, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def pages(**given: Any) -> list[dict[str, Any]]:
        if "Filters" in given:
            return [{"Reservations": [{"Instances": [{"InstanceId": "i-1"}]}]}]
        asked.extend(given["MetricDataQueries"])
        at = datetime.fromtimestamp(60, UTC)
        return [{"MetricDataResults": [{"Id": q["Id"], "Timestamps": [at], "Values": [7]} for q in asked]}]

    client = SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=pages))
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=lambda *_, **__: client))
    found = cloudwatch.metrics(cluster_on_cloud="c", region="us-east-1", begin=0.0, end=hours * 3600)
    assert {query["MetricStat"]["Period"] for query in asked} == {found["period_seconds"]} == {period}
    assert hours * 3600 / period <= cloudwatch.MOST_POINTS
    assert found["instances"]["i-1"]["CPUUtilization"] == [[60.0, 7.0]]
