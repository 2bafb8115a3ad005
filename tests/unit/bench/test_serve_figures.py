"""What each figure of `mlcd bench serve` counts, by hand."""

import math
from statistics import stdev

import pytest
from tests.serving_world import world

from mlcd.bench.serve.case import Bed, Case, Walk
from mlcd.bench.serve.score import ServeRow, summarise
from mlcd.space import Config
from mlcd.trial.trial import Measurement

NAME = "residual-50"


def case(noise: float) -> Case:
    found = Case.of(Bed(name="made up", known=world(), targets=(NAME,)), NAME, 0.01, noise=noise, max_trials=5)
    assert found is not None
    return found


def test_trials_from_a_table_have_noise() -> None:
    noisy, exact = case(0.1), case(0.0)
    config = noisy.problem.space.configs[0]

    def speed(of: Case, seed: int) -> float:
        trial = of.trial(config, seed)
        assert isinstance(trial, Measurement)
        return trial.samples_per_second

    truth = speed(exact, 0)
    assert speed(exact, 7) == truth
    assert stdev(math.log(speed(noisy, seed) / truth) for seed in range(60)) == pytest.approx(0.1, rel=0.3)


def test_a_search_does_not_know_the_model_that_it_searches_for() -> None:
    bed = Bed(name="made up", known=world(), targets=(NAME,))
    names = {model.name for model in bed.known.models}
    assert {model.name for model in bed.sources(NAME).models} == names - {NAME}
    kin = {model.name for model in bed.known.models if model.family == "residual"}
    assert {model.name for model in bed.sources(NAME, "family").models} == names - kin
    fixed = Bed(name="made up", known=world(), targets=(NAME, "lstm"), fixed=True)
    assert {model.name for model in fixed.sources(NAME).models} == names - {NAME, "lstm"}


def test_a_walk_counts_what_was_done_until_then() -> None:
    config = Config.of({"batch": 1})
    made = Walk(accuracies=(0.2, 0.96, 0.99), usd=(1.0, 2.0, 4.0), configs=(config,) * 3)
    assert [made.usd_after(count) for count in (0, 1, 2, 9)] == [0.0, 1.0, 3.0, 7.0]
    assert [made.accuracy_after(count) for count in (0, 1, 2, 9)] == [0.0, 0.2, 0.96, 0.99]
    assert (made.trials_to(0.95), made.trials_to(0.999)) == (2, None)


def scored(target: str, accuracy: float, to_95: int | None = None) -> ServeRow:
    return ServeRow(
        bed="made up",
        target=target,
        unseen=False,
        strategy="falcon",
        slo_ms=10.0,
        seed=0,
        made=6,
        accuracy={3: accuracy, 6: accuracy},
        search_usd={3: 1.0, 6: 2.0},
        search_seconds=360.0,
        trials_to_95=to_95,
        trials_to_99=None,
    )


def test_the_interval_resamples_targets() -> None:
    rows = [scored("a", 0.5), scored("a", 0.5), scored("b", 1.0), scored("b", 1.0)]
    first = summarise(rows)[0]
    assert (first.trials, first.mean_accuracy, first.interval) == (3, 0.75, (0.5, 1.0))
    assert summarise(rows[:2])[0].interval == (0.5, 0.5)


def test_a_search_that_never_succeeds_counts_one_trial_more_than_the_most() -> None:
    (_, last) = summarise([scored("a", 1.0, to_95=1), scored("b", 0.5)])
    assert last.mean_trials_to_95 == (1 + 7) / 2
    assert last.mean_trials_to_99 == 7.0
