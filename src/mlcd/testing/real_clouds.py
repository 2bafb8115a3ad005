"""The contract of every real cloud: any NodeEngine, used through JobCloud as the profiler and the training use it.

To use it, subclass it, name the cloud and its configurations, and provide an `engine` fixture. No test depends on how
long something takes, only on the order of events.
"""

import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from mlcd.clouds import processes
from mlcd.clouds.job import JobCloud, JobLease, RealJob
from mlcd.clouds.nodes import NodeEngine, NodesState
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Purpose
from mlcd.clouds.workspace import Workspace
from mlcd.space import Config
from mlcd.spec.real import ProgressRule
from mlcd.trial.trial import FailureKind

WAIT_LIMIT_SECONDS = 300.0
"""Timeout for events that are certain to happen; no assertion depends on it."""

COUNT_STEPS = """
import json, os, time
from pathlib import Path
import mlcd

state = {"steps": 0}
done = mlcd.checkpoint(
    save=lambda folder: (folder / "state.json").write_text(json.dumps(state)),
    load=lambda folder: state.update(json.loads((folder / "state.json").read_text())),
)
print("continues from", done, "with", state["steps"], flush=True)
for _ in mlcd.steps(range(10**9), total=int(float(os.environ["MLCD_SAMPLES"]))):
    time.sleep(float(os.environ.get("STEP", "0.02")))
    state["steps"] += 1
if os.environ["MLCD_RANK"] == "0":
    Path("model.json").write_text(json.dumps(state))
    Path("figures").mkdir()
    Path("figures/loss.txt").write_text("0.1")
"""

PRINT_ENVIRONMENT = """
import json, os, time
from pathlib import Path

rank, nodes = int(os.environ["MLCD_RANK"]), int(os.environ["MLCD_NUM_NODES"])
print("ENV", json.dumps(dict(os.environ)), flush=True)
Path(f"ready-{rank}").touch()
while not all(Path(f"ready-{other}").exists() for other in range(nodes)):
    time.sleep(0.05)
"""

PRINT_SAMPLES = """
import os, sys, time
from pathlib import Path

if os.environ["MLCD_RANK"] == "0":
    for samples in range(0, 50, 10):
        print("samples:", samples, flush=True)
        time.sleep(0.2)
    give_up = time.monotonic() + 300
    while not Path("go-on").exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    print("samples:", 60, flush=True)
    time.sleep(0.5)
else:
    time.sleep(600)
"""

KILLED_DRIVER = """
import sys, time
from pathlib import Path
from mlcd.clouds.job import JobCloud, RealJob
from mlcd.clouds.provider import Order
from mlcd.space import Config

home = Path(sys.argv[1])
{engine}
cloud = JobCloud(engine, RealJob(run="echo up; sleep 600; sleep 600"), home=home)
with cloud.lease(Order(config=Config.deployment({instance!r}, {nodes}), run_id="killed", seconds=900)) as lease:
    for _ in lease.progress():
        logs = list(home.glob("work/killed/leases/*/node-*/log.txt"))
        if len([log for log in logs if "up" in log.read_text()]) == {nodes}:
            print("up", flush=True)
            time.sleep(600)
"""


class RealCloudContract:
    """Each test holds for every real cloud.

    one, two      configurations of one and of two nodes
    too_many      a configuration with more nodes than exist
    runs_jobs     False if the nodes have no real machines: `no_jobs` then states why
    make_engine   code that makes `engine` in another process, where `home` is defined
    """

    cloud_name: ClassVar[str]
    one: ClassVar[Config]
    two: ClassVar[Config]
    too_many: ClassVar[Config | None]
    make_engine: ClassVar[str]
    runs_jobs: ClassVar[bool] = True
    no_jobs: ClassVar[str] = ""

    @pytest.fixture
    def make(self, engine: NodeEngine, tmp_path: Path) -> Callable[..., JobCloud]:
        """Makes a cloud with a job that runs `script` with this Python."""
        if not self.runs_jobs:
            pytest.skip(self.no_jobs)

        def made(script: str = COUNT_STEPS, **others: Any) -> JobCloud:
            code = tmp_path / "code"
            code.mkdir(exist_ok=True)
            (code / "job.py").write_text(script)
            run = f"{shlex.quote(sys.executable)} job.py"
            given = {"run": run, "workdir": code, "samples": 1e9, "batch": 10, **others}
            return JobCloud(engine, RealJob(**given), home=tmp_path / "home")

        return made

    def lease(self, cloud: JobCloud, config: Config, **others: Any) -> JobLease:
        given = {"seconds": 900.0, "run_id": "contract", **others}
        return cast(JobLease, cloud.lease(Order(config=config, **given)))

    def check_nothing_is_left(self, engine: NodeEngine, *leases: JobLease) -> None:
        ids = [lease.lease_id for lease in leases]
        assert [remaining for remaining in engine.leftovers() if remaining.lease_id in ids] == []
        assert [pid for lease_id in ids for pid in processes.tagged(lease_id)] == []

    # ---- what it offers

    def test_describes_itself(self, engine: NodeEngine, tmp_path: Path) -> None:
        cloud = JobCloud(engine, RealJob(run="true"), home=tmp_path)
        assert cloud.name.strip()
        assert cloud.simulated is False
        assert 0 <= cloud.noise < 1
        assert JobCloud(engine, RealJob(run="true"), home=tmp_path, noise=0.5).noise == 0.5

    def test_offers_types_with_prices_and_node_counts(self, engine: NodeEngine) -> None:
        offered = engine.offer()
        assert {self.one.instance, self.two.instance} <= {instance.name for instance in offered}
        assert len({instance.name for instance in offered}) == len(offered)
        for instance in offered:
            assert instance.usd_per_hour.micros > 0
            assert instance.vcpus > 0
            most = engine.most_nodes(instance.name)
            assert most is None or most >= 0
        most = engine.most_nodes(self.two.instance)
        assert most is None or most >= 2

    # ---- what runs

    @pytest.mark.parametrize("which", ["one", "two"])
    def test_every_node_knows_its_rank_and_all_addresses(self, make: Callable[..., JobCloud], which: str) -> None:
        cloud, config = make(PRINT_ENVIRONMENT, platform="pytorch", envs={"MINE": "a b"}), getattr(self, which)
        with self.lease(cloud, config) as lease:
            list(lease.progress())  # ends because the job succeeded
            logs = [lease.folder / f"node-{rank}" / "log.txt" for rank in range(config.nodes)]
            environments = [json.loads(log.read_text().split("ENV ", 1)[1]) for log in logs]
        assert all(log.exists() for log in logs)  # the logs stay
        addresses = environments[0]["MLCD_NODES"].split(",")
        assert len(addresses) == config.nodes
        for rank, env in enumerate(environments):
            assert env["MLCD_RANK"] == env["SKYPILOT_NODE_RANK"] == env["RANK"] == str(rank)
            assert env["MLCD_NUM_NODES"] == env["SKYPILOT_NUM_NODES"] == env["WORLD_SIZE"] == str(config.nodes)
            assert env["MLCD_NODES"].split(",") == env["SKYPILOT_NODE_IPS"].split() == addresses
            assert env["MLCD_HEAD"] == env["MASTER_ADDR"] == addresses[0]
            assert env["MLCD_PORT"] == env["MASTER_PORT"]
            assert env["MLCD_INSTANCE"] == config.instance
            assert env["MINE"] == "a b"
            assert env[processes.TAG] == lease.lease_id
        self.check_nothing_is_left(cloud.engine, lease)

    def test_progress_rises_and_a_silent_job_has_a_heartbeat(self, make: Callable[..., JobCloud]) -> None:
        cloud = make(PRINT_SAMPLES, progress=ProgressRule(pattern=r"samples: (?P<samples>\d+)"))
        with self.lease(cloud, self.two) as lease:
            points: list[JobProgress] = []
            for point in lease.progress():
                points.append(point)
                if len([p for p in points if p.samples == 40]) == 3:  # the job is silent until the file exists
                    (lease.folder / "workdir" / "go-on").touch()
            settled = lease.finish(points[-1])
        assert points[0].samples == 0
        assert points[-1].samples == 60
        assert all(a.seconds < b.seconds for a, b in pairwise(points))
        assert all(a.samples <= b.samples for a, b in pairwise(points))
        assert all(math.isfinite(p.seconds) and p.seconds >= 0 for p in points)
        silent = [p for p in points if p.samples == 40]
        assert len(silent) >= 3  # so that the watcher can end a hang
        assert settled.seconds >= points[-1].seconds
        assert settled.utilisation is None or 0 <= settled.utilisation <= 1
        self.check_nothing_is_left(cloud.engine, lease)

    def test_outputs_are_copied_before_the_nodes_are_released(
        self, make: Callable[..., JobCloud], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cloud = make(samples=50, outputs=("model.json", "figures", "not-there"))
        home = Workspace(cloud.home, "contract").outputs
        seen: list[bool] = []
        with self.lease(cloud, self.one, purpose=Purpose.RUN) as lease:
            assert lease.nodes is not None
            release = lease.nodes.release

            def watched() -> None:
                seen.append((home / "model.json").exists())
                release()

            monkeypatch.setattr(lease.nodes, "release", watched)
            points = list(lease.progress())
            settled = lease.finish(points[-1])
        assert seen == [True]
        assert settled.missing_outputs == ("not-there",)
        kept = Path(settled.kept_folder)
        assert json.loads((kept / "model.json").read_text()) == {"steps": 5}  # all that the node wrote is kept
        assert json.loads((home / "model.json").read_text()) == {"steps": 5}
        assert (home / "figures" / "loss.txt").read_text() == "0.1"
        assert points[-1].samples == 50

    def test_a_training_with_all_its_outputs_keeps_no_folder(self, make: Callable[..., JobCloud]) -> None:
        cloud = make(samples=50, outputs=("model.json",))
        with self.lease(cloud, self.one, purpose=Purpose.RUN) as lease:
            settled = lease.finish(list(lease.progress())[-1])
        assert (settled.missing_outputs, settled.kept_folder) == ((), "")
        assert not (lease.folder / "workdir").exists()

    def test_a_trial_that_did_all_of_the_work_hands_over_its_outputs(self, make: Callable[..., JobCloud]) -> None:
        assert self.finishes(make(samples=50, outputs=("model.json",)))

    def finishes(self, cloud: JobCloud) -> bool:
        """Whether a trial that is no part of the training finished all of the work, by its outcome and its outputs."""
        with self.lease(cloud, self.one, continues=False) as lease:
            settled = lease.finish(list(lease.progress())[-1])
        assert settled.missing_outputs == ()
        assert (Workspace(cloud.home, "contract").outputs / "model.json").exists() is settled.is_finished
        return settled.is_finished

    def test_a_lease_continues_from_the_previous_checkpoint(self, make: Callable[..., JobCloud]) -> None:
        cloud = make(checkpoints=True)
        with self.lease(cloud, self.one) as first:
            point = self.until(first, lambda p: p.samples >= 50)
            settled = first.finish(point)
        assert settled.reached_samples >= 50
        assert cloud.reached_samples("contract") == settled.reached_samples
        with self.lease(cloud, self.one) as second:
            assert second.base_samples == settled.reached_samples
            assert self.until(second, lambda p: p.samples >= 20).samples >= 20  # counts only this lease's work
            log = (second.folder / "node-0" / "log.txt").read_text()
        steps = int(settled.reached_samples) // 10
        assert f"continues from {steps * 10} with {steps}" in log
        self.check_nothing_is_left(cloud.engine, first, second)

    # ---- what goes wrong

    @pytest.mark.parametrize(
        ("script", "kind", "last"),
        [
            ("print('one'); print('the data is not there'); raise SystemExit(3)", FailureKind.ERROR, "not there"),
            ("raise MemoryError('no room')", FailureKind.OUT_OF_MEMORY, "MemoryError: no room"),
        ],
        ids=["fails", "out-of-memory"],
    )
    def test_a_failed_job_gives_a_reason(
        self, make: Callable[..., JobCloud], script: str, kind: FailureKind, last: str
    ) -> None:
        cloud = make(script)
        with pytest.raises(LeaseFailed) as failed, self.lease(cloud, self.one) as lease:
            list(lease.progress())
        assert failed.value.kind is kind
        assert last in failed.value.message
        assert failed.value.seconds > 0
        assert failed.value.billed
        self.check_nothing_is_left(cloud.engine, lease)

    def test_nodes_end_themselves_when_their_time_is_over(self, make: Callable[..., JobCloud]) -> None:
        cloud = make("import time; print('up', flush=True); time.sleep(600)")
        with self.lease(cloud, self.one, seconds=3.0) as lease:
            assert lease.nodes is not None
            until = time.monotonic() + WAIT_LIMIT_SECONDS
            while lease.nodes.state() is not NodesState.ENDED:  # without any request to them
                assert time.monotonic() < until, "they did not end"
                time.sleep(0.1)
            with pytest.raises(LeaseFailed, match="were over"):
                list(lease.progress())
            assert json.loads((lease.folder / "node-0" / "exit.json").read_text())["kind"] == "ended"
        self.check_nothing_is_left(cloud.engine, lease)

    def test_an_error_inside_a_lease_releases_everything(self, make: Callable[..., JobCloud]) -> None:
        cloud = make("import time; print('up', flush=True); time.sleep(600)")
        lease = self.lease(cloud, self.two)

        def leave_by_error() -> None:
            with lease:
                self.until(lease, lambda _: self.is_up(lease, self.two.nodes))
                assert [x.owned for x in cloud.engine.leftovers() if x.lease_id == lease.lease_id] == [True]
                raise KeyError("from inside")

        with pytest.raises(KeyError, match="from inside"):
            leave_by_error()
        self.check_nothing_is_left(cloud.engine, lease)
        with self.lease(cloud, self.two) as again:  # the nodes are available again
            next(iter(again.progress()))
        self.check_nothing_is_left(cloud.engine, again)

    def test_an_order_for_too_many_nodes_costs_nothing(self, make: Callable[..., JobCloud]) -> None:
        if self.too_many is None:
            pytest.skip("only the provider knows how many there are")
        cloud = make()
        with pytest.raises(LeaseFailed) as failed, self.lease(cloud, self.too_many) as lease:
            list(lease.progress())
        assert failed.value.kind is FailureKind.CAPACITY
        assert not failed.value.billed
        assert failed.value.message
        assert [remaining for remaining in cloud.engine.leftovers() if "contract" in remaining.lease_id] == []

    def test_leftovers_of_a_killed_mlcd_are_found_and_ended(
        self, make: Callable[..., JobCloud], engine: NodeEngine, tmp_path: Path
    ) -> None:
        code = KILLED_DRIVER.format(engine=self.make_engine, instance=self.two.instance, nodes=self.two.nodes)
        command = [sys.executable, "-c", code, str(tmp_path / "home")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as owner:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "up\n"
            (folder,) = (tmp_path / "home" / "work" / "killed" / "leases").iterdir()
            assert [x.owned for x in engine.leftovers() if x.lease_id == folder.name] == [True]
            owner.kill()
        for remaining in engine.leftovers():  # the nodes may have ended themselves by now
            if remaining.lease_id == folder.name:
                assert remaining.cloud
                assert remaining.what
                engine.end(remaining)
                engine.end(remaining)  # a second time: nothing to do
        until = time.monotonic() + WAIT_LIMIT_SECONDS
        while processes.tagged(folder.name):
            assert time.monotonic() < until, "a process is still running"
            time.sleep(0.1)
        assert [remaining for remaining in engine.leftovers() if remaining.lease_id == folder.name] == []

    # ---- for the tests

    def until(self, lease: JobLease, condition: Callable[[JobProgress], bool]) -> JobProgress:
        """The first point of progress that satisfies `condition`."""
        give_up = time.monotonic() + WAIT_LIMIT_SECONDS
        for point in lease.progress():
            if condition(point):
                return point
            assert time.monotonic() < give_up, "timed out"
        raise AssertionError("the job has ended")

    def is_up(self, lease: JobLease, nodes: int) -> bool:
        logs = [lease.folder / f"node-{rank}" / "log.txt" for rank in range(nodes)]
        return all(log.exists() and "up" in log.read_text() for log in logs)
