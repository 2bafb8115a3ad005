"""A global batch that is chosen: its fields in the job file, and what the space and the script receive."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mlcd
from mlcd import codec
from mlcd.deciders.search import SearchDecider
from mlcd.errors import SpecError
from mlcd.jobs.prepared import Prepared
from mlcd.jobs.train import prepare, with_default_strategy
from mlcd.problem import Batching, Problem
from mlcd.problem import Target as ProblemTarget
from mlcd.space import Config
from mlcd.spec import TrainSpec, parse_train
from mlcd.spec.batches import LearningRate, Pricing, RateRule, TargetSpec
from mlcd.training import checkpoints
from mlcd.training.training_progress import current_progress
from mlcd.trial.trial import Learned, Measurement
from mlcd.units import Usd

JOB = """
name: digits
resources: {infra: local, instance_type: local.1}
num_nodes: 1..4
batch: [64, 128, 256, 512]
learning_rate: {base: 0.1, at_batch: 64, rule: linear}
run: python -m target
job: {samples: 1500, target: {metric: accuracy, value: 0.97}}
checkpoints: true
goal: {minimize: knee}
"""


@pytest.fixture(autouse=True)
def _four_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mlcd.clouds.local.usable_cpus", lambda: (0, 1, 2, 3))
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))


def parse(text: str = JOB, **changes: str) -> TrainSpec:
    """The job with some of its lines replaced; an empty replacement removes the line."""
    lines = dict(line.partition(": ")[::2] for line in text.strip().splitlines())
    lines |= changes
    return parse_train("".join(f"{name}: {value}\n" for name, value in lines.items() if value), file="job.yaml")


def prepared(**changes: str) -> Prepared[Problem]:
    return prepare(parse(**changes))


def refusal(**changes: str) -> str:
    with pytest.raises(SpecError) as caught:
        prepare(parse(**changes))
    return str(caught.value)


# ---- the job file


def test_nodes_and_batches_make_the_space() -> None:
    found = prepared()
    assert {(c.nodes, c["batch"]) for c in found.problem.space} == {
        (k, b) for k in (1, 2, 3, 4) for b in (64, 128, 256, 512)
    }
    assert found.problem.batching == Batching(reference=64, decay=0.0)
    assert found.problem.target == ProblemTarget(metric="accuracy", value=0.97, higher=True)
    assert found.problem.keeps_work
    assert not found.problem.work_known, "the metric says when it ends, and there are no epochs"
    assert found.problem.price(next(c for c in found.problem.space if c.nodes == 3)) == Usd.of("0.1275")


def test_epochs_with_a_target_are_an_upper_limit() -> None:
    found = prepared(job="{samples: 1500, epochs: 400, target: {metric: accuracy, value: 0.97}}")
    assert found.problem.work_known
    assert found.problem.work_samples == 600_000


def test_a_scripts_total_does_not_mean_that_the_target_is_met() -> None:
    problem = prepared().problem
    assert problem.with_reported_work(600_000.0) is problem
    assert replace(problem, target=None).with_reported_work(600_000.0).work_samples == 600_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_nodes": "0..4"}, ("num_nodes", "1 to 100,000")),
        ({"batch": "[0, 64]"}, ("batch", "at least 1")),
        ({"batch": "[64, 64]"}, ("batch", "twice")),
        ({"batch": "[]"}, ("batch", "must not be empty")),
        ({"batch": f"[{', '.join(map(str, range(64, 164)))}]"}, ("batch", "at most 64")),
        ({"batch": "[64.5]"}, ("batch", "whole number")),
        ({"batch": "[64, 2000]"}, ("batch", "larger than the 1,500 samples of an epoch")),
        ({"job": "{samples: 1500}"}, ("job.target", "is needed to choose the batch")),
        (
            {"job": "{samples: 1500, batch: 64, target: {metric: accuracy, value: 0.97}}"},
            ("job.batch", "one of the two"),
        ),
        ({"learning_rate": ""}, ("learning_rate", "another batch needs another rate")),
        ({"learning_rate": "{base: 0, at_batch: 64}"}, ("learning_rate.base", "more than 0")),
        ({"learning_rate": "{base: 0.1}"}, ("learning_rate.at_batch", "missing")),
        ({"learning_rate": "{base: 0.1, at_batch: 64, rule: square}"}, ("learning_rate.rule", "linear, sqrt")),
        ({"checkpoints": ""}, ("checkpoints", "mlcd.checkpoint in the script")),
        ({"checkpoints": "false"}, ("checkpoints", "mlcd.checkpoint in the script")),
        ({"pricing": "by-weight"}, ("pricing", "per-node, memory-proportional")),
        ({"pricing": "{by: memory-proportional, fixed: 1.5}"}, ("pricing.fixed", "at most 1")),
        ({"search": "{strategy: scavenger-partial}", "batch": ""}, ("batch", "scavenger-partial chooses it")),
        ({"search": "{strategy: scavenger-partial:more=-1}"}, ("search.strategy", "more")),
    ],
)
def test_a_bad_bound_names_its_field(changes: dict[str, str], words: tuple[str, ...]) -> None:
    message = refusal(**changes)
    assert message.startswith("job.yaml")
    for word in words:
        assert word in message


@pytest.mark.parametrize("infra", ["sim/aws", "replay/."])
@pytest.mark.parametrize("without", ["batch", "job.target"])
def test_a_cloud_without_learning_has_no_batch_to_choose(infra: str, without: str) -> None:
    job = "{model: resnet152, samples: 1500, target: {metric: accuracy, value: 0.97}}"
    changes = {"resources": f"{{infra: {infra}}}", "job": job}
    if without == "batch":
        changes |= {"job": "{model: resnet152, samples: 1500}"}
    else:
        changes |= {"batch": "", "learning_rate": ""}
    message = refusal(**changes)
    assert f": {without}: " in message
    assert "runs no job that could learn" in message


def test_a_batch_below_the_nodes_is_excluded_and_reported() -> None:
    found = prepared(batch="[2, 64]")
    assert {(c.nodes, c["batch"]) for c in found.problem.space} == {(1, 2), (2, 2), *((k, 64) for k in (1, 2, 3, 4))}
    assert any("2 on 4 nodes is excluded" in note for note in found.notes)


def test_a_batch_that_no_number_of_nodes_can_divide() -> None:
    message = refusal(batch="[1, 2]", num_nodes="3..4")
    assert ": batch: is split over all nodes, and num_nodes starts at 3" in message
    assert "at least 3" in message


def test_a_batch_that_does_not_divide_is_kept_and_reported() -> None:
    found = prepared(batch="[64, 128]")
    assert any(c.nodes == 3 for c in found.problem.space)
    assert [note for note in found.notes if "3 nodes do not divide evenly" in note]


def test_one_batch_needs_no_rule() -> None:
    found = prepared(batch="64", learning_rate="")
    assert {c["batch"] for c in found.problem.space} == {64}


def test_goodput_is_the_default_strategy_for_a_job_with_batches() -> None:
    for job, name in (
        (prepared(), "scavenger-goodput"),
        (prepared(search="{strategy: scavenger-full}"), "scavenger-full"),
    ):
        assert job.strategy == name
        assert isinstance(job.decider, SearchDecider)
        assert job.decider.strategy.name == name
    assert with_default_strategy(parse(batch="", learning_rate="")).search.strategy == "auto"


# ---- prices


def test_priced_by_memory_a_node_with_more_samples_costs_more() -> None:
    space = prepared(pricing="{by: memory-proportional, fixed: 0.4}").problem
    price = {(c.nodes, c["batch"]): space.price(c).dollars for c in space.space}
    node = 0.0425
    assert price[1, 512] == pytest.approx(node), "the fullest node costs its price"
    assert price[1, 64] == pytest.approx(node * (0.4 + 0.6 / 8), abs=1e-6)
    assert price[4, 512] == pytest.approx(4 * node * (0.4 + 0.6 / 4), abs=1e-6)
    assert price[3, 64] == pytest.approx(3 * node * (0.4 + 0.6 * 22 / 512), abs=1e-6), "by its fullest worker"


def test_pricing_is_by_node_by_default() -> None:
    assert parse().pricing == Pricing()
    assert not parse().pricing.is_by_memory
    assert parse(pricing="memory-proportional").pricing == Pricing(by="memory-proportional", fixed=0.5)


# ---- rates, worths, targets


@pytest.mark.parametrize(
    ("rule", "noise", "factor"),
    [
        (RateRule.LINEAR, None, 4.0),
        (RateRule.SQRT, None, 2.0),
        (RateRule.FIXED, None, 1.0),
        (RateRule.ADASCALE, None, 1.0),
        (RateRule.ADASCALE, 0.0, 1.0),
        (RateRule.ADASCALE, 64.0, 2 / 1.25),
        (RateRule.ADASCALE, math.inf, 4.0),
    ],
)
def test_learning_rate_by_batch(rule: RateRule, noise: float | None, factor: float) -> None:
    rate = LearningRate(base=0.1, at_batch=64, rule=rule)
    assert rate.at(64, noise) == pytest.approx(0.1)
    assert rate.at(256, noise) == pytest.approx(0.1 * factor)


@pytest.mark.parametrize("rule", RateRule)
@pytest.mark.parametrize("batch", [16, 64, 300, 4096])
def test_under_every_rule_a_sample_counts_by_the_measured_noise(rule: RateRule, batch: int) -> None:
    """AdaScale's gain is what a step is worth, whatever the job's own rule gives as its rate."""
    rate = LearningRate(base=0.1, at_batch=64, rule=RateRule.ADASCALE)
    counted = Batching(reference=64, decay=rule.decay, noise_scale=500.0)
    gain = rate.at(batch, 500.0) / rate.at(64, 500.0)
    assert counted.worth(batch) * batch / 64 == pytest.approx(gain)
    assert counted.worth(64) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [RateRule.LINEAR, RateRule.SQRT, RateRule.FIXED])
def test_until_noise_is_measured_a_step_counts_by_its_learning_rate(rule: RateRule) -> None:
    rate = LearningRate(base=0.1, at_batch=64, rule=rule)
    counted = Batching(reference=64, decay=rule.decay)
    assert counted.worth(512) * 512 / 64 == pytest.approx(rate.at(512) / rate.at(64))


def test_without_noise_every_sample_counts_the_same_under_adascale() -> None:
    assert Batching(reference=64).worth(512) == 1.0
    assert Batching(reference=64, noise_scale=math.inf).worth(512) == 1.0


def test_an_impossible_batching_is_refused() -> None:
    for bad in ({"reference": 0}, {"reference": 1, "decay": 1.5}, {"reference": 1, "noise_scale": -1.0}):
        with pytest.raises(ValueError, match=r"batch|decay|noise"):
            Batching(**bad)


@pytest.mark.parametrize(
    ("metric", "better", "higher"),
    [
        ("accuracy", None, True),
        ("val_loss", None, False),
        ("word-error-rate", None, False),
        ("BLEU", None, True),
        ("perplexity", None, False),
        ("loss", "higher", True),
        ("accuracy", "lower", False),
    ],
)
def test_the_better_direction_follows_the_metric_name(metric: str, better: str | None, higher: bool) -> None:
    target = TargetSpec(metric=metric, value=0.5, better=better)
    assert target.higher is higher
    assert json.loads(target.to_json()) == {"metric": metric, "value": 0.5, "higher": higher}
    assert str(target) == f"{metric} {'>=' if higher else '<='} 0.5"


# ---- what the store keeps


@pytest.mark.parametrize("rule", RateRule)
def test_a_problem_with_batches_round_trips(rule: RateRule) -> None:
    problem = prepared(learning_rate=f"{{base: 0.1, at_batch: 64, rule: {rule}}}").problem
    for one in (problem, problem.with_noise(300.0), problem.with_work_estimated(5e5, 0.2)):
        again = codec.decode(codec.encode(one), Problem)
        assert again == one
        config = one.space.configs[-1]
        assert again.work_of(config) == one.work_of(config)


@pytest.mark.parametrize("noise", [None, 0.0, 312.5])
def test_what_a_trial_learned_round_trips(noise: float | None) -> None:
    trial = Measurement(
        config=Config((("instance", "local.1"), ("nodes", 2), ("batch", 128))),
        attempt=1,
        samples_per_second=100.0,
        relative_error=0.1,
        iterations=9,
        startup_seconds=1.0,
        seconds=9.0,
        usd=Usd.of("0.01"),
        noise_scale=noise,
        learned=(Learned(1500.0, 0.4), Learned(3000.0, 0.7)),
    )
    assert codec.decode(codec.encode(trial), Measurement) == trial


def test_infinite_noise_round_trips() -> None:
    trial = Measurement(
        config=Config.deployment("a", 1),
        attempt=1,
        samples_per_second=1.0,
        relative_error=0.1,
        iterations=1,
        startup_seconds=0.0,
        seconds=1.0,
        usd=Usd.of(0),
        noise_scale=math.inf,
    )
    assert codec.decode(codec.encode(trial), Measurement) == trial


# ---- what the script receives and reports


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("RANK", "WORLD_SIZE", "TF_CONFIG", *(name for name in os.environ if name.startswith("MLCD_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLCD_PROGRESS_FILE", str(tmp_path / "progress.jsonl"))
    monkeypatch.setenv("MLCD_CHECKPOINT_DIR", str(tmp_path / "checkpoint"))
    monkeypatch.setenv("MLCD_BATCH", "10")
    monkeypatch.setenv("MLCD_TARGET", TargetSpec(metric="accuracy", value=0.9).to_json())
    current_progress.cache_clear()
    yield tmp_path
    current_progress.cache_clear()


def reported(folder: Path) -> list[tuple[int, dict[str, float]]]:
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return [(line["samples"], line["metrics"]) for line in lines if "metrics" in line]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_loop_ends_on_every_worker_when_the_target_is_met(
    job: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    saved: list[int] = []
    mlcd.checkpoint(save=lambda folder: saved.append(current_progress().samples), load=lambda folder: None)
    steps = 0
    for steps, _ in enumerate(mlcd.steps([0, 1, 2, 3], total=1000), start=1):
        met = mlcd.score(accuracy=0.13 * steps, loss=1 / steps)
        assert met is (steps == 7)
    assert steps == 7
    if rank == 0:
        samples, metrics = reported(job)[-1]
        assert samples == 60
        assert metrics == pytest.approx({"accuracy": 0.91, "loss": 1 / 7})
        assert saved == [70], "the last step counts, and is saved"
        newest = checkpoints.newest(job / "checkpoint")
        assert newest is not None
        assert newest.samples == 70
    else:
        assert not (job / "progress.jsonl").exists()
        assert saved == []


def test_once_met_a_later_loop_has_nothing_to_do(job: Path) -> None:
    for _ in mlcd.steps([0, 1], total=1000):
        mlcd.score(accuracy=0.95)
    assert list(mlcd.steps([0, 1], total=1000)) == []
    assert mlcd.score(accuracy=0.1) is True, "it was met, and stays so"


def test_a_target_of_a_lower_is_better_metric(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_TARGET", TargetSpec(metric="loss", value=0.2).to_json())
    current_progress.cache_clear()
    assert not mlcd.score(loss=0.21)
    assert not mlcd.score(accuracy=0.99), "another metric says nothing"
    assert mlcd.score(loss=0.2)


def test_a_metric_that_is_not_a_number_is_ignored_with_a_warning(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not mlcd.score(accuracy=math.nan, loss=0.5)
    assert not mlcd.score(accuracy=math.inf)
    assert reported(job) == [(0, {"loss": 0.5})]
    assert "the accuracy at 0 samples is not a number" in capsys.readouterr().err


def test_outside_mlcd_nothing_is_reported_and_the_script_sets_the_learning_rate(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MLCD_")]:
        monkeypatch.delenv(name)
    current_progress.cache_clear()
    assert mlcd.score(accuracy=1.0) is False
    assert mlcd.learning_rate(0.05) == 0.05
    assert not (job / "progress.jsonl").exists()


def test_the_rate_comes_from_the_job_file(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_LEARNING_RATE", "0.4")
    current_progress.cache_clear()
    assert mlcd.learning_rate(0.05) == 0.4


# ---- a checkpoint that continues with another rate


def made(torch: Any, rate: float, schedule: Any = None) -> tuple[Any, Any, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(
        [{"params": [model.weight], "lr": rate}, {"params": [model.bias], "lr": 2 * rate}], momentum=0.9
    )
    return model, optimizer, schedule(optimizer) if schedule is not None else None


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.05])
@pytest.mark.parametrize("kind", ["none", "StepLR", "LambdaLR", "CosineAnnealingLR", "warm-up"])
def test_a_training_that_changes_its_batch_takes_the_new_rate(job: Path, rate: float, kind: str) -> None:
    """With any schedule: after the change, each rate is the unchanged one times new over old."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: scripts/setup-venv test")
    import mlcd.torch

    schedules = torch.optim.lr_scheduler
    schedule: Any = {
        "none": None,
        "StepLR": lambda o: schedules.StepLR(o, step_size=2, gamma=0.5),
        "LambdaLR": lambda o: schedules.LambdaLR(o, lambda step: 1 / (1 + step)),
        "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, T_max=20),
        "warm-up": lambda o: schedules.LambdaLR(o, lambda step: step / 10),
    }[kind]

    def started(rate: float) -> tuple[Any, Any]:
        model, optimizer, scheduler = made(torch, rate, schedule)
        things = {"model": model, "optimizer": optimizer} | ({"scheduler": scheduler} if scheduler else {})
        mlcd.torch.checkpoint(**things)
        return optimizer, scheduler

    def rates(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
        seen = []
        for _ in range(steps):
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            seen += [group["lr"] for group in optimizer.param_groups]
        return seen

    first = started(0.1)
    rates(*first, 3)
    current_progress().advance(10)
    current_progress().save()
    current_progress.cache_clear()
    unchanged = rates(*first, 4)
    changed = rates(*started(rate), 4)
    assert changed == pytest.approx([value * rate / 0.1 for value in unchanged])
