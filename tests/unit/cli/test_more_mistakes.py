"""Mistakes with knobs, spot nodes, several clouds, data, the live page and the team's store: each is one clear line.

test_first_mistakes.py has those of the first hour.
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
LOCAL = """\
name: l
workdir: .
run: python x.py
resources: {infra: local}
knobs: {a: [1, 2]}
job: {samples: 9}
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
    """Arguments, the job file, what the message must have, its exit code, and variables of the environment."""

    args: tuple[str, ...]
    says: tuple[str, ...]
    job: str = ""
    code: int = 2
    env: Mapping[str, str] = field(default_factory=dict)


def train(old: str, new: str, line: int, *says: str) -> Mistake:
    assert old in TRAIN
    return Mistake(("train", "bad.yaml"), (f"bad.yaml:{line}: ", *says), TRAIN.replace(old, new))


def spot(search: str, line: int, *says: str) -> Mistake:
    job = TRAIN.replace("sim/aws,", "sim/aws, use_spot: any,") + f"search: {{spot: {search}}}\n"
    return Mistake(("train", "bad.yaml"), (f"bad.yaml:{line}: search.spot", *says), job)


def data(text: str, *says: str) -> Mistake:
    return train("job:", f"data: {{{text}}}\njob:", 4, "data.", *says)


def knobs(text: str, *says: str, strategy: str = "auto") -> Mistake:
    job = LOCAL.replace("knobs: {a: [1, 2]}", f"knobs: {text}") + f"search: {{strategy: {strategy}}}\n"
    return Mistake(("train", "bad.yaml"), ("bad.yaml:", *says), job)


def local(old: str, new: str, *says: str) -> Mistake:
    assert old in LOCAL
    return Mistake(("train", "bad.yaml"), ("bad.yaml:", *says), LOCAL.replace(old, new))


def serve(old: str, new: str, *says: str) -> Mistake:
    assert old in SERVE
    return Mistake(("serve", "bad.yaml"), ("bad.yaml:3: ", *says), SERVE.replace(old, new))


def serverless(old: str, new: str, line: int, *says: str) -> Mistake:
    assert old in SERVERLESS
    return Mistake(("serverless", "bad.yaml"), (f"bad.yaml:{line}: ", *says), SERVERLESS.replace(old, new))


MISTAKES = {
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
    "knobs and a strategy without them": knobs("{a: [1, 2]}", "paris does not search knobs", strategy="paris"),
    "a knob that is a variable too": local("job:", "envs: {A: 3}\njob:", "knobs.a: is also a variable of envs"),
    "knobs on a simulated cloud": train(
        "num_nodes", "knobs: {a: [1, 2]}\nnum_nodes", 3, "sim/aws runs no script that could use them"
    ),
    "spot by another word": train("sim/aws,", "sim/aws, use_spot: maybe,", 2, "must be true, false or any"),
    "spot of both kinds": train("sim/aws,", "sim/aws, use_spot: both,", 2, "did you mean 'any'?"),
    "spot with yes": train("sim/aws,", "sim/aws, use_spot: 'yes',", 2, "did you mean 'true'?"),
    "spot on this machine": local("local}", "local, use_spot: any}", "local has no spot market", "allowed: false"),
    "interruptions in words": spot("{interruptions_per_hour: often}", 6, "is not a rate", "0.05"),
    "fewer interruptions than none": spot("{interruptions_per_hour: -1}", 6, "is out of range", "at most 60"),
    "interruptions of no type": spot(
        "{interruptions_per_hour: {'p9.*': 0.1}}", 6, "matches no instance type of the job", "g5.xlarge, g6.xlarge"
    ),
    "seconds with a unit": spot("{save_seconds: 20s}", 6, "save_seconds: must be a number", "did you mean '20'?"),
    "spot rules as a flag": spot("true", 6, "must be a mapping", "{interruptions_per_hour: ..., save_seconds: ...}"),
    "spot rules without spot": train(
        "goal: {minimize: time}", "goal: {minimize: time}\nsearch: {spot: {save_seconds: 9}}", 6, "use_spot: any"
    ),
    "no clouds": train("sim/aws", "[]", 2, "resources.infra: must not be empty"),
    "a cloud twice": train("sim/aws", "[sim/aws, sim/aws]", 2, "resources.infra[1]: names sim/aws twice"),
    "a cloud and this machine": train("sim/aws", "[sim/aws, local]", 2, "local cannot be one of several clouds"),
    "simulated and real": train("sim/aws", "[sim/aws, aws]", 2, "all are simulated, or none is"),
    "a cloud with a typo": train("sim/aws", "[sim/aws, sim/gpc]", 2, "did you mean 'sim/gcp'?"),
    "a refusal with a typo": train("sim/aws", "[sim/aws, sim/gcp/no-acess]", 2, "did you mean 'sim/gcp/no-access'?"),
    "a cloud in a mapping": train("sim/aws", "{cloud: aws}", 2, "resources.infra: must be text"),
    "a price at no place": train(
        "sim/aws,", "[sim/aws, sim/gcp], prices: {'g5.xlarge (azure)': 1},", 2, "did you mean 'g5.xlarge (aws)'?"
    ),
    "a price of nothing": train("sim/aws,", "sim/aws, prices: {g5.xlarge: 0},", 2, "a price must be more than $0"),
    "part of a GPU in a cloud": train("sim/aws,", "sim/aws, gpus: 0.5,", 2, "resources.gpus", "infra: local"),
    "more GPUs than a node has": train("sim/aws,", "sim/aws, gpus: 3,", 2, "no type has this number of GPUs (got 3)"),
    "GPUs in words": local("local}", "local, gpus: all}", "resources.gpus: is not a number of GPUs"),
    "half a sample": train("50000", "1000.5", 4, "job.samples: must be a whole number"),
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
    "functions below nothing": serverless("1..4", "-1..4", 4, "functions: is not a number of functions"),
    "a workload with a typo": serverless("logistic", "logistc", 3, "did you mean 'logistic'?"),
    "a memory size twice": serverless("[1769]", "[1769, 1769]", 5, "memory[1]: is given twice"),
    "functions of two clouds": serverless("sim/lambda", "[sim/lambda, sim/aws]", 2, "takes one cloud"),
    "knobs of functions": serverless("goal:", "knobs: {a: [1]}\ngoal:", 6, "knobs: unknown field"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_clear_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLCD_STORE", raising=False)
    for name, value in mistake.env.items():
        monkeypatch.setenv(name, value)
    for name, text in {"job.yaml": TRAIN, "bad.yaml": mistake.job, "x.py": "", "m.onnx": "none"}.items():
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
