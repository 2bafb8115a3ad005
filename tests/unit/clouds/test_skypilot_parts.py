"""What needs no SkyPilot: tasks, names, filters, prices, refusals, credentials, and the command a node runs."""

import csv
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlcd.catalog import load_catalog
from mlcd.clouds.nodes import NodeOrder, NodesState
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.shipping import ship
from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings, missing
from mlcd.clouds.skypilot.client import SkyError, Worker, sky_python
from mlcd.clouds.skypilot.nodes import SkyNodes
from mlcd.clouds.skypilot.prices import offer
from mlcd.clouds.skypilot.refusals import refused, with_reasons
from mlcd.clouds.skypilot.task import cluster_name, make_task, run_command
from mlcd.clouds.skypilot.transport import FETCH_OPTIONS, end_filters, news_filters, path_filters
from mlcd.clouds.skypilot.worker import logs
from mlcd.errors import BadInput, ProviderError
from mlcd.trial.trial import FailureKind
from mlcd.units import Usd


def make_order(tmp_path: Path, lease_id: str = "mlcd-run-abc123", *, seconds: float = 600.0) -> NodeOrder:
    return NodeOrder(lease_id=lease_id, instance="m5.large", count=3, seconds=seconds, folder=tmp_path / "lease")


@pytest.fixture
def bare_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a Python that has SkyPilot according to its files."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "KUBE", "SKY", "MLCD_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    package = tmp_path / "env/lib/python3.11/site-packages/sky"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("MLCD_SKY_PYTHON", str(tmp_path / "env/bin/python"))
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    return tmp_path


# ---- names and tasks


@pytest.mark.parametrize(
    ("lease_id", "name"),
    [("mlcd-digits-cnn-a1b2c3", "mlcd-digits-cnn-a1b2c3"), ("mlcd-x-000000", "mlcd-x-000000")],
)
def test_a_good_name_is_kept(lease_id: str, name: str) -> None:
    assert cluster_name(lease_id) == name


@pytest.mark.parametrize("lease_id", ["mlcd-Über_Run.1-a1b2c3", "mlcd-" + "very-long-name-" * 6 + "a1b2c3", "mlcd--x-"])
def test_other_names_are_made_valid_and_stay_distinct(lease_id: str) -> None:
    name = cluster_name(lease_id)
    assert name.startswith("mlcd-")
    assert len(name) <= 50
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert name[-1] != "-"
    assert name == cluster_name(lease_id) != cluster_name(lease_id + "x")


def test_a_lease_becomes_a_task(tmp_path: Path) -> None:
    settings = SkySettings(
        infra="aws/eu-west-1/eu-west-1a",
        use_spot=True,
        image_id="ami-1",
        disk_gib=100,
        secrets={"HF_TOKEN": "s3cr3t"},
        file_mounts={"/data": "s3://bucket/data"},
    )
    task = make_task(make_order(tmp_path), settings, agent=tmp_path / "agent")
    assert task["num_nodes"] == 3
    assert task["resources"] == {
        "infra": "aws/eu-west-1/eu-west-1a",
        "instance_type": "m5.large",
        "use_spot": True,
        "image_id": "ami-1",
        "disk_size": 100,
        "labels": {"mlcd": "mlcd-run-abc123"},
    }
    assert task["file_mounts"] == {
        "/data": "s3://bucket/data",
        "~/.mlcd-agent": str(tmp_path / "agent"),
        "~/.mlcd-leases/mlcd-run-abc123": str(tmp_path / "lease"),
    }
    assert task["secrets"] == {"HF_TOKEN": "s3cr3t"}
    without = {key: value for key, value in task.items() if key != "secrets"}
    assert "s3cr3t" not in json.dumps(without) + repr(settings)


def test_a_bare_cloud_means_the_region_its_prices_are_from() -> None:
    assert SkySettings(infra="aws").sky_infra == "aws/us-east-1"
    assert SkySettings(infra="gcp").sky_infra == "gcp/us-central1"
    assert SkySettings(infra="azure").sky_infra == "azure/eastus"
    assert SkySettings(infra="aws/eu-west-1").sky_infra == "aws/eu-west-1"
    assert SkySettings(infra="k8s/context").sky_infra == "k8s/context"
    assert SkySettings(infra="sky/slurm/mini").sky_infra == "slurm/mini"
    assert SkySettings(infra="kubernetes").sky_infra == "kubernetes"


def test_idle_nodes_end_themselves_where_skypilot_can_do_that() -> None:
    assert SkySettings(infra="aws", idle_minutes=7).autostop_minutes == 7
    assert SkySettings(infra="sky/slurm/mini").autostop_minutes is None


@pytest.mark.parametrize(
    "given",
    [
        {"infra": ""},
        {"infra": "aws//zone"},
        {"infra": "aws", "idle_minutes": 0},
        {"infra": "aws", "secrets": {"A B": "x"}},
    ],
)
def test_invalid_settings_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        SkySettings(**given)  # type: ignore[arg-type]


def test_a_users_mount_may_not_take_mlcds_folder(tmp_path: Path) -> None:
    settings = SkySettings(infra="aws", file_mounts={"~/.mlcd-agent": "/tmp"})
    with pytest.raises(BadInput, match="mlcd's own folder"):
        make_task(make_order(tmp_path), settings, agent=tmp_path)


# ---- the node's command, run here


def run_node(home: Path, command: str, rank: int, count: int) -> subprocess.CompletedProcess[str]:
    """Runs the command of a node, with the variables that SkyPilot sets."""
    bin_folder = home / "bin"
    bin_folder.mkdir(exist_ok=True)
    if not (bin_folder / "python3").exists():
        (bin_folder / "python3").symlink_to(sys.executable)
    env = {
        "HOME": str(home),
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * count),
        "SLURM_PROCID": "7",  # SkyPilot's rank counts, not that of the Slurm job it may run in
        "TOKEN": "from-skypilot",
    }
    return subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)


def furnish(home: Path, cluster: str, run: str) -> Path:
    folder = home / ".mlcd-leases" / cluster
    (folder / "workdir").mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"lease_id": cluster, "run": run, "envs": {"ODD": "it's $HOME"}}))
    (home / ".mlcd-agent").symlink_to(ship(home / "state"))
    return folder


def test_a_node_runs_the_job_with_what_was_shipped_and_nothing_else(tmp_path: Path) -> None:
    script = "python3 -c \"import mlcd, os; print(mlcd.__file__, os.environ['ODD'], os.environ['TOKEN'])\""
    folder = furnish(tmp_path, "mlcd-a-b", f"{script} > seen-$MLCD_RANK.txt")
    command = run_command("mlcd-a-b", 60.0, ordered_at=time.time())
    for rank in (0, 1):
        done = run_node(tmp_path, command, rank, 2)
        assert done.returncode == 0, done.stderr
        assert json.loads((folder / f"node-{rank}" / "exit.json").read_text())["code"] == 0
        where, _, rest = (folder / "workdir" / f"seen-{rank}.txt").read_text().strip().partition(" ")
        assert Path(where).resolve().is_relative_to(tmp_path.resolve())
        assert rest == "it's $HOME from-skypilot"


def test_nodes_that_start_too_late_do_nothing(tmp_path: Path) -> None:
    folder = furnish(tmp_path, "mlcd-late", "touch ran")
    done = run_node(tmp_path, run_command("mlcd-late", 60.0, ordered_at=time.time() - 120), 0, 1)
    assert done.returncode == 124
    assert "time was over" in done.stdout
    assert not (folder / "workdir" / "ran").exists()


def test_a_job_is_ended_when_its_seconds_since_the_order_are_over(tmp_path: Path) -> None:
    furnish(tmp_path, "mlcd-slow", "sleep 600")
    done = run_node(tmp_path, run_command("mlcd-slow", 60.0, ordered_at=time.time() - 58), 0, 1)
    assert done.returncode == 124


def test_without_a_limit_the_command_has_no_timeout() -> None:
    assert "timeout" not in run_command("mlcd-a", float("inf"), ordered_at=0.0)


# ---- files


def rsync(source: Path, target: Path, filters: list[str]) -> set[str]:
    target.mkdir()
    subprocess.run(["rsync", "-a", "--prune-empty-dirs", *filters, f"{source}/", f"{target}/"], check=True)
    return {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()}


@pytest.mark.skipif(subprocess.run(["sh", "-c", "command -v rsync"], check=False).returncode != 0, reason="no rsync")
def test_only_the_selected_files_are_fetched(tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    for name in (
        "progress.jsonl",
        "job.json",
        "node-0/log.txt",
        "node-1/exit.json",
        "node-1/exit.json.part",
        "checkpoint/step-5/mlcd.json",
        "workdir/train.py",
        "workdir/out/model.pt",
        "workdir/out/deep/curve.csv",
        "workdir/own.jsonl",
        "workdir/data/big.bin",
    ):
        (lease / name).parent.mkdir(parents=True, exist_ok=True)
        (lease / name).write_text(name)
    news = {"progress.jsonl", "node-0/log.txt", "checkpoint/step-5/mlcd.json"}
    assert rsync(lease, tmp_path / "e", end_filters()) == {"node-1/exit.json"}
    assert rsync(lease, tmp_path / "a", news_filters(["own.jsonl"])) == news | {"workdir/own.jsonl"}
    assert rsync(lease, tmp_path / "b", news_filters([])) == news
    wanted = path_filters(["checkpoint", "workdir/out", "workdir/nothing"])
    found = {"checkpoint/step-5/mlcd.json", "workdir/out/model.pt", "workdir/out/deep/curve.csv"}
    assert rsync(lease, tmp_path / "c", wanted) == found


@pytest.mark.skipif(subprocess.run(["sh", "-c", "command -v rsync"], check=False).returncode != 0, reason="no rsync")
def test_links_out_of_the_lease_devices_and_fifos_are_not_fetched(tmp_path: Path) -> None:
    """A node's links would lead to files of this machine, which the next nodes would get."""
    lease, here = tmp_path / "lease", tmp_path / "here"
    checkpoint = lease / "checkpoint" / "step-5"
    checkpoint.mkdir(parents=True)
    (tmp_path / "private").write_text("private")
    (checkpoint / "weights").write_text("weights")
    (checkpoint / "weights").chmod(0o4755)
    (checkpoint / "within").symlink_to("weights")
    (checkpoint / "absolute").symlink_to(tmp_path / "private")
    (checkpoint / "relative").symlink_to("../../../private")
    os.mkfifo(checkpoint / "fifo")
    here.mkdir()
    options = [*FETCH_OPTIONS, *news_filters([])]
    subprocess.run(["rsync", *options, f"{lease}/", f"{here}/"], check=True, capture_output=True)
    found = here / "checkpoint" / "step-5"
    assert sorted(path.name for path in found.iterdir()) == ["weights", "within"]
    assert (found / "within").readlink() == Path("weights")
    assert (found / "weights").stat().st_mode & 0o7100 == 0o100  # can be run, as before; not as somebody else


# ---- prices


def place_catalog(home: Path, rows: list[tuple[str, str, str, str]]) -> None:
    file = home / ".sky/catalogs/v8/aws/vms.csv"
    file.parent.mkdir(parents=True)
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["InstanceType", "Region", "Price", "SpotPrice"])
        writer.writerows(rows)


def test_prices_are_skypilots_where_it_has_a_catalog(bare_home: Path) -> None:
    place_catalog(
        bare_home,
        [
            ("m5.large", "us-east-1", "0.5", "0.1"),
            ("m5.large", "us-east-1", "0.5", "0.2"),
            ("m5.large", "eu-west-1", "9", "9"),
            ("c5.large", "us-east-1", "0.3", ""),
            ("not-known", "us-east-1", "1", "1"),
        ],
    )
    found = offer(SkySettings(infra="aws"), load_catalog())
    by_name = {i.name: i for i in found.instances}
    assert set(by_name) == {"m5.large", "c5.large"}
    assert by_name["m5.large"].usd_per_hour == Usd.of("0.5")
    assert by_name["m5.large"].spot_usd_per_hour == Usd.of("0.2")  # of the most expensive zone: SkyPilot may use any
    assert by_name["c5.large"].spot_usd_per_hour is None
    assert "SkyPilot's catalog" in found.source
    assert "us-east-1" in found.source


def test_prices_are_mlcds_own_where_skypilot_has_none(bare_home: Path) -> None:
    found = offer(SkySettings(infra="gcp"), load_catalog())
    assert found.instances == tuple(load_catalog().for_cloud("gcp").values())
    assert found.source == f"mlcd's catalog of {load_catalog().date}"


def test_a_cloud_without_prices_is_reported_with_the_fix(bare_home: Path) -> None:
    with pytest.raises(ProviderError, match=r"no prices are known for kubernetes; .*MLCD_CATALOG"):
        offer(SkySettings(infra="k8s/mine"), load_catalog())


def test_a_broken_catalog_is_named(bare_home: Path) -> None:
    place_catalog(bare_home, [("m5.large", "us-east-1", "cheap", "")])
    with pytest.raises(ProviderError, match=r"vms\.csv cannot be read"):
        offer(SkySettings(infra="aws"), load_catalog())


# ---- what SkyPilot's errors mean


def sky_error(*types: str, message: str = "", reasons: tuple[str, ...] = ()) -> SkyError:
    return SkyError((*types, "Exception"), message, reasons)


@pytest.mark.parametrize(
    "said",
    [
        "AWS handler error: An error occurred (InsufficientInstanceCapacity) when calling RunInstances",
        "AWS handler error: An error occurred (VcpuLimitExceeded): You have requested more vCPU capacity",
        "HttpError 403: Quota 'NVIDIA_A100_GPUS' exceeded",
        "",
    ],
)
def test_no_capacity_or_quota_is_a_capacity_failure_and_unpaid(said: str) -> None:
    error = with_reasons(sky_error("ResourcesUnavailableError", message="\x1b[31mFailed\x1b[0m to provision"), said)
    failed = refused(error, infra="aws")
    assert isinstance(failed, LeaseFailed)
    assert (failed.kind, failed.billed) == (FailureKind.CAPACITY, False)
    assert "\x1b" not in failed.message
    assert said in failed.message


def test_another_answer_of_the_provider_is_a_failed_launch() -> None:
    said = "AWS handler error: An error occurred (InvalidAMIID.NotFound) when calling RunInstances"
    failed = refused(with_reasons(sky_error("ResourcesUnavailableError"), said), infra="aws")
    assert isinstance(failed, LeaseFailed)
    assert (failed.kind, failed.billed) == (FailureKind.LAUNCH, True)
    assert "InvalidAMIID" in failed.message


def test_a_runtime_that_cannot_be_set_up_is_a_failed_launch() -> None:
    failed = refused(sky_error("CommandError", message="Failed to run setup commands"), infra="aws")
    assert isinstance(failed, LeaseFailed)
    assert failed.kind is FailureKind.LAUNCH


@pytest.mark.parametrize(
    "error",
    [
        sky_error("NoCloudAccessError", message="no"),
        sky_error("ResourcesUnavailableError", message="Task requires AWS which is not enabled"),
        sky_error("RuntimeError", message="An error occurred (UnauthorizedOperation)"),
    ],
)
def test_missing_access_is_for_the_user_to_fix(error: SkyError) -> None:
    assert isinstance(refused(error, infra="aws"), ProviderError)


# ---- what is missing


@pytest.mark.parametrize(
    ("infra", "file", "command"),
    [
        ("aws/us-east-1", ".aws/credentials", "aws configure"),
        ("gcp", ".config/gcloud/application_default_credentials.json", "gcloud auth application-default login"),
        ("azure", ".azure/msal_token_cache.json", "az login"),
        ("k8s/mine", ".kube/config", "kubectl config use-context"),
    ],
)
def test_missing_credentials_are_reported_with_the_command(
    bare_home: Path, infra: str, file: str, command: str
) -> None:
    text = missing(infra)
    assert text is not None
    assert command in text
    (bare_home / file).parent.mkdir(parents=True)
    (bare_home / file).touch()
    assert missing(infra) is None


def test_a_python_of_no_user_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_SKY_PYTHON", "~nosuchuser/python")
    with pytest.raises(ProviderError, match="MLCD_SKY_PYTHON: there is no user 'nosuchuser'"):
        sky_python()


def test_a_python_without_skypilot_is_named(bare_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_SKY_PYTHON", "/nowhere/python")
    assert "/nowhere/python has no SkyPilot" in (missing("aws") or "")


def test_without_skypilot_the_command_that_installs_it(bare_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.credentials.sky_python", lambda: None)
    assert "pip install 'skypilot[aws]==0.14.*'" in (missing("aws") or "")
    extras = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras["skypilot"] == ["skypilot[aws]==0.14.*"], "the same versions as the extra"
    engine = SkyPilotEngine(SkySettings(infra="aws"), state=bare_home / "state", catalog=load_catalog())
    with pytest.raises(ProviderError, match="SkyPilot is not installed"):
        engine.offer()
    with pytest.raises(ProviderError, match="SkyPilot is not installed"):
        engine.leftovers()


def test_missing_programs_are_named(bare_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None if program == "rsync" else "/x")
    assert "apt-get install rsync" in (missing("aws") or "")


def test_skypilot_is_not_started_to_find_that_it_was_never_used(bare_home: Path) -> None:
    engine = SkyPilotEngine(SkySettings(infra="skypilot"), state=bare_home / "state", catalog=load_catalog())
    assert engine.leftovers() == ()
    assert not (bare_home / "state" / "skypilot.log").exists()


def test_the_engine_says_where_its_prices_are_from(bare_home: Path) -> None:
    engine = SkyPilotEngine(SkySettings(infra="aws"), state=bare_home / "state", catalog=load_catalog())
    assert engine.notes == (f"prices are from mlcd's catalog of {load_catalog().date}",)
    assert engine.most_nodes("m5.large") is None


# ---- the worker process


def test_a_worker_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    worker = Worker(Path(sys.executable), tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "sky.py").write_text("raise RuntimeError('no sky today')")
    try:
        with pytest.raises(SkyError, match="no sky today"):
            worker.call("hello", seconds=30)
        with pytest.raises(SkyError):
            worker.call("no-such-op", seconds=30)
    finally:
        worker.close()
    assert not worker.is_alive
    with pytest.raises(ProviderError, match="has ended"):
        worker.call("hello", seconds=30)


def test_lines_of_a_worker_that_are_no_answers_are_skipped(tmp_path: Path) -> None:
    said = [
        "no JSON", "null", "[]", "{}", '{"id": "1", "value": 3}', '{"id": 1e999}', '{"id": 1, "error": 7}',
        '{"id": 1, "error": {"types": null}}', "[" * 100_000, '{"id": 99, "value": 1}',
        '{"id": 1, "value": {"nodes": NaN}}',
    ]  # fmt: skip
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    (tmp_path / "said").write_text("\n".join(said) + "\n")
    python.write_text(f"#!/bin/sh\nread line\ncat {tmp_path / 'said'}\nread line\n")
    python.chmod(0o700)
    worker = Worker(python, tmp_path / "log")
    try:
        assert worker.call("status", seconds=30) == {"nodes": None}
    finally:
        worker.close()


def test_what_nodes_put_in_the_place_of_their_logs_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, folder = tmp_path / "fetched", tmp_path / "lease"
    fetched.mkdir()
    folder.mkdir()
    (fetched / "run.log").write_text("trained")
    (tmp_path / "key").write_text("secret")
    (fetched / "link.log").symlink_to(tmp_path / "key")
    (fetched / "folder.log").mkdir()
    os.mkfifo(fetched / "pipe.log")
    monkeypatch.setitem(sys.modules, "sky", SimpleNamespace(download_logs=lambda *_: {"1": str(fetched)}))
    assert logs(cluster="mlcd-a", number=1, folder=str(folder)) == [str(folder / "run.log")]
    assert [file.name for file in folder.iterdir()] == ["run.log"]


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("starting\nRuntimeError: port 50004 is already in use\n\n", "(RuntimeError: port 50004 is already in use)"),
        ("", "(it is empty)"),
    ],
)
def test_an_api_server_that_does_not_start_is_reported_with_its_last_log_line(
    tmp_path: Path, log: str, says: str
) -> None:
    played = {
        "client/sdk.py": "def _local_api_server_running():\n    return False\n\n"
        "def api_start():\n    raise RuntimeError('exited unexpectedly. View logs at: server.log')\n",
        "server/common.py": "def is_api_server_local():\n    return True\n",
        "skylet/constants.py": "API_SERVER_LOGS = '~/server.log'\n",
    }
    for name, text in played.items():
        file = tmp_path / "sky" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.with_name("__init__.py").touch()
    (tmp_path / "sky" / "__init__.py").touch()
    (tmp_path / "server.log").write_text(log)
    worker = Worker(Path(sys.executable), tmp_path / "log", {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)})
    try:
        with pytest.raises(SkyError, match="exited unexpectedly") as failed:
            worker.call("hello", seconds=30)
    finally:
        worker.close()
    assert failed.value.text.endswith(says)


def test_the_settings_python_wins(bare_home: Path) -> None:
    assert sky_python() == bare_home / "env/bin/python"


# ---- nodes, with a fake worker and fake files


class PlayedWorker:
    """Answers as SkyPilot does for a launch that succeeds at once; records the requests."""

    def __init__(self, **answers: object) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, object] = {
            "poll": {"state": "SUCCEEDED", "job": 1},
            "hosts": {"hosts": ["mlcd-n"], "home": ""},
            "status": [{"name": "mlcd-n", "state": "UP", "on_cloud": None, "region": None}],
            "job": "RUNNING",
            "down": True,
            "request_log": "",
            **answers,
        }

    def call(self, op: str, *, seconds: float, **given: object) -> object:
        self.asked.append(op)
        answer = self.answers[op]
        if isinstance(answer, Exception):
            raise answer
        return answer


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: PlayedWorker, **settings: object) -> SkyNodes:
    for name in ("POLL_SECONDS", "SYNC_SECONDS", "STATUS_SECONDS"):
        monkeypatch.setattr(f"mlcd.clouds.skypilot.nodes.{name}", 0.01)
    folder = tmp_path / "lease"
    folder.mkdir()
    order = NodeOrder(lease_id="mlcd-n", instance="m5.large", count=1, seconds=60.0, folder=folder)
    made = SkySettings(infra="gcp", outputs=(), **settings)  # type: ignore[arg-type]
    return SkyNodes(
        worker,  # type: ignore[arg-type]
        order,
        made,
        cluster="mlcd-n",
        request="r",
        released=lambda: None,
    )


def until_it_ends(nodes: SkyNodes) -> None:
    give_up = time.monotonic() + 60
    while nodes.state() is not NodesState.ENDED:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_nodes_exit_appears_only_after_all_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node writes its last line and ends between two copies: the line must be fetched before the exit."""
    rounds = 0

    def fetch(host: str, remote: str, folder: Path, filters: list[str], *, seconds: float) -> str:
        nonlocal rounds
        if filters == end_filters():
            (folder / "node-0").mkdir(parents=True, exist_ok=True)
            (folder / "node-0" / "exit.json").write_text(json.dumps({"code": 0, "cpu_seconds": 2.5}))
        elif filters == news_filters(()):
            rounds += 1
            part = folder / "progress.new"  # rsync replaces files atomically, too
            part.write_text("last line\n" if rounds > 1 else "")
            part.replace(folder / "progress.jsonl")
        return ""

    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", fetch)
    nodes = play(tmp_path, monkeypatch, PlayedWorker())
    give_up = time.monotonic() + 60
    while not (tmp_path / "lease/node-0/exit.json").exists():
        assert time.monotonic() < give_up
    assert (tmp_path / "lease/progress.jsonl").read_text() == "last line\n"
    until_it_ends(nodes)
    assert nodes.used_seconds() == 2.5
    nodes.release()


@pytest.mark.parametrize(("spot", "kind"), [(True, FailureKind.INTERRUPTED), (False, FailureKind.LOST)])
def test_nodes_that_went_away(spot: bool, kind: FailureKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "no route to host")
    worker = PlayedWorker(status=[])
    nodes = play(tmp_path, monkeypatch, worker, use_spot=spot)
    with pytest.raises(LeaseFailed, match="is gone; no route to host") as failed:
        until_it_ends(nodes)
    assert failed.value.kind is kind
    nodes.fetch(["workdir/x"])  # nothing to fetch, and no second error that hides the first
    nodes.release()
    nodes.release()
    assert worker.asked.count("down") == 1


@pytest.mark.parametrize("answer", [{"poll": None}, {"poll": {}}, {"hosts": {"hosts": ["mlcd-n"]}}, {"status": [{}]}])
def test_an_answer_that_cannot_be_read_fails_the_lease(
    answer: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "no route to host")
    nodes = play(tmp_path, monkeypatch, PlayedWorker(**answer))
    with pytest.raises(LeaseFailed, match="SkyPilot answered what mlcd cannot read"):
        until_it_ends(nodes)
    nodes.release()


def test_a_job_that_never_started_is_a_failed_launch_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "")
    log = tmp_path / "run.log"
    log.write_text("python3: command not found\n")
    nodes = play(tmp_path, monkeypatch, PlayedWorker(job="FAILED", logs=[str(log)]))
    with pytest.raises(LeaseFailed, match="did not start: python3: command not found") as failed:
        until_it_ends(nodes)
    assert failed.value.kind is FailureKind.LAUNCH
    nodes.release()


def test_nodes_that_cannot_be_taken_down_are_reported_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "")
    worker = PlayedWorker(down=sky_error("RuntimeError", message="the API is down"))
    nodes = play(tmp_path, monkeypatch, worker)
    with pytest.raises(ProviderError, match=r"the API is down; run: mlcd down \(or: sky down mlcd-n\)"):
        nodes.release()
    assert worker.asked.count("down") == 3
    worker.answers["down"] = True
    nodes.release()
    assert nodes.state() is NodesState.ENDED


def test_failing_to_fetch_files_of_healthy_nodes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "")
    nodes = play(tmp_path, monkeypatch, PlayedWorker())
    give_up = time.monotonic() + 60
    while not nodes._hosts:
        assert time.monotonic() < give_up
    monkeypatch.setattr("mlcd.clouds.skypilot.transport.fetch", lambda *_, **__: "disk full")
    with pytest.raises(ProviderError, match="could not be fetched: disk full"):
        nodes.fetch(["workdir/model.pt"])
    nodes.release()
