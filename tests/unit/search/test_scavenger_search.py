"""The scavenger strategies on grids that follow a law: which runs they suggest, and what they choose."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.models.learning import forecast
from mlcd.models.parallel import ClusterSetting, Law, StepTime, fit
from mlcd.models.remaining import remaining_problem
from mlcd.models.universal import KnownJob
from mlcd.problem import Batching, Problem, Target
from mlcd.search.registry import strategy
from mlcd.search.scavenger.grid import diverging
from mlcd.search.strategy import Elastic
from mlcd.space import Config, Knob, Space
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Learned, Measurement
from mlcd.trial.work_done import work_done
from mlcd.units import Usd

BATCHES = (64, 128, 256, 512)


def config(nodes: int, batch: int) -> Config:
    return Config((("instance", "m.small"), ("nodes", nodes), ("batch", batch)))


def problem(minimize: Objective = Objective.TIME, *, decay: float | None = 0.5, most_nodes: int = 4) -> Problem:
    configs = tuple(config(k, b) for k in range(1, most_nodes + 1) for b in BATCHES)
    space = Space(
        (
            Knob(name="instance", values=("m.small",), features={"m.small": ()}),
            Knob(name="nodes", values=tuple(range(1, most_nodes + 1))),
            Knob(name="batch", values=BATCHES),
        ),
        configs,
    )
    return Problem(
        name="synthetic",
        work_samples=500_000.0,
        space=space,
        goal=Goal(minimize=minimize),
        usd_per_hour=tuple(Usd.of(c.nodes) for c in configs),
        batching=Batching(reference=64, decay=decay),
        keeps_work=True,
    )


def step_seconds(nodes: int, batch: int) -> float:
    ring = 0.004 * 2 * (nodes - 1) / nodes + (0.001 * nodes if nodes > 1 else 0.0)
    return 0.002 + 0.0004 * batch / nodes + ring


def measured(nodes: int, batch: int, *, noise_scale: float | None = 300.0, rng: np.random.Generator) -> Measurement:
    return Measurement(
        config=config(nodes, batch),
        attempt=1,
        samples_per_second=batch / step_seconds(nodes, batch) * math.exp(rng.normal(0, 0.01)),
        relative_error=0.02,
        iterations=50,
        startup_seconds=1.0,
        seconds=12.0,
        usd=Usd.of("0.01"),
        noise_scale=noise_scale,
    )


def everything(question: Problem) -> Remaining:
    return Remaining(usd=None, seconds=None, allowed=np.ones(len(question.space), dtype=bool))


def search(name: str, question: Problem, seed: int = 0) -> tuple[Plan | None, History]:
    rng, history, searcher = np.random.default_rng(seed), History(), strategy(name)
    for _ in range(40):
        now = remaining_problem(question, history)
        wanted = searcher.suggest(now, history, everything(now), 1)
        if not wanted:
            break
        chosen = wanted[0].config
        assert chosen not in history.tried
        history = history.with_trials(measured(chosen.nodes, int(chosen["batch"]), rng=rng))
    now = remaining_problem(question, history)
    assert searcher.ending(now, history, everything(now))
    return searcher.recommend(now, history, everything(now)), history


def truth(question: Problem, history: History) -> dict[Config, float]:
    now = remaining_problem(question, history)
    values = {}
    for c in now.space:
        seconds = 1.0 + now.work_of(c) / (float(c["batch"]) / step_seconds(c.nodes, int(c["batch"])))
        values[c] = now.goal.value(seconds, now.price(c).dollars * seconds / 3600)
    return values


@pytest.mark.parametrize("name", ["scavenger-partial", "scavenger-full", "scavenger-goodput"])
@pytest.mark.parametrize("minimize", [Objective.TIME, Objective.COST])
@pytest.mark.parametrize("decay", [0.0, 0.5, None])
def test_the_choice_is_close_to_the_best(name: str, minimize: Objective, decay: float | None) -> None:
    question = problem(minimize, decay=decay)
    choice, history = search(name, question)
    assert choice is not None
    values = truth(question, history)
    assert values[choice.config] <= 1.06 * min(values.values())


def test_partial_runs_corners_and_centre_first_and_few_more() -> None:
    _, history = search("scavenger-partial", problem())
    first = [t.config for t in history][:5]
    corners = {config(k, b) for k, b in itertools.product((1, 4), (64, 512))}
    assert corners <= set(first)
    assert 5 <= len(history) <= 10


def test_full_runs_everything_once() -> None:
    question = problem()
    _, history = search("scavenger-full", question)
    assert history.tried == set(question.space)


def test_the_knee_lies_between_the_fastest_and_the_cheapest() -> None:
    fastest, _ = search("scavenger-full", problem(Objective.TIME))
    cheapest, _ = search("scavenger-full", problem(Objective.COST))
    knee, _ = search("scavenger-full", problem(Objective.KNEE))
    assert fastest is not None
    assert cheapest is not None
    assert knee is not None
    assert fastest.seconds <= knee.seconds <= cheapest.seconds
    assert cheapest.usd <= knee.usd <= fastest.usd


def test_universal_starts_at_the_prediction_of_other_jobs_and_needs_them() -> None:
    question = problem()
    with pytest.raises(BadInput, match="knows no other job"):
        strategy("scavenger-universal").suggest(question, History(), everything(question), 1)
    runs = tuple(
        StepTime(setting=ClusterSetting(workers=k, batch=b), seconds=1.5 * step_seconds(k, b))
        for k, b in itertools.product((1, 2, 4), BATCHES)
    )
    job = KnownJob(largest_local_batch=512, parallel=fit(runs, Law.OVERLAP))
    searcher = strategy("scavenger-universal", jobs=(job,))
    wanted = searcher.suggest(question, History(), everything(question), 1)
    values = truth(question, History())
    assert values[wanted[0].config] <= 1.3 * min(values.values())
    history = History((measured(wanted[0].config.nodes, int(wanted[0].config["batch"]), rng=np.random.default_rng(0)),))
    assert searcher.suggest(question, history, everything(question), 1) == ()
    assert searcher.recommend(question, history, everything(question)) is not None


def test_only_goodput_plans_again_while_the_training_runs() -> None:
    question = problem(decay=None)
    _, history = search("scavenger-goodput", question)
    assert not isinstance(strategy("scavenger-partial"), Elastic)
    searcher = strategy("scavenger-goodput")
    assert isinstance(searcher, Elastic)
    quiet, noisy = question.with_noise(20.0), question.with_noise(20_000.0)
    at_quiet = min(searcher.outlook(quiet, history), key=lambda p: p.seconds)
    at_noisy = min(searcher.outlook(noisy, history), key=lambda p: p.seconds)
    assert float(at_noisy.config["batch"]) > float(at_quiet.config["batch"])
    off = strategy("scavenger-goodput:replan=off")
    assert isinstance(off, Elastic)
    assert off.outlook(noisy, history) == ()


def test_a_batch_whose_trial_worsens_the_metric_is_not_chosen() -> None:
    question = replace(problem(), target=Target(metric="accuracy", value=0.97))
    rng = np.random.default_rng(0)
    good = replace(measured(4, 64, rng=rng), learned=tuple(Learned(1000.0 * i, 0.5 + 0.04 * i) for i in range(8)))
    bad = replace(measured(4, 512, rng=rng), learned=tuple(Learned(1000.0 * i, 0.8 - 0.2 * i) for i in range(4)))
    history = History((good, bad))
    assert diverging(question, history) == {512.0}
    choice = strategy("scavenger-full").recommend(question, history, everything(question))
    assert choice is not None
    assert choice.config == good.config


def test_failed_runs_are_not_suggested_again() -> None:
    question = problem()
    failed = Failure(
        config=config(1, 512), attempt=1, kind=FailureKind.OUT_OF_MEMORY, message="", seconds=1.0, usd=Usd.of(0)
    )
    wanted = strategy("scavenger-partial").suggest(question, History((failed,)), everything(question), 10)
    assert config(1, 512) not in {s.config for s in wanted}


def test_work_done_at_a_large_batch_counts_for_less() -> None:
    question = problem(decay=0.5)
    rng = np.random.default_rng(0)
    first = replace(measured(1, 64, rng=rng), reached_samples=1000.0, noise_scale=None)
    second = replace(measured(1, 256, rng=rng), reached_samples=3000.0, noise_scale=None)
    assert work_done(question, (first, second)).samples == pytest.approx(1000 + 2000 * 0.5)
    remaining = remaining_problem(question, History((first, second)))
    assert remaining.work_samples == pytest.approx(question.work_samples - 2000)
    assert remaining.work_of(config(1, 256)) == pytest.approx(2 * remaining.work_samples)


def test_samples_count_by_the_noise_of_their_own_trial() -> None:
    """64 samples of noise at 256 make a sample worth 128/320; a trial without noise takes the last one before it."""
    question, rng = problem(decay=0.5), np.random.default_rng(0)
    noises, ends = (None, 64.0, None, 192.0), (1000.0, 3000.0, 4000.0, 8000.0)
    history = History(
        tuple(
            replace(measured(1, 256, rng=rng), reached_samples=end, noise_scale=noise)
            for noise, end in zip(noises, ends, strict=True)
        )
    )
    done = work_done(question, history.trials)
    low, high = 128 / 320, 256 / 448
    assert done.samples == pytest.approx(4000 * low + 4000 * high)
    (first, noise), (second, later) = done.noise
    assert (first, noise) == pytest.approx((2500 * low, 64.0))
    assert (second, later) == pytest.approx((4000 * low + 3000 * high, 192.0))


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0, None])
def test_under_every_rule_the_noise_of_the_trials_decides(decay: float | None) -> None:
    question, rng = problem(decay=decay), np.random.default_rng(0)
    trial = replace(measured(1, 64, rng=rng), reached_samples=2000.0, noise_scale=300.0)
    unseen = replace(trial, noise_scale=None)
    by_noise = remaining_problem(question, History((trial,)))
    assert by_noise.worth(config(1, 512)) == remaining_problem(problem(), History((trial,))).worth(config(1, 512))
    by_rule = remaining_problem(question, History((unseen,)))
    assert by_rule.worth(config(1, 512)) == pytest.approx((64 / 512) ** (decay or 0.0))


def test_the_end_is_predicted_from_the_metric() -> None:
    points = [(float(u), 1 - 1 / (u / 3000 + 1.2)) for u in range(500, 20_000, 500)]
    seen = forecast(points, Target(metric="accuracy", value=0.9))
    assert seen is not None
    assert seen.samples == pytest.approx((1 / 0.1 - 1.2) * 3000, rel=0.1)
    assert forecast([(u, 0.1) for u, _ in points], Target(metric="accuracy", value=0.9)) is None, "it never improves"
    assert forecast(points[:3], Target(metric="accuracy", value=0.9)) is None, "too few points"
    met = forecast([*points, (21_000.0, 0.95)], Target(metric="accuracy", value=0.9))
    assert met is not None
    assert met.samples == 21_000.0


def test_without_a_batch_to_choose_it_is_refused() -> None:
    question = replace(problem(), batching=None)
    with pytest.raises(BadInput, match="give batch"):
        strategy("scavenger-partial").suggest(question, History(), everything(question), 1)
