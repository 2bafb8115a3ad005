"""A script or program that a command names is looked for before any node is leased."""

import os
import sys
from pathlib import Path

import pytest

from mlcd.cli.main import run
from mlcd.jobs.run_script import missing_program, script_of

JOB = """\
name: t
workdir: .
resources: {infra: local, instance_type: local.1}
num_nodes: 1
run: python train.py
job: {samples: 100}
goal: {minimize: time, budget: 1 USD}
"""


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("python3.11 -u -X dev src/train.py", "src/train.py"),
        ("A=1 exec /usr/bin/python train.py && python eval.py", "train.py"),
        ("torchrun --nproc_per_node 2 train.py", "train.py"),
        ("./go.sh 4", "./go.sh"),
        ("python -m package.train", ""),
        ("python -c 'print(1)'", ""),
        ("python $SCRIPT.py", ""),
        ("python /data/train.py", ""),
        ("cd src && python train.py", ""),
        ("echo train.py", ""),
        ("python 'half", ""),
        ("", ""),
    ],
)
def test_the_script_is_the_one_that_the_first_command_starts(command: str, script: str) -> None:
    assert script_of(command) == script


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("python train.py", "python trian.py", ("job.yaml:5: run: starts trian.py", "did you mean train.py?")),
        ("python train.py", "python nosuch.py", ("job.yaml:5: run: starts nosuch.py", "is not in workdir")),
        ("workdir: .\n", "", ("workdir: is missing: `run` starts train.py", "workdir: .")),
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_script_that_is_not_there_is_said_before_anything_is_leased(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    says: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").touch()
    assert old in JOB
    (tmp_path / "job.yaml").write_text(JOB.replace(old, new))
    assert run(["train", "job.yaml", *options]) == 2
    said = capsys.readouterr().err
    assert [word for word in says if word not in said] == []
    assert not list((tmp_path / "home").glob("work/*"))


def test_a_script_that_setup_brings_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "job.yaml").write_text(JOB + "setup: git clone somewhere .\n")
    assert run(["train", "job.yaml", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            "pyhton train.py",
            "starts pyhton, which is not installed on this machine (not on PATH); did you mean python?",
        ),
        (
            "exec nosuch-server --port $PORT",
            "starts nosuch-server, which is not installed on this machine (not on PATH)",
        ),
        ("OMP_NUM_THREADS=2 nosuch train", "starts nosuch, which is not installed on this machine (not on PATH)"),
        ("/nosuch/bin/python train.py", "starts /nosuch/bin/python, which is not installed on this machine"),
        ("python train.py", ""),
        ("cd src && nosuch", ""),
        ("PATH=/x/bin:$PATH nosuch", ""),
        ("bin/own-program", ""),
        ("$LAUNCHER train.py", ""),
        ("nosuch() { true; }; nosuch", ""),
        ("python 'half", ""),
        ("", ""),
    ],
)
def test_a_program_that_is_not_installed_is_named(command: str, says: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    assert missing_program(command, path=path) == says


def test_a_job_on_this_machine_is_told_before_its_first_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(JOB.replace("python train.py", "pyhton train.py"))
    assert run(["train", "job.yaml"]) == 2
    assert "job.yaml:5: run: starts pyhton" in capsys.readouterr().err
    assert not list((tmp_path / "home").glob("work/*"))
