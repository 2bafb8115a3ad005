"""Mistakes that new users make: each is one line that names it and what to do, with the right exit code.

tests/integration/test_cli.py has the first 90 kinds, test_hostile_inputs.py what is meant to hurt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlcd.cli.main import run

TRAIN = """\
name: t
resources: {infra: sim/aws, instance_type: [c5.xlarge, p2.xlarge]}
num_nodes: 1..5
job: {model: resnet152, samples: 50000, epochs: 1}
goal: {minimize: time}
"""
SERVE = "name: s\nmodel: m.onnx\ngoal: {maximize: rate, slo: {p99: 50ms}}\n"
SERVERLESS = """\
name: f
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.5}
functions: 1..4
memory: [1769]
goal: {minimize: time, budget: 3 USD}
"""


@dataclass(frozen=True)
class Mistake:
    """Arguments, what the message must have, and files beside those of every case."""

    args: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 2
    files: Mapping[str, str] = field(default_factory=dict)


def train(old: str, new: str, *says: str) -> Mistake:
    assert old in TRAIN
    return Mistake(("train", "bad.yaml"), ("bad.yaml:", *says), files={"bad.yaml": TRAIN.replace(old, new)})


def serve(old: str, new: str, *says: str) -> Mistake:
    assert old in SERVE
    return Mistake(("serve", "bad.yaml"), ("bad.yaml:", *says), files={"bad.yaml": SERVE.replace(old, new)})


def serverless(old: str, new: str, *says: str, code: int = 2) -> Mistake:
    assert old in SERVERLESS
    files = {"bad.yaml": SERVERLESS.replace(old, new)}
    return Mistake(("serverless", "bad.yaml"), ("bad.yaml:", *says), code, files)


SEARCH = "goal: {minimize: time}"
LOCAL = "name: l\nworkdir: .\nrun: python x.py\nresources: {infra: local}\njob: {samples: 9}\ngoal: {minimize: time}\n"


def local(old: str, new: str, *says: str) -> Mistake:
    assert old in LOCAL
    return Mistake(("train", "bad.yaml"), ("bad.yaml:", *says), files={"bad.yaml": LOCAL.replace(old, new), "x.py": ""})


MISTAKES = {
    "a goal in one word": train(
        SEARCH, "goal: fastest", "goal: must be a mapping", "{minimize: ..., deadline: ..., budget"
    ),
    "a goal in another currency": train(SEARCH, "goal: {minimize: time, budget: 10 EUR}", "US dollars only"),
    "a deadline by the clock": train(SEARCH, "goal: {minimize: time, deadline: '18:00'}", "6h30m", "2026-12-01T18:00Z"),
    "a deadline of ISO 8601": train(SEARCH, "goal: {minimize: time, deadline: PT6H}", "goal.deadline: not a duration"),
    "a type in capitals": train("p2.xlarge", "P2.XLarge", "did you mean 'p2.xlarge'?"),
    "types in one text": train(
        "[c5.xlarge, p2.xlarge]", "'c5.xlarge, p2.xlarge'", "did you mean '[c5.xlarge, p2.xlarge]'?"
    ),
    "a type of Azure": train("p2.xlarge", "Standard_NC6s_v3", "unknown instance type of aws"),
    "a region behind sim/aws": train("sim/aws", "sim/aws/us-east-1", "resources.infra: sim/aws has one region"),
    "thousands": train("50000", "50k", "job.samples: must be a number", "did you mean '50000'?"),
    "millions": train("50000", "1.5M", "did you mean '1500000'?"),
    "no number": train("50000", ".nan", "job.samples: is out of range"),
    "half a batch": train("epochs: 1", "batch: 0.5", "job.batch: must be a whole number"),
    "minutes with a unit": train(SEARCH, f"{SEARCH}\nsearch: {{trial: {{minutes: 5min}}}}", "did you mean '5'?"),
    "seconds of a trial": train(SEARCH, f"{SEARCH}\nsearch: {{trial: {{seconds: 30}}}}", "did you mean 'minutes'?"),
    "a percentage": train(SEARCH, f"{SEARCH}\nsearch: {{noise: 5%}}", "search.noise", "did you mean '0.05'?"),
    "assurance in percent": train(SEARCH, f"{SEARCH}\nsearch: {{assurance: 99}}", "search.assurance: is out of range"),
    "an option without a value": train(SEARCH, f"{SEARCH}\nsearch: {{strategy: 'auto:order'}}", "NAME:OPTION=VALUE"),
    "accelerators the other way": train(
        "instance_type: [c5.xlarge, p2.xlarge]", "accelerators: 8xH100", "did you mean 'H100:8'?"
    ),
    "accelerators with an x": train(
        "instance_type: [c5.xlarge, p2.xlarge]", "accelerators: 8 x H100", "did you mean 'H100:8'?"
    ),
    "gpus at the top": train("num_nodes", "gpu: 4\nnum_nodes", "did you mean 'resources.gpus'?"),
    "spot at the top": train("num_nodes", "spot: true\nnum_nodes", "did you mean 'resources.use_spot'?"),
    "nodes": train("num_nodes", "nodes", "did you mean 'num_nodes'?"),
    "a job in TOML": Mistake(
        ("train", "bad.yaml"), ("bad.yaml:1: must be a mapping", "`mlcd init`"), files={"bad.yaml": "name = 't'\n"}
    ),
    "a web page": Mistake(
        ("train", "bad.yaml"), ("bad.yaml:1: must be a mapping", "`mlcd init`"), files={"bad.yaml": "<html>404</html>"}
    ),
    "a target without a metric": local(
        "{samples: 9}", "{samples: 9, target: 0.9}", "job.target", "{metric: ..., value: ..."
    ),
    "variables as a list": local("job:", "envs: [TOKEN=geheim]\njob:", "envs: must be a mapping", "{NAME: value}"),
    "a secret that is not set": local("job:", "secrets: [NOPE_TOKEN]\njob:", "NOPE_TOKEN is not in your environment"),
    "outputs elsewhere": local(
        "job:", "outputs: [/tmp/model.pt]\njob:", "outputs[0]: must be inside the working folder"
    ),
    "half a pattern": local("job:", "progress: {pattern: '(?P<samples>[0-9'}\njob:", "is not a regular expression"),
    "more nodes than there are": local("job:", "num_nodes: 5000\njob:", "num_nodes", "allowed: at most", "x local.1"),
    "a program that is not there": local("python x.py", "pyhton x.py", "run: starts pyhton", "did you mean python?"),
    "a verification without a unit": serve("goal:", "load: {verify: 10}\ngoal:", "load.verify: has no unit", "10s"),
    "a limit without a unit": serve("50ms", "50", "goal.slo.p99: a latency needs a unit", "did you mean '50ms'?"),
    "a rate by the minute": serve("slo:", "rate: 500/min, slo:", "goal.rate: is not a rate", "500/s"),
    "another percentile": serve("p99", "p90", "goal.slo.p90: is not a percentile that is measured"),
    "a loss below zero": serverless("0.5", "-1", "workload.target_loss: the loss of logistic never gets this low"),
    "memory as a range": serverless("[1769]", "1769MB..3GB", "memory: is not a memory size"),
    "a synchronisation": serverless("goal:", "sync: async\ngoal:", "did you mean 'asp'?"),
    "the wrong command for a file": Mistake(
        ("serve", "bad.yaml"), ("is a job for `mlcd train`", "mlcd train bad.yaml"), files={"bad.yaml": TRAIN}
    ),
    "a host that is none": Mistake(
        ("serve", "m.onnx", "--deploy", "--host", "no host"), ("--host: there is no such address", "127.0.0.1")
    ),
    "a cloud to look at": Mistake(
        ("down", "--on", "minicluod"), ("--on: there is no such cloud", "did you mean 'minicloud'?")
    ),
    "prices from nowhere": Mistake(
        ("catalog", "refresh", "--from", "nosuch.csv"), ("there is no such file or folder",)
    ),
    "a type of no cloud": Mistake(
        ("catalog", "nosuch"), ("no cloud has an instance type or accelerator 'nosuch'", "H100:8")
    ),
    "a run of 5,000 letters": Mistake(("down", "a" * 5000, "-y"), ("no run has a name of 5,000 characters",)),
    "a script": Mistake(("train", "train.py"), ("is a script, not a job file", "run: python train.py", "mlcd init")),
    "a notebook": Mistake(("train", "n.ipynb"), ("is a notebook, not a job file",)),
    "a model to train": Mistake(("train", "m.onnx"), ("is a model, not a job file: mlcd serve m.onnx",)),
    "a text": Mistake(("train", "text.yaml"), ("text.yaml:1: must be a mapping",)),
    "a field twice": Mistake(("train", "twice.yaml"), ("twice.yaml:6: name: given twice; first on line 1",)),
    "two documents": Mistake(("train", "two.yaml"), ("only one document", "remove the ---")),
    "two files": Mistake(("train", "job.yaml", "other.yaml"), ("unexpected extra argument (other.yaml)",)),
    "a serving job to train": Mistake(("train", "serve.yaml"), ("`mlcd serve`", "mlcd serve serve.yaml")),
    "neither file nor run": Mistake(("train", "my-run-3f2a1c"), ("no such file or run", "mlcd runs")),
    "no nodes at all": train("1..5", "0", "num_nodes", "at least 1"),
    "nodes in words": train("1..5", "one", "num_nodes", "'one'"),
    "a count twice": train("1..5", "[1, 1]", "num_nodes", "twice"),
    "an empty place": train("sim/aws", "''", "resources.infra", "not blank"),
    "the provider's name": train("sim/aws", "amazon", "resources.infra", "no such cloud", "sim/aws"),
    "a type with a typo": train("[c5.xlarge, p2.xlarge]", "[c5.xlarg]", "did you mean 'c5.xlarge'?"),
    "a type as a mapping": train("[c5.xlarge, p2.xlarge]", "{a: 1}", "instance_type", "must be text"),
    "a glob of nothing": train("[c5.xlarge, p2.xlarge]", "[zz9.*]", "no instance type of aws matches"),
    "the other spelling": train("minimize", "minimise", "goal.minimise", "did you mean 'minimize'?"),
    "money in words": train("time", "time, budget: ten dollars", "goal.budget", "100 USD"),
    "euros by their sign": train("time", "time, budget: 5€", "goal.budget", "US dollars only"),
    "a deadline in words": train("time", "time, deadline: tomorrow", "goal.deadline", "6h30m"),
    "a deadline before now": train("time", "time, deadline: -1h", "goal.deadline", "negative"),
    "two objectives": train("time", "[time, cost]", "goal.minimize", "time, cost, knee"),
    "no epochs": train("epochs: 1", "epochs: 0", "job.epochs", "more than 0"),
    "epochs as a flag": train("epochs: 1", "epochs: yes", "job.epochs", "must be a number"),
    "a job that is a name": train(
        "{model: resnet152, samples: 50000, epochs: 1}", "resnet", "job: must be a mapping", "'resnet'"
    ),
    "a name with a space": train("name: t", "name: a b", "name", "did you mean 'a-b'?"),
    "no name": train("name: t\n", "", "name: is missing"),
    "an unknown strategy": train(SEARCH, f"{SEARCH}\nsearch: {{strategy: magic}}", "'magic'", "heterbo"),
    "a negative trial": train(SEARCH, f"{SEARCH}\nsearch: {{trial: {{minutes: -2}}}}", "trial.minutes", "more than 0"),
    "noise above 1": train(SEARCH, f"{SEARCH}\nsearch: {{noise: 2}}", "search.noise", "less than 1"),
    "work with a typo": train(SEARCH, f"{SEARCH}\nsearch: {{work: keept}}", "search.work", "did you mean 'kept'?"),
    "an output outside": train(SEARCH, f"{SEARCH}\noutputs: [/tmp/model.pt]", "outputs", "inside the working folder"),
    "a pattern without a group": train(SEARCH, f"{SEARCH}\nprogress: {{pattern: 'step'}}", "progress.pattern", "group"),
    "two ways to report": train(
        SEARCH, f"{SEARCH}\nprogress: {{pattern: '(?P<rate>1)', file: x}}", "progress", "exactly one of"
    ),
    "an empty budget": Mistake(("train", "job.yaml", "--budget", ""), ("--budget", "has no value")),
    "a seed that is a fraction": Mistake(("demo", "--seed", "1.5"), ("--seed", "'1.5' is not a whole number")),
    "a variable that is not set": Mistake(("train", "job.yaml", "--env", "NO_SUCH_X"), ("NO_SUCH_X is not in your",)),
    "a variable without a name": Mistake(("train", "job.yaml", "--env", "=x"), ("--env: the name is missing",)),
    "a preset with a typo": Mistake(("train", "job.yaml", "--strategy", "heterbo:papr"), ("'heterbo:paper'",)),
    "serving nothing": Mistake(("serve",), ("missing argument", "mlcd serve --help")),
    "serving what is not there": Mistake(("serve", "no.onnx"), ("there is no such file", "an ONNX, .pt2 or .pt file")),
    "serving a checkpoint": Mistake(("serve", "m.pt"), ("not a TorchScript file", "torch.export.save")),
    "serving a folder": Mistake(("serve", "."), ("is a folder, not a model",)),
    "a limit in words": Mistake(("serve", "m.onnx", "--slo", "fast"), ("--slo", "p99=50ms")),
    "a limit of nothing": Mistake(("serve", "m.onnx", "--slo", "p99=0"), ("--slo", "50ms")),
    "a rate in words": Mistake(("serve", "m.onnx", "--rate", "many"), ("--rate", "500/s")),
    "a size without a number": Mistake(("serve", "m.onnx", "--size", "x"), ("--size", "AXIS=N")),
    "files of another kind": Mistake(("serve", "m.onnx", "--write", "helm", "x"), ("'helm'", "compose")),
    "serving without SkyPilot": Mistake(("serve", "m.onnx", "--on", "aws"), ("aws", "SkyPilot"), 7),
    "serving on no cloud": Mistake(("serve", "m.onnx", "--on", "sim/aws"), ("--on", "allowed: local")),
    "a latency without a unit": serve("50ms", "50", "goal.slo.p99", "did you mean '50ms'?"),
    "a batch of none": serve("goal:", "knobs: {batch: [0]}\ngoal:", "knobs.batch", "at least 1"),
    "an unknown precision": serve("goal:", "knobs: {precision: [fp8]}\ngoal:", "knobs.precision", "fp32, int8"),
    "an unknown scenario": serve("goal:", "load: {scenario: burst}\ngoal:", "load.scenario", "server"),
    "no functions": serverless("1..4", "0", "functions", "at least 1"),
    "a size that is not sold": serverless("[1769]", "[17]", "memory", "128 to 10,240 MB"),
    "memory in words": serverless("[1769]", "lots", "memory", "megabytes"),
    "a loss in words": serverless("0.5", "low", "workload.target_loss", "must be a number"),
    "functions on nodes": serverless("sim/lambda", "sim/aws", "resources.infra", "sim/lambda"),
    "an unknown back end": serverless("sim/lambda", "lithops/foo", "'foo'", "lithops/localhost", code=7),
    "ending a run that is not": Mistake(("down", "nosuch"), ("no run 'nosuch'", "mlcd runs")),
    "ending on no cloud": Mistake(("down", "--on", "nocloud"), ("nocloud", "local, minicloud")),
    "an unknown benchmark": Mistake(("bench", "trian"), ("'trian'",)),
    "a benchmark of nothing": Mistake(("bench", "train"), ("--tables DIR or --sim",)),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_clear_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLCD_SKY_PYTHON", str(tmp_path / "none"))
    files = {"job.yaml": TRAIN, "serve.yaml": SERVE, "train.py": "print(1)\n", "n.ipynb": "{}", "m.onnx": "none"}
    files |= {
        "m.pt": "PK",
        "text.yaml": "hello\n",
        "twice.yaml": f"{TRAIN}name: x\n",
        "two.yaml": f"{TRAIN}---\na: 1\n",
    }
    for name, text in {**files, **mistake.files}.items():
        (tmp_path / name).write_text(text)
    assert run(mistake.args) == mistake.code, capsys.readouterr().err
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mlcd: ")
    assert said.err.count("\n") == 1
    assert "bug" not in said.err
    for part in mistake.says:
        assert part in said.err


def test_there_are_at_least_forty() -> None:
    assert len(MISTAKES) >= 40
