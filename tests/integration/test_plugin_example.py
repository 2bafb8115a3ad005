"""The example plug-in, installed beside mlcd: found by name from the command line, and its own tests pass."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.together("the plug-in's environment")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
MLCD = [sys.executable, "-c", "from mlcd.cli.main import main; main()"]

FUNCTIONS = """
name: f
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.35}
goal: {minimize: time, budget: 20 USD}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer makes of the package, from its own pyproject.toml; without a build tool or a network."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE / "src" / "mlcd_example", folder / "mlcd_example")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / f"mlcd_example-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    sections = []
    for group, points in project["entry-points"].items():
        sections.append(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items()))
    (info / "entry_points.txt").write_text("\n".join(sections))
    return folder


def run(command: list[str], installed: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(installed), str(ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, "MLCD_HOME": str(folder / "home")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def mlcd(installed: Path, folder: Path, *arguments: str) -> Any:
    done = run([*MLCD, *arguments, "-o", "json"], installed, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_check_lists_what_the_package_offers(installed: Path, tmp_path: Path) -> None:
    found = {row["what"]: row for row in mlcd(installed, tmp_path, "check")["findings"]}
    for what in ("strategy cheapest-first", "scheduler doubling", "cloud lab"):
        assert found[what]["state"] == "ok"
        assert found[what]["text"] == "plug-in of mlcd-example 0.1.0"


def test_the_strategy_is_found_by_name(installed: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: j\nresources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge]}\nnum_nodes: 1..4\n"
        "job: {model: resnet152, samples: 50000}\ngoal: {minimize: time}\n"
    )
    result = mlcd(installed, tmp_path, "train", "job.yaml", "--strategy", "cheapest-first:patience=2")
    assert result["strategy"] == "cheapest-first:patience=2"
    assert all(trial["reason"].startswith("the cheapest left, at $") for trial in result["trials"])
    refused = run([*MLCD, "train", "job.yaml", "--strategy", "cheapest-first:patience=0"], installed, tmp_path)
    assert refused.returncode == 2
    assert "patience must be at least 1" in refused.stderr


def test_the_cloud_is_found_by_name_and_its_run_can_be_read_again(installed: Path, tmp_path: Path) -> None:
    result = mlcd(installed, tmp_path, "train", str(EXAMPLE / "job.yaml"))
    assert result["cloud"] == "lab"
    again = mlcd(installed, tmp_path, "resume", result["run_id"])
    assert again["run_id"] == result["run_id"]
    only = mlcd(installed, tmp_path, "train", str(EXAMPLE / "job.yaml"), "--on", "lab/desk", "--dry-run")
    assert "rack" not in json.dumps(only)
    refused = run([*MLCD, "train", str(EXAMPLE / "job.yaml"), "--on", "lab/attic"], installed, tmp_path)
    assert refused.returncode == 2
    assert "lab has no 'attic'" in refused.stderr


def test_the_scheduler_is_found_by_name(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FUNCTIONS)
    result = mlcd(installed, tmp_path, "serverless", "job.yaml", "--strategy", "doubling:first=8")
    assert result["strategy"] == "doubling:first=8"
    numbers = [row["functions"] for row in result["epochs"]]
    assert numbers[:3] == [8, 16, 32]


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = run([*MLCD, "train", str(EXAMPLE / "job.yaml")], empty, tmp_path)
    assert refused.returncode == 2
    assert "there is no such cloud (got 'lab')" in refused.stderr


@pytest.mark.slow
def test_its_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", str(EXAMPLE / "tests"), "-q", "-p", "no:cacheprovider"]
    done = run([*command, f"--rootdir={EXAMPLE}", "-c", str(EXAMPLE / "pyproject.toml")], installed, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
