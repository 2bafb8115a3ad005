"""The prior from a transformer's sizes: what it says of memory and speed, and that trials correct it."""

from dataclasses import replace

import numpy as np
import pytest

from mlcd.goal import Goal, Objective
from mlcd.models.footprint import chance_to_fit
from mlcd.models.mixed_speed import mixed_model
from mlcd.models.speed import speed_model
from mlcd.models.transformer import Roles, log_speed, memory_gib, roles
from mlcd.problem import Problem
from mlcd.space import Config, Knob, Space, Workers
from mlcd.space.settings import Setting, Settings
from mlcd.testing.made import failed, measured
from mlcd.transformer import Transformer
from mlcd.trial.trial import FailureKind, History
from mlcd.units import Usd

GPT = Transformer(parameters=1.3e9, layers=24, hidden=2048, heads=16, sequence=1024)
KNOBS = Settings(
    (
        Setting(name="precision", values=("fp32", "bf16")),
        Setting(name="micro_batch", values=(1, 4, 16, 64)),
        Setting(name="recompute", values=(False, True)),
        Setting(name="sharding", values=("ddp", "fsdp")),
    )
)


def described(model: Transformer | None = GPT) -> Problem:
    """One or two nodes of eight H100."""
    rows = KNOBS.rows("", 1)
    machine = Workers(count=8, memory_gib=80.0, accelerator="H100", tflops=989.0, network_gbps=3200.0)
    knob = Knob(name="instance", values=("p5",), features={"p5": (1.0,)}, workers={"p5": machine})
    configs = tuple(
        Config((("instance", "p5"), ("nodes", n), *zip(KNOBS.names, row, strict=True))) for n in (1, 2) for row in rows
    )
    space = Space((knob, Knob(name="nodes", values=(1, 2)), *KNOBS.space_knobs(rows)), configs)
    return Problem(
        name="gpt",
        work_samples=1e6,
        space=space,
        goal=Goal(minimize=Objective.TIME),
        usd_per_hour=tuple(Usd.of(98) * config.nodes for config in configs),
        transformer=model,
        samples_per_step=1024,
    )


def row(problem: Problem, nodes: int = 1, **settings: str | int | bool) -> int:
    usual: dict[str, str | int | bool] = {"precision": "bf16", "micro_batch": 4, "recompute": False, "sharding": "ddp"}
    return problem.space.index[Config.of({"instance": "p5", "nodes": nodes, **usual, **settings})]


def test_flops_are_those_of_the_formula() -> None:
    assert pytest.approx(1024 * (6 * 1.3e9 + 12 * 24 * 2048 * 1024)) == GPT.flops_per_sample


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dtype": "bfloat16", "per_device_train_batch_size": 8}, Roles(half=True, micro_batch=8)),
        ({"gradient_checkpointing": True, "zero_stage": 3}, Roles(recompute=True, sharding="all")),
        ({"zero_stage": 2, "attn_implementation": "sdpa"}, Roles(sharding="gradients", keeps_scores=False)),
        ({"strategy": "ddp", "torch_compile": True, "precision": "32-true"}, Roles(compiled=True)),
        ({"recompute": "false", "compile": "off", "workers": 3}, Roles()),
    ],
)
def test_settings_are_recognised_by_their_usual_names(settings: dict[str, str | int], expected: Roles) -> None:
    assert roles(settings) == expected


def test_memory_follows_micro_batch_recomputation_precision_and_sharding() -> None:
    problem = described()
    found = memory_gib(problem)
    assert found is not None
    states, activations = found
    plain = row(problem)
    assert states[plain] == pytest.approx(16 * 1.3e9 / 2**30 + 1.5)
    assert states[row(problem, sharding="fsdp")] == pytest.approx(2 * 1.3e9 / 2**30 + 1.5)
    assert states[row(problem, 2, sharding="fsdp")] == pytest.approx(1.3e9 / 2**30 + 1.5)
    assert activations[plain] == pytest.approx(4 * 24 * 1024 * 2048 * (34 + 5 * 16 * 1024 / 2048) / 2**30)
    assert activations[row(problem, micro_batch=16)] == pytest.approx(4 * activations[plain])
    assert activations[row(problem, precision="fp32")] == pytest.approx(2 * activations[plain])
    assert activations[row(problem, recompute=True)] < activations[plain] / 10


def test_what_cannot_fit_is_unlikely_before_any_trial_and_trials_correct_that() -> None:
    problem = described()
    before = chance_to_fit(problem, History())
    assert before is not None
    small, large = row(problem, micro_batch=1), row(problem, micro_batch=64)
    assert before[small] > 0.85
    assert before[large] < 0.2
    # It fits all the same: less is needed than described, at other settings too.
    after = chance_to_fit(problem, History((measured(problem, problem.space.configs[large], 50.0),)))
    assert after is not None
    assert after[large] > 0.85 > before[large]
    other = row(problem, micro_batch=64, sharding="fsdp")
    assert after[other] > before[other] + 0.2
    tight = History((failed(problem, problem.space.configs[small], FailureKind.OUT_OF_MEMORY),))
    worse = chance_to_fit(problem, tight)
    assert worse is not None
    assert worse[row(problem, micro_batch=16)] < before[row(problem, micro_batch=16)] / 2


def test_speed_rises_with_16_bits_and_micro_batch_and_falls_with_recomputation() -> None:
    problem = described()
    speed = log_speed(problem)
    assert speed is not None
    plain = speed[row(problem)]
    assert speed[row(problem, precision="fp32")] < plain - 0.5
    assert speed[row(problem, micro_batch=16)] > plain > speed[row(problem, micro_batch=1)]
    assert speed[row(problem, recompute=True)] < plain
    assert np.log(1.5) < speed[row(problem, 2)] - plain < np.log(2)


def test_without_a_description_nothing_is_said() -> None:
    problem = described(None)
    assert memory_gib(problem) is None
    assert log_speed(problem) is None
    assert chance_to_fit(problem, History()) is None
    assert problem.flops_share(problem.space.configs[0], 10.0) is None


def test_the_models_start_from_the_description_and_follow_the_trials() -> None:
    problem = described()
    prior = mixed_model(problem, History())
    expected = log_speed(problem)
    assert expected is not None
    assert np.corrcoef(prior.weights @ prior.log_speed, expected)[0, 1] > 0.9
    # The job is the other way round: 16 bits are slower.
    trials = [
        measured(problem, problem.space.configs[row(problem, precision=precision, micro_batch=micro)], speed)
        for precision, micro, speed in (("bf16", 4, 40.0), ("fp32", 4, 80.0), ("bf16", 16, 42.0), ("fp32", 16, 84.0))
    ]
    after = mixed_model(problem, History(tuple(trials)))
    mean = after.weights @ after.log_speed
    assert mean[row(problem, precision="fp32", micro_batch=1)] > mean[row(problem, precision="bf16", micro_batch=1)]
    one = speed_model(problem, History(tuple(trials)))
    assert one is not None
    assert one.log_speed[row(problem, precision="fp32")] > one.log_speed[row(problem)]


def test_utilisation_is_the_models_flops_over_the_peak() -> None:
    problem = described()
    config = problem.space.configs[row(problem, 2)]
    peak = 2 * 8 * 989e12
    assert problem.flops_share(config, 500.0) == pytest.approx(500 * GPT.flops_per_sample / peak)


def test_a_description_comes_once() -> None:
    problem = described(None)
    told = problem.with_description(GPT)
    assert told.transformer == GPT
    assert told.with_description(replace(GPT, layers=3)).transformer == GPT
    assert problem.with_description(None) is problem


@pytest.mark.parametrize(
    ("name", "value"), [("parameters", 0), ("layers", -1), ("hidden", float("nan")), ("heads", True)]
)
def test_sizes_must_be_numbers_of_at_least_one(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        replace(GPT, **{name: value})  # type: ignore[arg-type]
