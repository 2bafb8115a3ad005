"""`mlcd runs` with filters and `rm`, the newest run as the default, and `mlcd logs`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_init import Mlcd

from mlcd.cli.main import run
from mlcd.home.logs import lease_logs
from mlcd.store.store import Store

JOB = (
    "name: {name}\nresources: {{instance_type: [c5.xlarge, c5.4xlarge]}}\nnum_nodes: 1..4\n"
    "job: {{model: alexnet, samples: 50000}}\ngoal: {goal}\n"
)
PRINTS = """\
name: prints
resources: {infra: local, instance_type: local.1}
num_nodes: 1
run: echo "hello from $MLCD_RANK"; exit 3
job: {samples: 100}
goal: {minimize: time, budget: 1 USD}
search: {trial: {minutes: 0.2, retries: 0}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two simulated runs."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "home").mkdir()
    os.environ["MLCD_HOME"] = str(folder / "home")
    try:
        for name, goal in (("first", "{minimize: time, budget: 50 USD}"), ("second", "{minimize: cost}")):
            (folder / f"{name}.yaml").write_text(JOB.format(name=name, goal=goal))
            assert run(["train", str(folder / f"{name}.yaml"), "-o", "json"]) == 0
    finally:
        del os.environ["MLCD_HOME"]
    return folder / "home"


@pytest.fixture
def mlcd(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mlcd:
    monkeypatch.setenv("MLCD_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return Mlcd(capsys)


def names(found: Any) -> list[str]:
    return [each["run_id"].partition("-")[0] for each in found["runs"]]


def test_runs_show_goal_choice_and_spent(mlcd: Mlcd) -> None:
    said = mlcd("runs")
    assert "fastest for at most $50.00" in said
    assert " x c5." in said
    first, second = mlcd.json("runs")["runs"][::-1]
    assert (first["goal"], second["goal"]) == ("fastest for at most $50.00", "cheapest")
    assert second["choice"].endswith("c5.xlarge") or second["choice"].endswith("c5.4xlarge")
    assert first["spent_usd"] > 0


def test_runs_are_filtered(mlcd: Mlcd) -> None:
    assert names(mlcd.json("runs")) == ["second", "first"]
    assert names(mlcd.json("runs", "-n", "1")) == ["second"]
    assert names(mlcd.json("runs", "--name", "fir*")) == ["first"]
    assert names(mlcd.json("runs", "--status", "done", "--kind", "train", "--on", "sim/*")) == ["second", "first"]
    assert names(mlcd.json("runs", "--kind", "serve")) == []
    assert "None of the 2 runs matches" in mlcd("runs", "--status", "stopped")
    assert "did you mean 'done'?" in mlcd("runs", "--status", "doen", code=2)


def test_the_newest_run_is_the_default(mlcd: Mlcd, tmp_path: Path) -> None:
    assert mlcd.json("show")["run_id"].startswith("second-")
    assert Path(mlcd.json("report")["file"]).name.startswith("second-")
    assert "all have ended" in mlcd("resume", code=2)
    assert "simulated: it has no logs" in mlcd("logs", code=2)


def test_a_jobs_name_means_its_newest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB.format(name="twice", goal="{minimize: cost}"))
    made = []
    for options in ((), ("--search-only",), ()):
        assert run(["train", "job.yaml", "-o", "json", *options]) in (0, 7)
        made.append(json.loads(capsys.readouterr().out)["run_id"])
    for command, wanted in (("show", made[2]), ("resume", made[1])):
        assert run([command, "twice", "-o", "json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["run_id"] == wanted
        assert f"twice has 3 runs; this is the newest{' that has not ended' * (command == 'resume')}, {wanted}" in err
    assert run(["resume", "twice", "-o", "json"]) == 0  # all have ended: the newest is shown again
    assert json.loads(capsys.readouterr().out)["run_id"] == made[2]
    assert run(["report", "twice", "--out", "r.html"]) == 0
    assert made[2] in (tmp_path / "r.html").read_text()
    capsys.readouterr()
    assert run(["show", made[0], "-o", "json"]) == 0
    assert "runs;" not in capsys.readouterr().err


def test_marks_of_guessed_values_are_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    text = JOB.format(name="marked", goal="{minimize: cost}").replace(
        "num_nodes: 1..4", "num_nodes: 1..4  # CHANGE THIS"
    )
    (tmp_path / "job.yaml").write_text(text)
    assert run(["train", "job.yaml", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "job.yaml:3: num_nodes is still marked CHANGE THIS: check it" in said
    assert "if the best takes 1 h the search takes" in said
    assert run(["train", "job.yaml"]) == 0
    assert "Note: job.yaml:3: num_nodes is still marked CHANGE THIS" in capsys.readouterr().err


def test_an_empty_home_has_no_newest_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "empty"))
    for command in ("show", "report", "logs"):
        assert run([command]) == 2
        assert "start with: mlcd demo" in capsys.readouterr().err


def test_a_run_is_removed_whole(mlcd: Mlcd, home: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").write_text(JOB.format(name="gone", goal="{minimize: time}"))
    name = mlcd.json("train", "gone.yaml")["run_id"]
    (home / "work" / name / "outputs").mkdir(parents=True)
    assert "there is no terminal to ask on: give -y" in mlcd("runs", "rm", name, code=2)
    assert mlcd.json("runs", "rm", "gone", "-y") == {"removed": [name]}
    assert not (home / "work" / name).exists()
    assert names(mlcd.json("runs")) == ["second", "first"]
    assert "there is no run 'gone'" in mlcd("runs", "rm", "gone", "-y", code=2)
    with Store(home) as store:
        assert all(name not in each.run_id for each in store.runs())
        store.check()


def test_a_run_that_has_not_ended_is_kept(mlcd: Mlcd, home: Path, tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text(JOB.format(name="open", goal="{minimize: time}"))
    name = mlcd.json("train", "open.yaml", "--search-only")["run_id"]
    assert "has not ended" in mlcd("runs", "rm", "first", name, "-y", code=2)
    assert names(mlcd.json("runs")) == ["open", "second", "first"], "nothing is removed unless all can be"
    with Store(home) as store, store.lock(name):
        assert "is running now" in mlcd("runs", "rm", name, "-y", "--force", code=2)
    assert mlcd.json("runs", "rm", name, "-y", "--force") == {"removed": [name]}


@pytest.mark.nodes
@pytest.mark.waits
def test_the_log_of_a_failure_is_named_and_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "job.yaml").write_text(PRINTS)
    code = run(["train", str(tmp_path / "job.yaml")])
    said = capsys.readouterr().out
    assert code == 6
    (line,) = [line for line in said.splitlines() if line.startswith("Log of the newest failure: ")]
    assert Path(line.partition(": ")[2]).read_text() == "hello from 0\n"
    mlcd = Mlcd(capsys)
    assert mlcd("logs") == "hello from 0\n"
    assert mlcd("logs", "prints", "--trial", "1", "--node", "0", "-f") == "hello from 0\n"
    (log,) = mlcd.json("logs")["logs"]
    assert (log["role"], log["step"], log["node"], log["bytes"]) == ("trial", 1, 0, 13)
    assert mlcd("logs", "--paths").strip() == log["file"] == mlcd.json("show")["log"]
    assert "has no trial 2; allowed: 1 to 1" in mlcd("logs", "--trial", "2", code=2)
    assert "no log of node 5; allowed: 0" in mlcd("logs", "--node", "5", code=2)
    assert "leave out --paths" in mlcd("logs", "-f", "--paths", code=2)


def test_logs_that_a_job_replaced_are_skipped(tmp_path: Path) -> None:
    leases = tmp_path / "work" / "run" / "leases"
    for name, text in (("good", json.dumps({"instance": "x"})), ("bad", "{"), ("odd", "[]")):
        (leases / name / "node-0").mkdir(parents=True)
        (leases / name / "job.json").write_text(text)
        (leases / name / "node-0" / "log.txt").write_text("hello\n")
    (leases / "link").symlink_to(tmp_path)
    (leases / "good" / "node-1").mkdir()
    (leases / "good" / "node-1" / "log.txt").symlink_to("/etc/passwd")
    found = {lease.lease: lease for lease in lease_logs(tmp_path, "run")}
    assert set(found) == {"good", "odd"}
    assert [log.node for log in found["good"].nodes] == [0]
    assert lease_logs(tmp_path, "other") == ()
