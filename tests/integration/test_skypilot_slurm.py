"""True runs through SkyPilot from end to end: its Slurm cloud, on two nodes of this machine behind an ssh login."""

import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest
from tests.sky_slurm import CLUSTER, sky_slurm, why_not
from tests.tiny_onnx import write_mlp

from mlcd.catalog import load_catalog
from mlcd.cli.main import run as mlcd
from mlcd.clouds.job import JobCloud, RealJob
from mlcd.clouds.provider import Order, Purpose
from mlcd.clouds.skypilot import SkyPilotEngine, SkySettings
from mlcd.clouds.workspace import Workspace
from mlcd.space import Config

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

TYPE = "1CPU--1GB"
TRAIN = """
import os, time, mlcd
for _ in mlcd.steps(range(20), batch_size=10):
    time.sleep(0.2)
said = [os.environ[name] for name in ("MLCD_RANK", "MLCD_NUM_NODES", "GREETING", "TOKEN")]
with open("out.txt", "a") as out:
    out.write("/".join(said) + "\\n")
print("trained", os.environ["MLCD_RANK"])
"""


CATALOG = f"cloud,name,vcpus,memory_gib,network_gbps,usd_per_hour\nslurm,{TYPE},1,1,1,0.1\n"


def test_a_job_runs_on_two_nodes_reports_and_returns_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAIN)
    (script.parent / ".gitignore").write_text("data.txt\n")
    (script.parent / "data.txt").write_text("goes to the nodes all the same")
    catalog = tmp_path / "catalog.csv"
    catalog.write_text(CATALOG, encoding="utf-8")
    before = kept_in_home()
    with sky_slurm(tmp_path / "cluster") as environment:
        use(environment, monkeypatch)
        home = tmp_path / "mlcd"
        settings = SkySettings(infra=f"sky/slurm/{CLUSTER}", secrets={"TOKEN": "s3cr3t"}, outputs=("out.txt",))
        engine = SkyPilotEngine(settings, state=home / "skypilot", catalog=load_catalog(catalog))
        job = RealJob(
            run="cat data.txt && python3 train.py",
            envs={"GREETING": "it's here"},
            workdir=script.parent,
            batch=10,
            samples=200,
            outputs=("out.txt",),
        )
        try:
            config = Config.deployment(TYPE, 2)
            order = Order(config=config, purpose=Purpose.RUN, seconds=900.0, run_id="sky-slurm")
            with JobCloud(engine, job, home=home).lease(order) as lease:
                points = list(lease.progress())
                assert [remaining.owned for remaining in engine.leftovers()] == [True]
                lease.finish(points[-1])
            assert engine.leftovers() == ()
        finally:
            engine.close()
        assert points[-1].samples > 0
        (report,) = home.rglob("progress.jsonl")
        assert json.loads(report.read_text().splitlines()[-1])["samples"] == 200  # 20 steps of 10, none lost
        output = (Workspace(home, "sky-slurm").outputs / "out.txt").read_text().splitlines()
        assert sorted(output) == ["0/2/it's here/s3cr3t", "1/2/it's here/s3cr3t"]
        logs = [log.read_text() for log in sorted(home.rglob("node-*/log.txt"))]
        assert ["trained 0" in logs[0], "trained 1" in logs[1]] == [True, True]
        assert all("goes to the nodes all the same" in log for log in logs)
        kept = [file for file in home.rglob("*") if file.is_file() and file.name not in ("out.txt", "log.txt")]
        assert not any(b"s3cr3t" in file.read_bytes() for file in kept)
        assert jobs(tmp_path) == ""
    assert kept_in_home() == before  # SkyPilot's keys and start-up files went into the cluster's own home


SERVED = {
    "name": "tiny",
    "model": "tiny.onnx",
    "resources": {"infra": f"sky/slurm/{CLUSTER}", "replicas": [2]},
    "knobs": {"batch": 4, "threads": 1, "replicas": 1, "precision": "int8"},
    "goal": {"minimize": "cost", "rate": "20/s", "slo": {"p99": "5s"}, "budget": "2 USD"},
    "load": {"verify": "3s"},
    "search": {"max_trials": 1, "strategy": "exhaustive"},
}


def test_two_servers_are_loaded_through_tunnels_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes have nothing of mlcd's but what SkyPilot copied there; mlcd's own server, int8, in namespaces."""
    write_mlp(tmp_path / "tiny.onnx")
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(json.dumps(SERVED))
    with sky_slurm(tmp_path / "cluster") as environment:
        use(environment, monkeypatch)
        monkeypatch.setenv("MLCD_HOME", str(tmp_path / "mlcd"))
        monkeypatch.setenv("MLCD_CATALOG", str(tmp_path / "catalog.csv"))
        written = tmp_path / "service"
        code = mlcd(["serve", str(tmp_path / "job.yaml"), "-y", "-o", "json", "--write", "skyserve", str(written)])
        found = capsys.readouterr()
        assert code == 0, found.err + found.out
        said = json.loads(found.out)
        assert said["nominal_prices"] is False
        assert [trial["failure"] for trial in said["trials"]] == [None]
        assert said["choice"]["config"]["nodes"] == 2
        assert said["choice"]["load"]["errors"] == 0
        assert said["choice"]["load"]["requests"] >= 40
        assert 0 < said["choice"]["load"]["network_seconds"] < 5
        assert 0 < said["receipt"]["total_usd"] < 2
        assert jobs(tmp_path) == ""
        assert mlcd(["down", "--on", f"sky/slurm/{CLUSTER}", "-y"]) == 0
        assert f"instance_type: {TYPE}" in (written / "service.yaml").read_text()


def use(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def jobs(tmp_path: Path) -> str:
    """Slurm's queue."""
    conf = str(tmp_path / "cluster" / "slurm.conf")
    env = {**os.environ, "SLURM_CONF": conf}
    return subprocess.run(["squeue", "-h"], env=env, capture_output=True, text=True, check=True).stdout


def kept_in_home() -> dict[str, bytes | None]:
    files = (".bashrc", ".sky_ssh_rc", ".ssh/authorized_keys", ".ssh/skypilot_host_key")
    paths = {name: Path(pwd.getpwuid(0).pw_dir) / name for name in files}
    return {name: path.read_bytes() if path.exists() else None for name, path in paths.items()}
