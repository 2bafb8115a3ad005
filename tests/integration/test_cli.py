"""The command line as its users meet it: answers, exit codes, and one clear message for every kind of bad input."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.unmeasured import UNMEASURED

from mlcd.cli.main import COMMANDS, run
from mlcd.report.as_json import schema
from mlcd.spec import template

MLCD = [sys.executable, "-c", "from mlcd.cli.main import main; main()"]

SMALL = """\
name: small
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]}
num_nodes: 1..8
job: {model: resnet152, samples: 50000, epochs: 10}
goal: {minimize: time, budget: 40 USD}
search: {max_trials: 6}
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Mlcd = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with its own home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    for name in ("MLCD_CATALOG", "MLCD_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "job.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def mlcd(folder: Path, capsys: pytest.CaptureFixture[str]) -> Mlcd:
    def call(*args: str) -> Answer:
        capsys.readouterr()
        code = run(args)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


def process(*args: str, folder: Path, **more: Any) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "MLCD_HOME": str(folder / "home"), **more.pop("env", {})}
    return subprocess.run(
        [*MLCD, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False, **more
    )


# ---- what works


def test_demo_shows_progress_a_verdict_and_where_the_report_is(mlcd: Mlcd, folder: Path) -> None:
    answer = mlcd("demo")
    assert answer.code == 0
    for part in ("SIMULATED", "Chosen: ", "Receipt", "Speed (samples/s) over nodes", str(folder / "mlcd-demo.html")):
        assert part in answer.out
    for part in ("spent", "reserved", "left", "best so far"):
        assert part in answer.err
    page = (folder / "mlcd-demo.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<svg" in page


def test_demo_is_the_same_every_time(mlcd: Mlcd) -> None:
    def told() -> Any:
        result = mlcd("demo", "-o", "json").json
        return {key: value for key, value in result.items() if key not in ("run_id", "created")}

    assert told() == told()


def test_train_json_follows_the_schema_and_keeps_standard_output_clean(mlcd: Mlcd) -> None:
    answer = mlcd("train", "job.yaml", "-o", "json")
    jsonschema.validate(answer.json, dict(schema()))
    assert answer.code == answer.json["exit_code"] == 0
    assert answer.json["receipt"]["total_usd"] <= 40
    assert "Search ended" in answer.err


def test_train_takes_the_command_line_over_the_file(mlcd: Mlcd) -> None:
    flags = ["--budget", "30 USD", "--deadline", "20h", "--strategy", "random:steps=3", "--parallel", "2"]
    result = mlcd("train", "job.yaml", *flags, "--seed", "4", "-o", "json").json
    assert (result["goal"]["budget_usd"], result["goal"]["deadline_seconds"]) == (30, 72000)
    assert (result["strategy"], result["parallel"], result["seed"]) == ("random:steps=3", 2, 4)


def test_train_draws_a_picture(mlcd: Mlcd, folder: Path) -> None:
    assert mlcd("train", "job.yaml", "--picture", "speed.svg").code == 0
    assert (folder / "speed.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_dry_run_spends_and_writes_nothing(mlcd: Mlcd, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    answer = mlcd("train", "job.yaml", "--dry-run")
    assert answer.code == 0
    for part in ("24 deployments of 3 instance types", "$40.00", "a trial, at worst", "1 x ", "First trial"):
        assert part in answer.out
    plan = mlcd("train", "job.yaml", "--dry-run", "-o", "json").json
    assert plan["configurations"] == 24
    assert plan["trial_planned_usd"][0] < plan["trial_worst_usd"][0]
    (first,) = plan["first_trials"]
    assert plan["trial_worst_usd"][0] <= first["authorised_usd"] <= plan["trial_worst_usd"][-1]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("parallel", ["1", "3"])
def test_a_dry_run_shows_the_round_that_the_run_begins_with(mlcd: Mlcd, parallel: str) -> None:
    flags = ("train", "job.yaml", "--parallel", parallel, "--budget", "4", "--strategy", "random", "-o", "json")
    names = ("config", "reason", "authorised_usd", "authorised_seconds")
    shown = [tuple(trial[name] for name in names) for trial in mlcd(*flags, "--dry-run").json["first_trials"]]
    trials = mlcd(*flags).json["trials"]
    assert shown == [tuple(trial[name] for name in names) for trial in trials if trial["round"] == 1]
    assert len(shown) <= int(parallel)


def test_excluded_types_are_noted(mlcd: Mlcd, folder: Path) -> None:
    (folder / "spot.yaml").write_text(SMALL.replace("p3.2xlarge]", "p3.2*], use_spot: true"))
    said = "excluded, no spot market: p3.2xlarge"
    assert said in mlcd("train", "spot.yaml", "--dry-run").out
    assert mlcd("train", "spot.yaml", "--dry-run", "-o", "json").json["notes"] == [said]
    answer = mlcd("train", "spot.yaml")
    assert answer.code == 0
    assert answer.err.startswith(f"Note: {said}\n")
    assert mlcd("train", "job.yaml", "--dry-run", "-o", "json").json["notes"] == []


def test_a_dry_run_says_when_nothing_can_fit(mlcd: Mlcd) -> None:
    answer = mlcd("train", "job.yaml", "--dry-run", "--budget", "0.01")
    assert answer.code == 3
    assert "Nothing fits: one trial of 1 x c5.xlarge alone may need" in answer.out


def test_search_only_stops_at_the_verdict_and_train_continues_it(mlcd: Mlcd) -> None:
    searched = mlcd("train", "job.yaml", "--search-only", "-o", "json")
    assert (searched.code, searched.json["status"], searched.json["exit_code"]) == (0, "searched", 0)
    assert searched.json["choice"] is not None
    assert searched.json["training"] is None
    name = searched.json["run_id"]
    assert f"mlcd train {name}" in mlcd("show", name).out
    assert mlcd("train", name, "--search-only", "-o", "json").json["status"] == "searched"  # nothing is left to search
    for option in (("--budget", "3"), ("--dry-run",), ("--seed", "1")):
        refused = mlcd("train", name, *option)
        assert (refused.code, option[0] in refused.err) == (2, True)
    trained = mlcd("train", name[:-1], "-o", "json")
    assert (trained.code, trained.json["status"]) == (0, "done")
    assert trained.json["trials"] == searched.json["trials"]
    assert trained.json["training"]["instance"] == searched.json["choice"]["config"]["instance"]
    assert mlcd("train", name, "-o", "json").json["status"] == "done"
    whole = mlcd("train", "job.yaml", "-o", "json").json
    assert whole["receipt"]["total_usd"] == trained.json["receipt"]["total_usd"]


def test_search_only_ends_a_run_that_finds_nothing(mlcd: Mlcd) -> None:
    assert mlcd("train", "job.yaml", "--search-only", "--budget", "0.01", "-o", "json").json["status"] == "infeasible"


def test_a_file_of_a_runs_name_is_a_job(mlcd: Mlcd, folder: Path) -> None:
    name = mlcd("train", "job.yaml", "--search-only", "-o", "json").json["run_id"]
    (folder / name).write_text(SMALL)
    assert mlcd("train", name, "-o", "json").json["run_id"] != name


def test_a_dry_run_of_a_strategy_without_trials(mlcd: Mlcd) -> None:
    assert "paleo chooses without trials" in mlcd("train", "job.yaml", "--dry-run", "--strategy", "paleo").out


def test_init_writes_a_job_that_runs_and_keeps_what_is_there(mlcd: Mlcd, folder: Path) -> None:
    assert mlcd("init", "my job!.yaml").code == 0
    assert "name: my-job\n" in (folder / "my job!.yaml").read_text(encoding="utf-8")
    assert mlcd("train", "my job!.yaml", "--dry-run").code == 0
    refused = mlcd("init")
    assert refused.code == 2
    assert "--force" in refused.err
    assert (folder / "job.yaml").read_text() == SMALL
    assert mlcd("init", "--force", "-o", "json").json == {
        "file": "job.yaml",
        "template": "simulated",
        "command": "mlcd train job.yaml",
        "file_is_kept": False,
    }
    assert (folder / "job.yaml").read_text(encoding="utf-8") == template()


def test_runs_show_report_and_resume_a_finished_run(mlcd: Mlcd, folder: Path) -> None:
    assert "no runs" in mlcd("runs").out
    assert mlcd("runs", "-o", "json").json == {"runs": []}
    first = mlcd("train", "job.yaml", "-o", "json").json
    run_id = first["run_id"]
    assert run_id in mlcd("runs").out
    (listed,) = mlcd("runs", "-o", "json").json["runs"]
    assert (listed["run_id"], listed["status"], listed["trials"]) == (run_id, "done", len(first["trials"]))
    assert listed["live"] is False
    assert listed["spent_usd"] == pytest.approx(first["receipt"]["total_usd"])
    assert mlcd("show", "small", "-o", "json").json == first
    again = mlcd("resume", run_id, "-o", "json")
    assert again.json == first
    assert f"{run_id} has ended (done): nothing was run" in again.err
    assert "Receipt" in mlcd("show", run_id).out
    assert mlcd("report", run_id[:7]).code == 0
    assert (folder / f"{run_id}.html").exists()
    for kind in ("speed", "money", "tradeoff"):
        wrote = mlcd("report", run_id, "--picture", kind, "-o", "json").json
        file = f"{run_id}-{kind}.svg"
        assert wrote == {"run_id": run_id, "kind": "train", "file": file, "files": [file]}
        assert (folder / wrote["file"]).read_text(encoding="utf-8").startswith("<svg")
    unknown = mlcd("report", run_id, "--picture", "sped")
    assert unknown.code == 2
    assert (
        f"{run_id} has no picture 'sped'; allowed: speed, map, tradeoff, money, timeline; did you mean 'speed'?"
        in unknown.err
    )


def test_catalog_filters_sorts_and_names_its_date_and_sources(mlcd: Mlcd) -> None:
    text = mlcd("catalog", "p3.*").out
    for part in ("p3.16xlarge", "3 of ", "as of 2026-08-01", "days old", "Prices: ", "aws-62 (62)"):
        assert part in text
    found = mlcd("catalog", "--cloud", "gcp", "--gpu", "--spot", "--sort", "price", "-o", "json").json
    prices = [instance["usd_per_hour"] for instance in found["instances"]]
    assert prices
    assert prices == sorted(prices)
    assert all(i["accelerators"] and i["spot_usd_per_hour"] and i["cloud"] == "gcp" for i in found["instances"])
    assert len(mlcd("catalog", "aws-62", "-o", "json").json["instances"]) == 62
    assert len(mlcd("catalog", "-o", "json").json["instances"]) >= 150
    for nothing in (("c5.*", "--gpu"), ("zz*",), ("zz*", "--cloud", "gcp")):
        answer = mlcd("catalog", *nothing)
        assert (answer.code, answer.out) == (0, "No instance type matches these filters.\n")
    assert mlcd("catalog", "zz*", "-o", "json").json["instances"] == []
    for key in ("name", "vcpus", "memory", "network"):
        assert mlcd("catalog", "c5.*", "--sort", key).code == 0


def test_catalog_shows_few_sources_and_only_those_of_the_clouds_shown(mlcd: Mlcd) -> None:
    few, every = mlcd("catalog", "p3.*").out, mlcd("catalog", "p3.*", "--sources").out
    assert "8 more notes" in few
    assert "Network, aws c4" in every
    assert "Network, aws c4" not in few
    for text in (few, every):
        assert "Network, gcp" not in text
        assert "gcp-gpu" not in text
    assert "Network, gcp" in mlcd("catalog", "--cloud", "gcp", "--sources").out
    assert len(mlcd("catalog", "p3.*", "-o", "json").json["sources"]) > 10


def test_catalog_shows_what_a_users_file_overrides(mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own.csv").write_text("cloud,name,usd_per_hour\naws,c5.large,0.05\n")
    monkeypatch.setenv("MLCD_CATALOG", "own.csv")
    (instance,) = mlcd("catalog", "c5.large", "-o", "json").json["instances"]
    assert instance["usd_per_hour"] == 0.05
    assert "1 rows are from own.csv" in mlcd("catalog", "c5.large").out
    assert "overridden by own.csv" in mlcd("check").out


def test_check_reports_what_works(mlcd: Mlcd, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = mlcd("check")
    assert answer.code == 0
    for part in (
        "Python 3.",
        "schema ",
        "sim/aws",
        "docs/replay.md",
        "local",
        "minicloud",
        "kubernetes",
        "docs/catalog.md",
    ):
        assert part in answer.out
    told = mlcd("check", "-o", "json").json
    assert told["ok"]
    assert {"what", "state", "text"} == set(told["findings"][0])
    monkeypatch.setattr("mlcd.extras.find_spec", lambda name: None)
    monkeypatch.setattr("mlcd.cli.check.OLD_DAYS", -1)
    monkeypatch.setattr("mlcd.cli.catalog.OLD_DAYS", -1)
    again = mlcd("check").out
    assert "scikit-learn" in again
    assert "OLD, check them before you spend" in again


def test_help_and_version(mlcd: Mlcd) -> None:
    answer = mlcd("--help")
    assert answer.code == 0
    for name in ("train", "demo", "init", "check", "runs", "show", "resume", "report", "catalog"):
        assert f"  {name} " in answer.out
    assert mlcd("--version").out.startswith("mlcd 0.")
    for name in COMMANDS[:9]:
        assert mlcd(name, "-h").code == 0


# ---- exit codes of answers


def test_nothing_can_fit_is_3(mlcd: Mlcd) -> None:
    answer = mlcd("train", "job.yaml", "--budget", "0.01")
    assert answer.code == 3
    assert "Nothing fits these limits" in answer.out


def test_nothing_measured_fits_is_4(mlcd: Mlcd) -> None:
    answer = mlcd("train", "job.yaml", "--budget", "0.30")
    assert answer.code == 4
    assert "Nearest way out" in answer.out


def test_overrunning_is_5(mlcd: Mlcd) -> None:
    codes = {
        mlcd("train", "job.yaml", "--strategy", "convbo", "--budget", "14", "--seed", str(s)).code for s in range(6)
    }
    assert 5 in codes


def test_every_trial_failing_is_6(mlcd: Mlcd, folder: Path) -> None:
    big = SMALL.replace("resnet152", "zero-20b").replace("[c5.xlarge, c5.4xlarge, p3.2xlarge]", "[c5.xlarge]")
    (folder / "big.yaml").write_text(big)
    answer = mlcd("train", "big.yaml")
    assert answer.code == 6
    assert "Every trial failed" in answer.out


# ---- permission to spend


CHARGED = """
from dataclasses import replace
from mlcd.jobs import train
plain = train.simulated
train.simulated = lambda *given: replace(plain(*given), charged=True)
"""
"""A simulated cloud for which somebody is charged."""


def test_real_money_off_a_terminal_needs_yes(mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcd.jobs.resolved_job import simulated

    monkeypatch.setattr("mlcd.jobs.train.simulated", lambda *given: replace(simulated(*given), charged=True))
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        answer = mlcd("train", "job.yaml")
    assert answer.code == 2
    assert "at most $40.00" in answer.err
    assert "give -y" in answer.err
    assert not (folder / "home").exists()
    assert mlcd("train", "job.yaml", "-y").code == 0


@pytest.mark.parametrize(("reply", "code"), [("n\n", 2), ("y\n", 0)])
def test_real_money_on_a_terminal_is_asked_for(folder: Path, reply: str, code: int) -> None:
    script = CHARGED + "from mlcd.cli.main import main; main()"
    ours, theirs = pty.openpty()
    os.write(ours, reply.encode())
    done = subprocess.run(
        [sys.executable, "-c", script, "train", "job.yaml"],
        cwd=folder, stdin=theirs, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "This spends real money on sim/aws: at most $40.00. Continue?" in done.stderr
    assert ("nothing was spent" in done.stderr) == (code == 2)


def test_simulated_clouds_never_ask(folder: Path) -> None:
    assert process("train", "job.yaml", folder=folder, stdin=subprocess.DEVNULL).returncode == 0


# ---- bad input


@dataclass(frozen=True)
class Bad:
    """One kind of bad input: what is there, what is typed, and what must come back."""

    args: tuple[str, ...]
    code: int
    says: tuple[str, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def job(old: str, new: str) -> dict[str, str]:
    assert old in SMALL
    return {"bad.yaml": SMALL.replace(old, new)}


TRAIN_BAD = ("train", "bad.yaml")
INSTANCES = "instance,vcpus,memory_gib,usd_per_hour\na,2,4,0.1\n"

REAL = """\
name: real
run: "true"

job: {samples: 100, epochs: 2, batch: 192}
goal: {minimize: time, budget: 40 USD}
"""


def real(line: str) -> dict[str, str]:
    """A real job with `line` as its third."""
    return {"bad.yaml": REAL.replace("\n\n", f"\n{line}\n")}


BAD: dict[str, Bad] = {
    # the command line
    "unknown command": Bad(("trian", "job.yaml"), 2, ("'trian'", "did you mean 'train'?")),
    "command like no other": Bad(("xyzzy",), 2, ("'xyzzy'", "allowed: demo, init")),
    "unknown option": Bad(("train", "job.yaml", "--bugdet", "3"), 2, ("--bugdet", "did you mean '--budget'")),
    "unknown global option": Bad(("--verbsion",), 2, ("--verbsion", "did you mean '--version'")),
    "missing argument": Bad(("train",), 2, ("missing argument", "`mlcd train --help`")),
    "extra argument": Bad(("show", "a", "all"), 2, ("unexpected extra argument", "all")),
    "a job file where a run is meant": Bad(("resume", "job.yaml"), 2, ("no run 'job.yaml'", "name of a job file")),
    "unknown subcommand": Bad(("runs", "all"), 2, ("no such command", "all", "mlcd runs --help")),
    "option without value": Bad(("train", "job.yaml", "--budget"), 2, ("--budget", "requires an argument")),
    "unknown output": Bad(("runs", "-o", "xml"), 2, ("'xml'", "json")),
    "seed not a number": Bad(("train", "job.yaml", "--seed", "lucky"), 2, ("--seed", "'lucky'")),
    "seed negative": Bad(("demo", "--seed", "-1"), 2, ("--seed", "0<=x")),
    "budget negative": Bad(("train", "job.yaml", "--budget", "-5 USD"), 2, ("--budget", "negative")),
    "budget zero": Bad(("train", "job.yaml", "--budget", "0"), 2, ("--budget", "0")),
    "budget not money": Bad(("train", "job.yaml", "--budget", "lots"), 2, ("--budget", "'lots'", "100 USD")),
    "budget in euros": Bad(("train", "job.yaml", "--budget", "90 EUR"), 2, ("--budget", "EUR")),
    "deadline without unit": Bad(("train", "job.yaml", "--deadline", "6"), 2, ("--deadline", "unit")),
    "deadline in the past": Bad(("train", "job.yaml", "--deadline", "2001-01-01T00:00Z"), 2, ("--deadline", "past")),
    "parallel zero": Bad(("train", "job.yaml", "--parallel", "0"), 2, ("--parallel", "at least 1")),
    "unknown strategy": Bad(("train", "job.yaml", "--strategy", "hetrbo"), 2, ("did you mean 'heterbo'?",)),
    "unknown strategy option": Bad(("train", "job.yaml", "--strategy", "heterbo:prun=off"), 2, ("prun", "prune")),
    "bad strategy option": Bad(("train", "job.yaml", "--strategy", "heterbo:prune=maybe"), 2, ("'maybe'", "on, off")),
    "unknown cloud": Bad(("train", "job.yaml", "--on", "sim/awz"), 2, ("'sim/awz'", "did you mean 'sim/aws'?")),
    "unknown kind of cloud": Bad(("train", "job.yaml", "--on", "slrum"), 2, ("--on", "did you mean 'slurm'?")),
    "no cloud simulated": Bad(("train", "job.yaml", "--on", "sim"), 2, ("--on", "sim/CLOUD")),
    "no folder replayed": Bad(("train", "job.yaml", "--on", "replay/"), 2, ("--on", "name the folder")),
    "picture of another kind": Bad(("train", "job.yaml", "--picture", "x.png"), 2, ("--picture", "'x.png'", ".svg")),
    "report's picture of another kind": Bad(("report", "x", "--picture", "speed", "--out", "x.png"), 2, (
        "--out", ".svg")),
    "cloud of later": Bad(("train", "job.yaml", "--on", "lithops/localhost"), 7, ("mlcd serverless", "sim/aws")),
    "no command to run": Bad(("train", "job.yaml", "--on", "local"), 2, ("run", "a real job needs", "python train.py")),
    "no such working folder": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "workdir", "no such folder"), real("workdir: nowhere")),
    "a secret that is not there": Bad(TRAIN_BAD, 2, ("NO_SUCH is not", "export"), real("secrets: [NO_SUCH]")),
    "no credentials": Bad((*TRAIN_BAD, "--on", "gcp"), 7, ("gcp",), real(""), {"HOME": "/nowhere"}),
    "no such type here": Bad(
        TRAIN_BAD, 2, ("bad.yaml:3", "instance_type", "local.1"), real("resources: {instance_type: m.small}")
    ),
    "more nodes than processors": Bad(TRAIN_BAD, 2, ("num_nodes", "no room"), real("num_nodes: [192]")),
    "trained without a count": Bad(
        TRAIN_BAD, 2, ("job.samples", "missing"), {"bad.yaml": REAL.replace("job:", "progress: {file: p.jsonl}  #")}
    ),
    "picture in no folder": Bad(("train", "job.yaml", "--picture", "no/where.svg"), 2, ("no/where.svg", "no folder")),
    "report into a folder": Bad(("demo", "--out", "."), 2, ("is a folder",)),
    "init in no folder": Bad(("init", "no/where.yaml"), 2, ("no/where.yaml", "no folder")),
    "init over a file": Bad(("init", "job.yaml"), 2, ("job.yaml already exists", "--force")),
    "unknown run to show": Bad(("show", "nosuch-123"), 2, ("'nosuch-123'", "mlcd runs")),
    "unknown run to resume": Bad(("resume", "nosuch-123"), 2, ("'nosuch-123'",)),
    "unknown run to report": Bad(("report", "nosuch-123"), 2, ("'nosuch-123'",)),
    "unknown type in catalog": Bad(("catalog", "p3.2xlrge"), 2, ("'p3.2xlrge'", "did you mean 'p3.2xlarge'?")),
    "unknown cloud in catalog": Bad(("catalog", "--cloud", "asw"), 2, ("'asw'", "allowed: aws, azure, gcp")),
    "set of another cloud in catalog": Bad(("catalog", "--cloud", "aws", "gcp-gpu"), 2, ("gcp, not of aws",)),
    "unknown sort": Bad(("catalog", "--sort", "colour"), 2, ("'colour'", "price")),
    # the job file
    "no such file, none like it": Bad(("train", "nosuch.yaml"), 2, ("nosuch.yaml: there is no such file",)),
    "no such file": Bad(("train", "jb.yaml"), 2, ("jb.yaml", "no such file", "did you mean 'job.yaml'?")),
    "a directory": Bad(("train", "."), 2, ("directory",)),
    "empty file": Bad(TRAIN_BAD, 2, ("bad.yaml:1", "empty", "mlcd init"), {"bad.yaml": ""}),
    "not YAML": Bad(TRAIN_BAD, 2, ("bad.yaml:", "not YAML"), {"bad.yaml": "name: [a\ngoal: }"}),
    "not text": Bad(TRAIN_BAD, 2, ("bad.yaml", "UTF-8"), {"bad.yaml": b"name: \xff\xfe\x00"}),
    "not a mapping": Bad(TRAIN_BAD, 2, ("bad.yaml", "mapping"), {"bad.yaml": "- a\n- b\n"}),
    "YAML that would run code": Bad(TRAIN_BAD, 2, ("bad.yaml:1",), {"bad.yaml": "!!python/name:os.getcwd\n"}),
    "unknown field": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_node", "num_nodes"), job("num_nodes:", "num_node:")),
    "no goal": Bad(TRAIN_BAD, 2, ("goal",), job("goal: {minimize: time, budget: 40 USD}\n", "")),
    "unknown objective": Bad(TRAIN_BAD, 2, ("bad.yaml:5", "goal.minimize", "time, cost, knee"), job("time,", "fun,")),
    "negative money": Bad(TRAIN_BAD, 2, ("bad.yaml:5", "goal.budget", "negative"), job("40 USD", "-40 USD")),
    "empty range": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_nodes"), job("1..8", "8..1")),
    "no nodes": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_nodes"), job("1..8", "[]")),
    "half a node": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_nodes"), job("1..8", "0.5")),
    "unknown instance": Bad(TRAIN_BAD, 2, ("bad.yaml:2", "'p3.2xlrge'", "did you mean 'p3.2xlarge'?"), job(
        "p3.2xla", "p3.2xl")),
    "amount without quotes": Bad(TRAIN_BAD, 2, ("bad.yaml:5", "quotes"), job("40 USD", "1,000 USD")),
    "nodes of no chosen type": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_nodes['m5*']"), job(
        "1..8", "{default: 1, m5*: 2}")),
    "far too large a space": Bad(TRAIN_BAD, 2, ("bad.yaml:3", "num_nodes", "300,000", "100,000"), job(
        "1..8", "1..100000")),
    "more nodes than samples": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.batch"), job("1..8", "600")),
    "a measured job's field": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.hours"), job("epochs: 10", "hours: 10")),
    "types of another cloud": Bad(TRAIN_BAD, 2, ("aws-62", "gcp"), job(
        "infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]", "infra: sim/gcp, instance_type: aws-62")),
    "no type": Bad(TRAIN_BAD, 2, ("instance_type", "empty"), job("[c5.xlarge, c5.4xlarge, p3.2xlarge]", "[]")),
    "spot where there is none": Bad(TRAIN_BAD, 2, ("bad.yaml:2", "p3.2xlarge", "spot"), job(
        "2xlarge]", "2xlarge], use_spot: true")),
    "unknown model": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.model", "'resnet15'", "resnet152"), job(
        "resnet152", "resnet15")),
    "no model": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.model"), job("model: resnet152, ", "")),
    "no samples": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.samples"), job("samples: 50000, ", "")),
    "negative samples": Bad(TRAIN_BAD, 2, ("bad.yaml:4", "job.samples"), job("50000", "-1")),
    "assurance of 1": Bad(TRAIN_BAD, 2, ("search.assurance",), job("max_trials: 6", "assurance: 1")),
    "no trials": Bad(TRAIN_BAD, 2, ("search.max_trials",), job("max_trials: 6", "max_trials: 0")),
    "a name for no file": Bad(TRAIN_BAD, 2, ("bad.yaml:1", "name"), job("name: small", "name: ../small")),
    # measured tables
    "no replay folder": Bad(("train", "job.yaml", "--on", "replay/nowhere"), 2, ("nowhere", "no such folder")),
    "replay without instances": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("instances.csv",), {
        "t/small.csv": ""}),
    "replay without workload": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("no workload",), {
        "t/instances.csv": INSTANCES}),
    "replay of other types": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("job.yaml:2", "'c5.xlarge'"), {
        "t/instances.csv": INSTANCES, "t/small.csv": "instance,nodes,seconds\na,1,100\n"}),
    "replay of another workload": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("'small'", "'smell'"), {
        "t/instances.csv": INSTANCES, "t/smell.csv": "instance,nodes,seconds\na,1,100\n"}),
    "replay with a bad number": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("small.csv:2", "seconds"), {
        "t/instances.csv": INSTANCES, "t/small.csv": "instance,nodes,seconds\na,1,soon\n"}),
    "replay of an unknown type": Bad(("train", "job.yaml", "--on", "replay/t"), 2, ("'b'", "instances.csv"), {
        "t/instances.csv": INSTANCES, "t/small.csv": "instance,nodes,seconds\nb,1,100\n"}),
    # the user's catalog
    "no catalog file": Bad(("catalog",), 2, ("own.csv", "cannot be read"), env={"MLCD_CATALOG": "own.csv"}),
    "price 0": Bad(("train", "job.yaml"), 2, ("own.csv:2", "usd_per_hour", "above 0"), {
        "own.csv": "cloud,name,usd_per_hour\naws,c5.large,0\n"}, {"MLCD_CATALOG": "own.csv"}),
    "spot dearer than on demand": Bad(("train", "job.yaml"), 2, ("own.csv:2", "spot"), {
        "own.csv": "cloud,name,usd_per_hour,spot_usd_per_hour\naws,c5.large,0.1,0.2\n"}, {"MLCD_CATALOG": "own.csv"}),
    "unknown catalog field": Bad(("catalog",), 2, ("own.csv:1", "prize"), {
        "own.csv": "cloud,name,prize\naws,c5.large,1\n"}, {"MLCD_CATALOG": "own.csv"}),
    "catalog of another kind": Bad(("catalog",), 2, ("own.txt", ".csv"), {"own.txt": "x"}, {"MLCD_CATALOG": "own.txt"}),
    # the state
    "home is a file": Bad(("train", "job.yaml"), 1, ("MLCD_HOME",), {"afile": "x"}, {"MLCD_HOME": "afile"}),
    "home below a file": Bad(("runs",), 1, ("MLCD_HOME",), {"afile": "x"}, {"MLCD_HOME": "afile/home"}),
    "home that cannot be made": Bad(("demo",), 1, ("MLCD_HOME",), env={"MLCD_HOME": "/proc/mlcd"}),
    "not a database": Bad(("runs",), 1, ("mlcd.sqlite3", "damaged"), {
        "home/mlcd.sqlite3": "no database, just text" * 99}),
    "a folder as database": Bad(("runs",), 1, ("mlcd.sqlite3",), {"home/mlcd.sqlite3/x": ""}),
}  # fmt: skip


def takes_output(bad: Bad) -> bool:
    """Whether `-o json` can stand after the arguments."""
    return "-o" not in bad.args and not bad.args[-1].startswith("--")


CASES = [(kind, ()) for kind in BAD] + [(kind, ("-o", "json")) for kind, bad in BAD.items() if takes_output(bad)]


@pytest.mark.parametrize(("kind", "more"), CASES, ids=[" ".join((kind, *more)) for kind, more in CASES])
def test_bad_input_gives_one_message_and_the_right_code(
    kind: str, more: tuple[str, ...], mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = BAD[kind]
    for name, content in bad.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    for name, value in bad.env.items():
        monkeypatch.setenv(name, value)
    answer = mlcd(*bad.args, *more)
    assert_refused(answer, bad.code, *bad.says)


def assert_refused(answer: Answer, code: int, *says: str) -> None:
    assert answer.code == code, answer
    assert "Traceback" not in answer.err
    assert "unexpected" not in answer.err or "extra argument" in answer.err
    message = answer.err.splitlines()[-1]
    assert message.startswith("mlcd: ")
    assert sum(line.startswith("mlcd: ") for line in answer.err.splitlines()) == 1
    for part in says:
        assert part in message
    assert answer.out == ""


def test_there_are_at_least_forty_kinds() -> None:
    assert len(BAD) >= 40


# ---- bad state


def test_a_damaged_database_is_named(mlcd: Mlcd, folder: Path) -> None:
    mlcd("train", "job.yaml")
    database = folder / "home" / "mlcd.sqlite3"
    data = bytearray(database.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    database.write_bytes(bytes(data))
    for rest in ("-wal", "-shm"):
        database.with_name(database.name + rest).unlink(missing_ok=True)
    assert_refused(mlcd("runs"), 1, "mlcd.sqlite3", "damaged")


def test_a_newer_schema_is_not_touched(mlcd: Mlcd, folder: Path) -> None:
    (folder / "home").mkdir()
    with sqlite3.connect(folder / "home" / "mlcd.sqlite3") as db:
        db.execute("PRAGMA user_version = 99")
    assert_refused(mlcd("train", "job.yaml"), 1, "newer mlcd", "schema 99", "upgrade")
    told = mlcd("check", "-o", "json")
    assert told.code == 1
    assert not told.json["ok"]


def test_a_full_disk_keeps_what_was_paid(mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mlcd("train", "job.yaml").code == 0
    connect = sqlite3.connect

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
        return db

    monkeypatch.setattr("mlcd.store.opening.sqlite3.connect", small)
    (folder / "wide.yaml").write_text(SMALL.replace("1..8", "1..400"))
    assert_refused(mlcd("train", "wide.yaml"), 1, "the disk is full", "free some space")
    monkeypatch.setattr("mlcd.store.opening.sqlite3.connect", connect)
    assert len(mlcd("runs", "-o", "json").json["runs"]) >= 1


def test_a_prefix_of_two_runs_is_not_guessed_and_a_jobs_name_is_its_newest_run(mlcd: Mlcd) -> None:
    mlcd("train", "job.yaml")
    mlcd("train", "job.yaml", "--seed", "1")
    assert_refused(mlcd("show", "smal"), 2, "'smal'")
    newest = mlcd("runs", "-n", "1", "-o", "json").json["runs"][0]["run_id"]
    shown = mlcd("show", "small")
    assert shown.code == 0
    assert newest in shown.err


def test_a_run_that_another_process_holds_is_refused(mlcd: Mlcd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcd.store.rows import count_rows, set_count
    from mlcd.store.store import FILE, Store
    from mlcd.trial.outcome import Status

    run_id = mlcd("train", "job.yaml", "-o", "json").json["run_id"]
    with closing(sqlite3.connect(folder / "home" / FILE)) as db, db:
        db.row_factory = sqlite3.Row
        db.execute("DELETE FROM findings")  # as if it had not ended
        set_count(db, run_id, count_rows(db, run_id))
    with Store(folder / "home") as store:
        store.set_status(run_id, Status.INTERRUPTED)
        with store.lock(run_id):
            assert_refused(mlcd("resume", run_id), 1, run_id, "another mlcd process")


def test_a_killed_run_shows_as_stopped_and_how_to_resume(mlcd: Mlcd, folder: Path) -> None:
    from mlcd.store.store import Store
    from mlcd.trial.outcome import Status

    run_id = mlcd("train", "job.yaml", "-o", "json").json["run_id"]
    with Store(folder / "home") as store:
        store.set_status(run_id, Status.RUNNING)
        with store.lock(run_id):
            assert "stopped" not in (text := mlcd("runs").out)
            assert "running" in text
            assert mlcd("runs", "-o", "json").json["runs"][0]["live"] is True
    text = mlcd("runs").out
    assert "stopped" in text
    assert "running" not in text
    assert f"mlcd resume {run_id}" in text
    (listed,) = mlcd("runs", "-o", "json").json["runs"]
    assert (listed["status"], listed["live"]) == ("running", False)


# ---- the edge


def test_too_little_memory_is_no_bug(mlcd: Mlcd, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mlcd.jobs.train.prepare", exhaust)
    answer = mlcd("train", "job.yaml")
    assert answer.code == 1
    assert answer.err.startswith("mlcd: there is not enough memory for this command: ")


def test_a_bug_is_one_line_and_a_traceback_only_on_request(mlcd: Mlcd, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("mlcd.jobs.train.prepare", broken)
    answer = mlcd("train", "job.yaml")
    assert answer.code == 1
    assert answer.err == (
        "mlcd: unexpected ZeroDivisionError: two lines; this is a bug in mlcd: set MLCD_DEBUG=1 for the traceback\n"
    )
    monkeypatch.setenv("MLCD_DEBUG", "1")
    assert "Traceback" in mlcd("train", "job.yaml").err


def test_ctrl_c_outside_a_run_is_130(mlcd: Mlcd, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlcd.catalog.load_catalog", interrupted)
    answer = mlcd("catalog")
    assert answer.code == 130
    assert answer.err.strip() == "mlcd: interrupted"


def test_ctrl_c_in_a_run_is_130_and_the_run_can_be_resumed(folder: Path) -> None:
    long = SMALL.replace("max_trials: 6", "max_trials: 60, strategy: exhaustive").replace("1..8", "1..40")
    (folder / "long.yaml").write_text(long.replace(", budget: 40 USD", ""))
    env = {**os.environ, **UNMEASURED, "MLCD_HOME": str(folder / "home")}
    started = subprocess.Popen(
        [*MLCD, "train", "long.yaml", "-o", "json"],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stderr is not None
    for _ in range(6):
        started.stderr.readline()
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert "Traceback" not in err
    assert out == ""
    hint = next(line for line in err.splitlines() if line.startswith("mlcd: "))
    run_id = hint.partition("mlcd resume ")[2].partition("`")[0]
    resumed = process("resume", run_id, "-o", "json", folder=folder)
    assert resumed.returncode == 0, resumed.stderr
    whole = process("train", "long.yaml", "-o", "json", folder=folder)
    names = ("trials", "choice", "receipt", "stopped", "status")
    assert [json.loads(resumed.stdout)[n] for n in names] == [json.loads(whole.stdout)[n] for n in names]


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    env = {**os.environ, "MLCD_HOME": str(folder / "home")}
    reader = subprocess.Popen(
        [*MLCD, "catalog"], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == ""
    reader.wait(timeout=60)
    reader.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_reported(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MLCD, "catalog"], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "mlcd: the output cannot be written: the disk is full: free some space and try again\n"


def test_ascii_terminals_get_ascii(folder: Path) -> None:
    done = process("demo", folder=folder, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).isascii()


# ---- weight


def loaded(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # coverage has a weight too
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    names = done.stdout.split("\n")[-2].split()
    return {*names, *(name.partition(".")[0] for name in names)}


HEAVY = {"numpy", "scipy", "torch", "sklearn", "joblib", "yaml", "sqlite3", "filelock", "onnx", "lithops"}
HEAVY |= {"rich", "jinja2", "markupsafe"}


def test_importing_mlcd_is_light() -> None:
    assert not loaded("import mlcd") & HEAVY


def test_help_is_light() -> None:
    assert not loaded("from mlcd.cli.main import run\nrun(['--help'])") & HEAVY


def test_json_needs_no_terminal_and_no_page() -> None:
    printed = "from mlcd.cli.main import run\nrun(['catalog', 'c5.*', '-o', 'json'])"
    assert not loaded(printed) & {"rich", "jinja2"}
    assert "rich" in loaded(printed.replace(", '-o', 'json'", ""))


def test_no_command_loads_a_whole_package_of_statistics() -> None:
    found = loaded("import mlcd.api, mlcd.kinds, mlcd.engine.loop, mlcd.cli.train")
    assert "scipy.special" in found
    assert "scipy.stats" not in found  # it would double the start-up time


def test_the_catalog_needs_no_mathematics() -> None:
    assert not loaded("from mlcd.cli.main import run\nrun(['catalog', 'c5.*', '-o', 'json'])") & {"numpy", "scipy"}


def test_the_core_does_not_need_the_extras() -> None:
    extras = {"torch", "sklearn", "jsonschema", "hypothesis", "onnx", "onnxruntime", "lithops", "gymnasium"}
    assert not loaded("import mlcd\nmlcd.train, mlcd.serve, mlcd.serverless") & extras
