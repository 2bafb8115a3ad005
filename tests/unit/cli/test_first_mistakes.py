"""Mistakes that new users make: each is one line that names it and what to do, with the right exit code.

A mistake in a job file must be named with its line. tests/integration/test_cli.py has the first 90 kinds,
test_hostile_inputs.py what is meant to hurt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlcd.cli.main import run

TRAIN = """\
name: t
resources: {infra: sim/aws, instance_type: [g5.xlarge, g6.xlarge]}
num_nodes: 1..5
job: {model: resnet152, samples: 50000, epochs: 1}
goal: {minimize: time}
"""
LOCAL = "name: l\nworkdir: .\nrun: python x.py\nresources: {infra: local}\njob: {samples: 9}\ngoal: {minimize: time}\n"
SERVE = "name: s\nmodel: m.onnx\ngoal: {maximize: rate, slo: {p99: 50ms}}\n"
LANGUAGE = """\
name: c
server: {run: 'python x.py $PORT $SEQS', path: /v1/completions}
model: m
knobs: {SEQS: [1, 2]}
goal: {maximize: tokens per dollar, slo: {ttft_p99: 1s}}
"""
SERVERLESS = """\
name: f
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.5}
functions: 1..4
memory: [1769]
goal: {minimize: time, budget: 3 USD}
"""
FILES = {
    "job.yaml": TRAIN,
    "serve.yaml": SERVE,
    "train.py": "print(1)\n",
    "x.py": "",
    "n.ipynb": "{}",
    "m.onnx": "none",
    "m.pt": "PK",
    "m.gguf": "GGUF",
    "m.safetensors": "x",
    "text.yaml": "hello\n",
    "twice.yaml": f"{TRAIN}name: x\n",
    "two.yaml": f"{TRAIN}---\na: 1\n",
}
SEARCH = "goal: {minimize: time}"


@dataclass(frozen=True)
class Mistake:
    """Arguments, what the message must have, its exit code, the text of bad.yaml, and variables of the environment."""

    args: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 2
    job: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def wrong(command: str, right: str, old: str, new: str, says: tuple[str, ...], code: int = 2) -> Mistake:
    """The job `right` with a mistake: the message must name the first line that differs."""
    assert old in right
    job = right.replace(old, new, 1)
    lines = zip(right.split("\n"), job.split("\n"), strict=False)
    line = next(number for number, (one, other) in enumerate(lines, 1) if one != other)
    return Mistake((command, "bad.yaml"), (f"bad.yaml:{line}: ", *says), code, job)


def train(old: str, new: str, *says: str) -> Mistake:
    return wrong("train", TRAIN, old, new, says)


def local(old: str, new: str, *says: str) -> Mistake:
    return wrong("train", LOCAL, old, new, says)


def serve(old: str, new: str, *says: str) -> Mistake:
    return wrong("serve", SERVE, old, new, says)


def serverless(old: str, new: str, *says: str, code: int = 2) -> Mistake:
    return wrong("serverless", SERVERLESS, old, new, says, code)


def data(text: str, *says: str) -> Mistake:
    return train("job:", f"data: {{{text}}}\njob:", "data.", *says)


def knobs(text: str, *says: str) -> Mistake:
    return local("job:", f"knobs: {text}\njob:", *says)


def command(old: str, new: str, *says: str) -> Mistake:
    return wrong("serve", LANGUAGE, old, new, says)


def not_yaml(line: int, job: str, *says: str) -> Mistake:
    return Mistake(("train", "bad.yaml"), (f"bad.yaml:{line}: ", *says), job=job)


def spot(search: str, *says: str) -> Mistake:
    right = TRAIN.replace("sim/aws,", "sim/aws, use_spot: any,")
    return wrong("train", right, SEARCH, f"{SEARCH}\nsearch: {{spot: {search}}}", ("search.spot", *says))


MISTAKES = {
    "a goal in one word": train(
        SEARCH, "goal: fastest", "goal: must be a mapping", "{minimize: ..., deadline: ..., budget"
    ),
    "a goal in another currency": train(SEARCH, "goal: {minimize: time, budget: 10 EUR}", "US dollars only"),
    "a deadline by the clock": train(SEARCH, "goal: {minimize: time, deadline: '18:00'}", "6h30m", "2026-12-01T18:00Z"),
    "a deadline of ISO 8601": train(SEARCH, "goal: {minimize: time, deadline: PT6H}", "goal.deadline: not a duration"),
    "a type in capitals": train("g6.xlarge", "G6.XLarge", "did you mean 'g6.xlarge'?"),
    "types in one text": train(
        "[g5.xlarge, g6.xlarge]", "'g5.xlarge, g6.xlarge'", "did you mean '[g5.xlarge, g6.xlarge]'?"
    ),
    "a type of Azure": train("g6.xlarge", "Standard_NC6s_v3", "unknown instance type of aws"),
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
        "instance_type: [g5.xlarge, g6.xlarge]", "accelerators: 8xH100", "did you mean 'H100:8'?"
    ),
    "accelerators with an x": train(
        "instance_type: [g5.xlarge, g6.xlarge]", "accelerators: 8 x H100", "did you mean 'H100:8'?"
    ),
    "gpus at the top": train("num_nodes", "gpu: 4\nnum_nodes", "did you mean 'resources.gpus'?"),
    "spot at the top": train("num_nodes", "spot: true\nnum_nodes", "did you mean 'resources.use_spot'?"),
    "nodes": train("num_nodes", "nodes", "did you mean 'num_nodes'?"),
    "a job in TOML": Mistake(
        ("train", "bad.yaml"), ("bad.yaml:1: must be a mapping", "`mlcd init`"), job="name = 't'\n"
    ),
    "a web page": Mistake(
        ("train", "bad.yaml"), ("bad.yaml:1: must be a mapping", "`mlcd init`"), job="<html>404</html>"
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
        ("serve", "bad.yaml"), ("is a job for `mlcd train`", "mlcd train bad.yaml"), job=TRAIN
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
    "prices from a job file": Mistake(
        ("catalog", "refresh", "--from", "job.yaml"), ("job.yaml: is no table of prices", "aws/vms.csv")
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
    "a type with a typo": train("[g5.xlarge, g6.xlarge]", "[g5.xlarg]", "did you mean 'g5.xlarge'?"),
    "a type as a mapping": train("[g5.xlarge, g6.xlarge]", "{a: 1}", "instance_type", "must be text"),
    "a glob of nothing": train("[g5.xlarge, g6.xlarge]", "[zz9.*]", "no instance type of aws matches"),
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
    "a knob without values": knobs("{a: []}", "knobs.a: must not be empty"),
    "knobs as a list": knobs("[a, b]", "knobs: must be a mapping", "{precision: [fp32, bf16]}"),
    "knobs with nothing behind": knobs("", "knobs: has no value"),
    "a value twice": knobs("{a: [1, 2, 1]}", "knobs.a: has the value 1 twice"),
    "a range backwards": knobs("{a: 8..1}", "did you mean '1..8'?"),
    "a range of fractions": knobs("{a: 0.1..0.5}", "knobs.a: is not a range of whole numbers", "[0.1, 0.5]"),
    "a range with a step": knobs("{a: 0..8..2}", "knobs.a: is not a range of whole numbers"),
    "half a range": knobs("{a: 4..}", "knobs.a: is not a range of whole numbers"),
    "ten million values": knobs("{a: 1..10000000}", "knobs.a: has too many values", "at most 1,000"),
    "a value that is no number": knobs("{a: [.nan, 1]}", "bad.yaml:5: knobs.a[0]: must be a finite number"),
    "values in values": knobs("{a: [[1], [2]]}", "knobs.a[0]: must be a number, text, true or false"),
    "a condition on no knob": knobs("{a: {values: [1, 2], when: {b: 1}}}", "knobs.a.when.b: there is no such knob"),
    "a condition on itself": knobs("{a: {values: [1, 2], when: {a: 1}}}", "knobs.a.when.a: is the knob itself"),
    "a condition that never holds": knobs(
        "{b: [x, z], a: {values: [1, 2], when: {b: y}}}", "b never has the value 'y'", "allowed: x, z"
    ),
    "how memory changes": knobs("{a: {values: [1, 2], memory: more}}", "knobs.a.memory", "rises, falls"),
    "a knob that changes learning": knobs(
        "{lr: {values: [0.1, 0.2], changes: learning}}", "knobs.lr: changes learning", "job.target such as"
    ),
    "value for values": knobs("{a: {value: [1, 2]}}", "did you mean 'values'?"),
    "a ready set with a typo": knobs("{preset: fspd}", "did you mean 'fsdp'?"),
    "an exclusion of nothing": knobs("{a: [1, 2], exclude: [{a: 3}]}", "knobs.exclude[0].a: a never has the value 3"),
    "an exclusion of everything": knobs("{a: [1, 2], exclude: [{a: [1, 2]}]}", "excludes every combination"),
    "a knob called PATH": knobs("{PATH: [1, 2]}", "would overwrite the variable PATH"),
    "a knob with a dash": knobs("{batch-size: [1, 2]}", "letters, digits and _"),
    "knobs and a strategy without them": local(
        "job:", "search: {strategy: paris}\nknobs: {a: [1, 2]}\njob:", "paris does not search knobs"
    ),
    "a knob that is a variable too": knobs("{a: [1, 2]}\nenvs: {A: 3}", "knobs.a: is also a variable of envs"),
    "knobs on a simulated cloud": train(
        "num_nodes", "knobs: {a: [1, 2]}\nnum_nodes", "sim/aws runs no script that could use them"
    ),
    "spot by another word": train("sim/aws,", "sim/aws, use_spot: maybe,", "must be true, false or any"),
    "spot of both kinds": train("sim/aws,", "sim/aws, use_spot: both,", "did you mean 'any'?"),
    "spot with yes": train("sim/aws,", "sim/aws, use_spot: 'yes',", "did you mean 'true'?"),
    "spot on this machine": local("local}", "local, use_spot: any}", "local has no spot market", "allowed: false"),
    "only spot on this machine": local(
        "local}", "local, use_spot: true}", "local has no spot market", "allowed: false"
    ),
    "interruptions in words": spot("{interruptions_per_hour: often}", "is not a rate", "0.05"),
    "fewer interruptions than none": spot("{interruptions_per_hour: -1}", "is out of range", "at most 60"),
    "interruptions of no type": spot(
        "{interruptions_per_hour: {'p9.*': 0.1}}", "matches no instance type of the job", "g5.xlarge, g6.xlarge"
    ),
    "seconds with a unit": spot("{save_seconds: 20s}", "save_seconds: must be a number", "did you mean '20'?"),
    "spot rules as a flag": spot("true", "must be a mapping", "{interruptions_per_hour: ..., save_seconds: ...}"),
    "spot rules without spot": train(
        "goal: {minimize: time}", "goal: {minimize: time}\nsearch: {spot: {save_seconds: 9}}", "use_spot: any"
    ),
    "no clouds": train("sim/aws", "[]", "resources.infra: must not be empty"),
    "a cloud twice": train("sim/aws", "[sim/aws, sim/aws]", "resources.infra[1]: names sim/aws twice"),
    "a cloud and this machine": train("sim/aws", "[sim/aws, local]", "local cannot be one of several clouds"),
    "simulated and real": train("sim/aws", "[sim/aws, aws]", "all are simulated, or none is"),
    "a cloud with a typo": train("sim/aws", "[sim/aws, sim/gpc]", "did you mean 'sim/gcp'?"),
    "a refusal with a typo": train("sim/aws", "[sim/aws, sim/gcp/no-acess]", "did you mean 'sim/gcp/no-access'?"),
    "a cloud in a mapping": train("sim/aws", "{cloud: aws}", "resources.infra: must be text"),
    "a price at no place": train(
        "sim/aws,", "[sim/aws, sim/gcp], prices: {'g5.xlarge (azure)': 1},", "did you mean 'g5.xlarge (aws)'?"
    ),
    "a price of nothing": train("sim/aws,", "sim/aws, prices: {g5.xlarge: 0},", "a price must be more than $0"),
    "part of a GPU in a cloud": train("sim/aws,", "sim/aws, gpus: 0.5,", "resources.gpus", "infra: local"),
    "more GPUs than a node has": train("sim/aws,", "sim/aws, gpus: 3,", "no type has this number of GPUs (got 3)"),
    "GPUs in words": local("local}", "local, gpus: all}", "resources.gpus: is not a number of GPUs"),
    "half a sample": train("50000", "1000.5", "job.samples: must be a whole number"),
    "a described model, half": local("samples: 9", "samples: 9, model: {parameters: 1e9}", "layers: is missing"),
    "data without a size": data("location: aws/us-east-1", "size: is missing", "200 GB"),
    "data in bits": data("location: aws/us-east-1, size: 5 Gbit", "size: is not a size", "200 GB"),
    "data in a bucket": data("location: 's3://b/x', size: 5 GB", "CLOUD/REGION", "data.egress"),
    "a trial with more data": data("location: aws, size: 5 GB, trial_size: 6 GB", "at most data.size"),
    "bandwidth in bytes": data("location: aws, size: 5 GB, bandwidth: 5 GB/s", "5 Gbps"),
    "egress in words": data("location: aws, size: 5 GB, egress: free", "0.09 USD/GB, or 0"),
    "a list with a gap": Mistake(("train", "job.yaml", "--on", "sim/aws,,sim/gcp"), ("--on: has an empty name",)),
    "a page on a large port": Mistake(("ui", "--port", "99999"), ("--port", "0<=x<=65535", "mlcd ui --help")),
    "a page of no run": Mistake(("ui", "nosuch", "--no-open"), ("no run 'nosuch'", "mlcd runs")),
    "a page on another machine": Mistake(
        ("ui", "--host", "192.0.2.1", "--no-open"), ("--host: 192.0.2.1 is not an address of this machine", "0.0.0.0")
    ),
    "a page of no results": Mistake(
        ("ui", "--bench", "none.json", "--no-open"), ("--bench: none.json cannot be read",)
    ),
    "a host with a scheme": Mistake(("ui", "--allow-host", "http://x/"), ("--allow-host: is not a host name",)),
    "a store of another kind": Mistake(("runs",), ("MLCD_STORE", "mysql://..."), env={"MLCD_STORE": "mysql://a/b"}),
    "a store without a scheme": Mistake(
        ("runs",), ("MLCD_STORE", "does not begin with postgresql://"), env={"MLCD_STORE": "postgres//x"}
    ),
    "a home that is a file": Mistake(("runs",), ("Not a directory", "MLCD_HOME"), code=1, env={"MLCD_HOME": "x.py"}),
    "a picture of another kind": Mistake(("report", "--format", "jpg"), ("'jpg' is not one of", "'png'")),
    "files without a folder": Mistake(("serve", "m.onnx", "--write", "compose"), ("--write", "`mlcd serve --help`")),
    "a page on no address": Mistake(("ui", "--host", "", "--no-open"), ("--host: has no value", "127.0.0.1")),
    "a folder that is a file": local("workdir: .", "workdir: x.py", "workdir: is a file", "a folder with the job's"),
    "a job on the web": Mistake(
        ("train", "https://example.com/job.yaml"), ("fetches no job files: download it first",)
    ),
    "a latency below nothing": serve("50ms", "-5ms", "goal.slo.p99: is not a latency"),
    "no latency at all": serve("{p99: 50ms}", "{}", "goal.slo: must have exactly one percentile"),
    "the lowest cost of any rate": serve("maximize: rate", "minimize: cost", "goal.rate such as 500/s"),
    "nodes of a server": serve("goal:", "num_nodes: 2\ngoal:", "resources: {replicas: 1..3}"),
    "a size in words": serve("goal:", "sizes: {batch: x}\ngoal:", "sizes.batch: must be a whole number"),
    "functions below nothing": serverless("1..4", "-1..4", "functions: is not a number of functions"),
    "a workload with a typo": serverless("logistic", "logistc", "did you mean 'logistic'?"),
    "a memory size twice": serverless("[1769]", "[1769, 1769]", "memory[1]: is given twice"),
    "functions of two clouds": serverless("sim/lambda", "[sim/lambda, sim/aws]", "takes one cloud"),
    "knobs of functions": serverless("goal:", "knobs: {a: [1]}\ngoal:", "knobs: unknown field"),
    "a range with a dash": train("1..5", "1-5", "num_nodes: is not a number of nodes", "did you mean '1..5'?"),
    "a range in words": train("1..5", "1 to 5", "did you mean '1..5'?"),
    "a range with three dots": train("1..5", "1...5", "did you mean '1..5'?"),
    "a budget per hour": train("time}", "time, budget: 5 USD/h}", "goal.budget: not an amount of money", "100 USD"),
    "a deadline without a unit": train("time}", "time, deadline: 6}", "goal.deadline: a duration needs a unit"),
    "the least money": train("minimize: time", "minimize: money", "goal.minimize", "did you mean 'cost'?"),
    "goals": train("goal:", "goals:", "did you mean 'goal'?"),
    "a budget at the top": train("goal:", "budget: 5 USD\ngoal:", "did you mean 'goal.budget'?"),
    "one epoch": train("epochs", "epoch", "did you mean 'epochs'?"),
    "a batch by PyTorch's name": train("epochs: 1", "epochs: 1, batch_size: 32", "did you mean 'batch'?"),
    "thousands with a comma": train("50000", "50,000", "the comma before it split an amount"),
    "a cloud at the top": train("num_nodes", "infra: sim/aws\nnum_nodes", "did you mean 'resources.infra'?"),
    "several types": train("instance_type", "instance_types", "did you mean 'instance_type'?"),
    "a cloud in capitals": train("sim/aws", "AWS", "did you mean 'aws'?"),
    "a script with a typo": local("x.py", "trian.py", "run: starts trian.py", "did you mean train.py?"),
    "a script without python": local("python x.py", "x.py", "run: starts x.py", "did you mean python x.py?"),
    "a Python that is not there": local(
        "python x.py", "python3.99 x.py", "run: starts python3.99", "did you mean python"
    ),
    "a folder that is not there": local("workdir: .", "workdir: src", "workdir: there is no such folder"),
    "a command": local("run:", "command:", "did you mean 'run'?"),
    "one variable": local("run:", "env: {A: 1}\nrun:", "did you mean 'envs'?"),
    "a latency in seconds without a unit": serve("50ms", "0.05", "a latency needs a unit", "did you mean '0.05s'?"),
    "a latency of no percentile": serve("{p99: 50ms}", "50ms", "goal.slo: must be a mapping", "{p99: 50ms}"),
    "functions in one text": serverless("1..4", "'1,2,4'", "functions: is not a number of functions", "[1, 2, 4, 8]"),
    "a loss in percent": serverless("0.5", "50%", "workload.target_loss", "did you mean '0.5'?"),
    "serving a model by its name": Mistake(
        ("serve", "meta-llama/Llama-3.1-8B"), ("there is no such file", "mlcd init llm.yaml -t vllm")
    ),
    "this machine with a typo": Mistake(("train", "job.yaml", "--on", "lokal"), ("--on", "did you mean 'local'?")),
    "no cloud to simulate": Mistake(("train", "job.yaml", "--on", "sim"), ("--on: name the cloud", "sim/CLOUD")),
    "a decimal comma": Mistake(("train", "job.yaml", "--budget", "1,5 USD"), ("--budget", "a decimal point as .")),
    "a day without a time": Mistake(("train", "job.yaml", "--deadline", "2030-01-01"), ("--deadline", "its zone")),
    "an option with a typo": Mistake(("train", "job.yaml", "--dryrun"), ("did you mean '--dry-run'?",)),
    "a command with a typo": Mistake(("trian", "job.yaml"), ("did you mean 'train'?",)),
    "a template with a typo": Mistake(("init", "z.yaml", "-t", "torch"), ("--template", "did you mean 'pytorch'?")),
    "an accelerator with a typo": Mistake(("catalog", "h1000"), ("did you mean 'H100'?",)),
    "set-up as a list": local("job:", "setup: [pip install x]\njob:", "setup: must be text"),
    "a command as a list": local("python x.py", "[python, x.py]", "run: must be text"),
    "outputs by a pattern": local("job:", "outputs: ['*.pt']\njob:", "patterns are not expanded"),
    "checkpoints in a folder": local("job:", "checkpoints: ./ckpt\njob:", "checkpoints: must be true or false"),
    "a platform of another library": local("job:", "platform: jax\njob:", "pytorch, tensorflow, mxnet, command"),
    "a topology of no platform": local(
        "job:", "platform: {name: pytorch, topology: mesh}\njob:", "is not a topology of pytorch", "ring, ps"
    ),
    "a loop of one's own": local("job:", "progress: {steps: my.steps}\njob:", "progress.steps", "allowed: mlcd.steps"),
    "a group with a typo": local("job:", "progress: {pattern: '(?P<sample>1)'}\njob:", "names none of the groups"),
    "progress in another folder": local("job:", "progress: {file: /tmp/x}\njob:", "inside the working folder"),
    "a variable with a dash": local("job:", "envs: {MY-VAR: 1}\njob:", "envs.MY-VAR: is not a valid variable name"),
    "a variable of several values": local("job:", "envs: {A: [1, 2]}\njob:", "envs.A: must be text"),
    "secrets with their values": local("job:", "secrets: {TOKEN: geheim}\njob:", "secrets: takes names only"),
    "mounts as a list": local("job:", "file_mounts: [a, b]\njob:", "file_mounts: must be a mapping"),
    "resources in one word": local("{infra: local}", "local", "resources: must be a mapping", "{infra: ..."),
    "a disk": local("infra: local", "infra: local, disk_size: 100", "resources.disk_size: not supported yet"),
    "a number of accelerators that no node has": train(
        "instance_type: [g5.xlarge, g6.xlarge]", "accelerators: 'H100:3'", "did you mean 'H100:1'?"
    ),
    "accelerators by their number": train(
        "instance_type: [g5.xlarge, g6.xlarge]", "accelerators: 8", "did you mean 'resources.gpus: 8'?"
    ),
    "node counts of some types": train("1..5", "{'g5.*': 1..3}", "num_nodes: has globs but no default"),
    "nodes with a unit": train("1..5", "2 nodes", "num_nodes: is not a number of nodes"),
    "thousands of dollars by a letter": train("time}", "time, budget: 5k USD}", "goal.budget: not an amount of money"),
    "half a duration": train("time}", "time, deadline: 1h30}", "goal.deadline: not a duration", "6h30m"),
    "a month that there is not": train("time}", "time, deadline: '2030-13-01T10:00Z'}", "not a date and time"),
    "steps of a training": train(
        "epochs: 1", "max_steps: 9", "job.max_steps: not supported yet; write samples instead"
    ),
    "a learning rate of a job": train("epochs: 1", "learning_rate: 1", "write it at the top of the file"),
    "several batches of a job": train("epochs: 1", "batch: [32, 64]", "batch: [32, 64] at the top of the file"),
    "a target with a sign": local(
        "samples: 9", "samples: 9, target: {metric: a, value: '>0.9'}", "job.target.value: must be a number"
    ),
    "the search in one word": train(SEARCH, f"{SEARCH}\nsearch: auto", "search: must be a mapping"),
    "a seed in a file": train(SEARCH, f"{SEARCH}\nsearch: {{seed: 3}}", "search.seed", "--seed on the command line"),
    "a timeout of a search": train(SEARCH, f"{SEARCH}\nsearch: {{timeout: 1h}}", "did you mean 'goal.deadline'?"),
    "kept work without checkpoints": wrong(
        "train", LOCAL, SEARCH, f"{SEARCH}\nsearch: {{work: kept}}", ("search.work", "add checkpoints: true")
    ),
    "a grid search": train(SEARCH, f"{SEARCH}\nsearch: {{strategy: grid}}", "did you mean 'exhaustive'?"),
    "tabs": not_yaml(3, "name: t\nresources:\n\tinfra: local\n", "indent with spaces, not tabs"),
    "no space after a colon": not_yaml(1, TRAIN.replace("name: t", "name:t"), "write a space after the colon"),
    "a line that is too deep": not_yaml(
        3, "name: t\nnum_nodes: 1\n  run: python x.py\n", "it is indented more than the line before"
    ),
    "a quote that is never closed": not_yaml(1, TRAIN.replace("name: t", "name: 't"), "is never closed"),
    "quotes of a word processor": train("name: t", "name: “t”", "did you mean 't'?"),
    "an anchor": train("resources: {", "resources: &r {", "YAML anchors are not allowed"),
    "a placeholder": train("name: t", "name: {{ name }}", "a field's name must be text"),
    "another knob of a server": serve("goal:", "knobs: {workers: 2}\ngoal:", "knobs.workers: unknown field", "threads"),
    "headroom in percent": serve("goal:", "load: {headroom: 30%}\ngoal:", "load.headroom", "did you mean '0.3'?"),
    "the least latency": serve("maximize: rate", "minimize: latency", "is limited, not minimized", "slo: {p99: 50ms}"),
    "two percentiles": serve("p99: 50ms", "p99: 50ms, p50: 9ms", "must have exactly one percentile"),
    "a limit at the top": serve("goal:", "slo: {p99: 50ms}\ngoal:", "did you mean 'goal.slo'?"),
    "a latency of the command line without a unit": Mistake(
        ("serve", "m.onnx", "--slo", "p99=50"), ("--slo: a latency needs a unit", "did you mean '50ms'?")
    ),
    "two limits on the command line": Mistake(
        ("serve", "m.onnx", "--slo", "p99=50ms", "--slo", "p50=9ms"), ("--slo: must have exactly one percentile",)
    ),
    "weights for llama.cpp": Mistake(("serve", "m.gguf"), ("mlcd init llm.yaml -t llamacpp",)),
    "weights alone": Mistake(("serve", "m.safetensors"), ("weights without their model", "torch.onnx.export")),
    "serving a script": Mistake(("serve", "train.py"), ("a script, not an ONNX file", "server.run")),
    "a knob that the command does not use": command("SEQS: [1, 2]", "SEQ: [1, 2]", "knobs.SEQ: is not used"),
    "a latency of a language model": command("ttft_p99: 1s", "p99: 1s", "did you mean 'e2e_p99'?"),
    "a server without a port": command("$PORT ", "", "must listen on $PORT"),
    "an address for a path": command("/v1/completions", "http://h/v1", "server.path: is not a path"),
    "a learning rate of functions": serverless("target_loss: 0.5", "lr: 1", "did you mean 'rate'?"),
    "workers": serverless("functions: 1..4", "workers: 4", "did you mean 'functions'?"),
    "a function that is too large": serverless("[1769]", "[20 GB]", "memory", "128 to 10,240 MB"),
    "a field as an option": Mistake(
        ("train", "job.yaml", "--epochs", "5"), ("'--epochs'; in the job file it is job.epochs",)
    ),
    "a knob as an option": Mistake(("serve", "m.onnx", "--batch", "4"), ("in the job file it is knobs.batch",)),
    "help as a command": Mistake(("help",), ("did you mean '--help'?",)),
    "another tool's command": Mistake(("stop", "x"), ("did you mean 'down'?",)),
    "a job file that is a script": Mistake(("init", "train.py"), ("mlcd init -t pytorch --script train.py",)),
    "types beside refresh": Mistake(("catalog", "refresh", "g5.*"), ("refresh: takes no patterns",)),
    "a page in another format": Mistake(("demo", "--out", "x.pdf"), ("--out: the page is HTML",)),
    "a state that there is not": Mistake(("runs", "--status", "ok"), ("--status: there is no such state", "done")),
    "a shell of Windows": Mistake(("completion", "powershell"), ("'powershell' is not one of", "fish")),
    "a benchmark of no time": Mistake(("bench", "train", "--sim", "--hours", "0"), ("--hours: must be positive",)),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_clear_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLCD_SKY_PYTHON", str(tmp_path / "none"))
    monkeypatch.delenv("MLCD_STORE", raising=False)
    for name, value in mistake.env.items():
        monkeypatch.setenv(name, value)
    for name, text in {**FILES, "bad.yaml": mistake.job}.items():
        (tmp_path / name).write_text(text)
    assert run(mistake.args) == mistake.code, capsys.readouterr().err
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mlcd: ")
    assert said.err.count("\n") == 1
    assert "bug" not in said.err
    assert "geheim" not in said.err
    for part in mistake.says:
        assert part in said.err


def test_mounts_that_are_ignored_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    (tmp_path / "x.py").touch()
    job = tmp_path / "job.yaml"
    job.write_text(f"{LOCAL}file_mounts: {{/data: ./data}}\n")
    assert run(("train", str(job), "--dry-run")) == 0
    assert "local mounts nothing: file_mounts is ignored" in capsys.readouterr().out


def test_data_that_a_simulation_ignores_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    job = tmp_path / "job.yaml"
    job.write_text(SERVERLESS.replace("{model", "{data: nosuch, model"))
    assert run(("serverless", str(job), "--dry-run")) == 0
    assert "sim/lambda reads no data: workload.data is ignored" in capsys.readouterr().out
    job.write_text(SERVERLESS)
    assert run(("serverless", str(job), "--dry-run")) == 0
    assert "workload.data" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "field", ["region: us-west-2", "zone: us-east-1a", "image_id: ami-1"], ids=["region", "zone", "image"]
)
def test_what_a_simulated_cloud_ignores_is_said(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    job = tmp_path / "job.yaml"
    job.write_text(TRAIN.replace("sim/aws,", f"sim/aws, {field},"))
    assert run(("train", str(job), "--dry-run")) == 0
    name = field.partition(":")[0]
    assert f"sim/aws has one region and no images: resources.{name} is ignored" in capsys.readouterr().out


def test_a_simulated_cloud_has_the_jobs_prices_and_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`prices` and `gpus` were ignored on simulated clouds."""
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    job = tmp_path / "job.yaml"
    types = "instance_type: [g5.xlarge, g5.12xlarge]"
    asked = "instance_type: [g5.xlarge, g5.12xlarge], gpus: 4, prices: {g5.12xlarge: 600}"
    job.write_text(TRAIN.replace("instance_type: [g5.xlarge, g6.xlarge]", types).replace("1..5", "1"))
    assert run(("train", str(job), "--dry-run")) == 0
    assert "2 deployments of 2 instance types" in capsys.readouterr().out
    job.write_text(job.read_text().replace(types, asked))
    assert run(("train", str(job), "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "1 deployment of 1 instance type" in said
    assert "$100.00" in said  # ten minutes at $600 an hour


def test_the_store_command_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It was a refusal with the whole help on one line."""
    assert run(("store",)) == 0
    said = capsys.readouterr()
    assert "Commands:\n" in said.out
    assert said.err == ""


def test_a_job_in_another_encoding_is_told_the_right_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_bytes(TRAIN.encode("utf-16"))
    assert run(("train", str(job))) == 2
    assert "job.yaml:1: is not UTF-8 text" in (said := capsys.readouterr().err)
    assert "saves as UTF-8" in said
