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
MISTAKES = {
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
    "serving elsewhere": Mistake(("serve", "m.onnx", "--on", "aws"), ("--on", "allowed: local")),
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
    "ending on no cloud": Mistake(("down", "--on", "nocloud"), ("nocloud", "local, minicloud"), 7),
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
