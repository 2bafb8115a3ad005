"""Falcon's rivals: their models, and each of them against random search on a made-up GPU."""

from functools import cache

import numpy as np
import pytest
from tests.serving_world import world

from mlcd.bench.serve.case import Bed, Case, searcher, walk
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.models.serving import meta_net
from mlcd.models.serving.factors import factorise, fit_scale
from mlcd.models.serving.latency_law import capacities, latency_terms
from mlcd.models.serving.meta_net import meta_train
from mlcd.problem import Problem
from mlcd.search.registry import strategy
from mlcd.search.serving.heterbo import FAILED_SPEED_SHARE, memory_failures_as_slow
from mlcd.search.serving.table_informed import known_rows
from mlcd.search.serving.table_worth import known_worth, trial_worth
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Measurement

TARGETS = ("residual-50", "bert-base", "efficient")
SLO_MS = (3.0, 10.0)
RIVALS = ("source-mean", "vesta", "vesta:learns=latency", "ernest", "morphling", "morphling:learns=latency", "heterbo")


@cache
def bed() -> Bed:
    return Bed(name="made up", known=world(), targets=TARGETS)


@cache
def mean_accuracy(text: str, trials: int) -> float:
    seen = []
    for name in TARGETS:
        sources = bed().sources(name)
        for slo_ms in SLO_MS:
            case = Case.of(bed(), name, slo_ms / 1000, noise=0.01, max_trials=trials)
            if case is not None:
                seen += [
                    walk(case, searcher(text, case, sources, seed=s), seed=s).accuracy_after(trials) for s in (7, 8)
                ]
    return float(np.mean(seen))


def a_case(slo_ms: float = 10.0) -> Case:
    found = Case.of(bed(), TARGETS[0], slo_ms / 1000, noise=0.01, max_trials=8)
    assert found is not None
    return found


@pytest.mark.parametrize("text", RIVALS)
def test_every_rival_beats_random_search_after_eight_trials(text: str) -> None:
    assert mean_accuracy(text, 8) > mean_accuracy("random", 8) + 0.03


@pytest.mark.parametrize("text", ["vesta:learns=latency", "morphling", "morphling:learns=latency", "ernest"])
def test_learning_strategies_beat_the_average_over_known_models(text: str) -> None:
    assert mean_accuracy(text, 8) > mean_accuracy("source-mean", 8)


def test_exhaustive_search_finds_the_best() -> None:
    case = Case.of(bed(), TARGETS[0], 0.01, noise=0.0, max_trials=len(world().configs))
    assert case is not None
    made = walk(case, searcher("exhaustive", case, bed().sources(TARGETS[0]), seed=0), seed=0)
    assert made.accuracies[-1] > 0.98  # within the tie under which the faster of two is taken
    few = walk(case, searcher("exhaustive:points=5", case, bed().sources(TARGETS[0]), seed=0), seed=0)
    assert len(few.configs) == 5


def test_random_search_follows_its_seed_and_no_other_model() -> None:
    case = a_case()
    paths = [walk(case, strategy("random", seed=seed, known=world()), seed=0).configs for seed in (1, 1, 2)]
    assert paths[0] == paths[1] != paths[2]


def test_source_mean_follows_the_average_whatever_the_trials_measure() -> None:
    case = a_case()
    sources = bed().sources(TARGETS[0])
    worth = known_worth(case.problem, sources, known_rows(sources, case.problem.space))
    made = walk(case, searcher("source-mean", case, sources, seed=0), seed=0)
    order = [case.problem.space.configs[row] for row in np.argsort(-worth.mean(axis=0), kind="stable")]
    tried = [config for config in order if config in made.configs]
    assert list(made.configs) == tried
    assert made.configs[0] == order[0]


def test_worth_is_a_share_of_the_best_and_nothing_where_the_limit_breaks() -> None:
    case = a_case(3.0)
    known, problem = world(), case.problem
    worth = known_worth(problem, known, known_rows(known, problem.space))
    assert worth.max(axis=1) == pytest.approx(1.0)
    model = known.models[2]
    expected = known.per_dollar(model, 0.003)
    rows = [row for row in worth if np.array_equal(row > 0, expected > 0)]
    assert any(np.allclose(row, expected / expected.max(), rtol=1e-6) for row in rows)


def test_worth_where_no_known_model_keeps_the_limit_is_by_latency() -> None:
    base = a_case()
    tight = Case.of(bed(), TARGETS[0], 0.01, noise=0.01, max_trials=8)
    assert tight is not None
    problem = Problem(
        name="tight",
        work_samples=1e6,
        space=base.problem.space,
        goal=Goal(minimize=Objective.COST, rate=1e12),
        usd_per_hour=base.problem.usd_per_hour,
        verify_seconds=60.0,
    )
    worth = known_worth(problem, world(), known_rows(world(), problem.space))
    quickest = np.nanargmin(world().models[0].latency_seconds)
    assert worth[0, quickest] == 1.0


def test_a_trial_that_breaks_the_limit_or_fails_is_worth_nothing() -> None:
    case = a_case(3.0)
    kept = case.problem.space.configs[int(case.values.argmax())]
    slow = case.problem.space.configs[int(np.nanargmax(np.where(case.values > 0, -1, case.target.latency_seconds)))]
    assert trial_worth(case.problem, case.trial(kept, 0)) > 0
    assert trial_worth(case.problem, case.trial(slow, 0)) == 0.0
    made = case.trial(kept, 0)
    lost = Failure(
        config=kept, attempt=1, kind=FailureKind.OUT_OF_MEMORY, message="", seconds=made.seconds, usd=made.usd
    )
    assert trial_worth(case.problem, lost) == 0.0


def test_heterbo_sees_running_out_of_memory_as_slow() -> None:
    case = a_case(3.0)
    kept, lost = case.problem.space.configs[int(case.values.argmax())], case.problem.space.configs[0]
    made = case.trial(kept, 0)
    failed = Failure(
        config=lost, attempt=1, kind=FailureKind.OUT_OF_MEMORY, message="", seconds=made.seconds, usd=made.usd
    )
    first, second = memory_failures_as_slow(case.problem, History((made, failed)))
    assert first == made
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert second.samples_per_second == pytest.approx(FAILED_SPEED_SHARE * first.samples_per_second)
    assert not second.meets(case.problem.goal)


def test_heterbo_treats_a_latency_limit_as_a_deadline() -> None:
    """After a trial that broke the limit widely, a batch of the same size on the same machine is not tried again."""
    case = a_case(3.0)
    space, chosen = case.problem.space, strategy("heterbo", known=world())
    slow = next(c for c in space.configs if dict(c.values) == {"batch": 64, "sms": 32, "precision": "fp32"})
    quick = next(c for c in space.configs if dict(c.values) == {"batch": 2, "sms": 132, "precision": "tf32"})
    history = History((case.trial(slow, 0), case.trial(quick, 0)))
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(space), dtype=bool))
    for _ in range(3):
        config = chosen.suggest(case.problem, history, remaining, 1)[0].config
        assert not (float(config["batch"]) >= 64 and config["precision"] == "fp32" and float(config["sms"]) <= 32)
        history = history.with_trials(case.trial(config, 0))


def test_heterbo_without_a_price_varies_more_than_the_first_knob() -> None:
    """With free trials every Pandora index is the same: it would try neighbours one by one."""
    case = a_case(30.0)
    made = walk(case, searcher("heterbo", case, bed().sources(TARGETS[0]), seed=0), seed=0)
    assert len({config["batch"] for config in made.configs}) > 2
    assert len({config["precision"] for config in made.configs}) > 1


def test_factors_complete_a_row_of_low_rank() -> None:
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((2, 40))
    table = 1.0 + rng.standard_normal((12, 2)) @ directions
    row = 1.0 + np.array([0.7, -1.2]) @ directions
    at = np.array([3, 11, 25, 31])
    mean, variance = factorise(table, 2).row(at, row[at])
    assert np.abs(mean - row).max() < 0.1 * np.abs(row - table.mean(axis=0)).max()
    assert variance[at].max() < factorise(table, 2).row(np.array([], dtype=np.intp), np.array([]))[1].max()


def test_factors_fill_in_missing_cells() -> None:
    rng = np.random.default_rng(1)
    whole = 1.0 + rng.standard_normal((12, 1)) @ rng.standard_normal((1, 30))
    holed = np.where(rng.random(whole.shape) < 0.1, np.nan, whole)
    exact, filled = factorise(whole, 1), factorise(holed, 1)
    assert np.abs(exact.mean - filled.mean).max() < 0.05
    assert np.abs(np.abs(exact.loadings) - np.abs(filled.loadings)).max() < 0.1


def test_the_unit_of_values_is_found() -> None:
    rng = np.random.default_rng(2)
    table = np.clip(np.linspace(0.2, 1, 30) + 0.05 * rng.standard_normal((10, 30)), 0, 1)
    factors = factorise(table, 2)
    at = np.array([2, 10, 20])
    assert fit_scale(factors, at, 500.0 * table[0, at]) == pytest.approx(500.0, rel=0.15)
    assert fit_scale(factors, at, np.zeros(3)) == 1.0


def test_the_physical_curve_is_recovered_and_never_negative() -> None:
    batches, speeds = np.meshgrid(np.array([1.0, 2, 4, 8, 16, 32, 64]), np.array([0.5, 1.0, 2.0, 4.0]))
    batches, speeds = batches.ravel(), speeds.ravel()
    seconds = 2e-3 + 5e-4 * batches / speeds + 1e-3 / speeds
    terms = latency_terms(batches, speeds)
    at: list[int] = []
    for _ in range(4):
        open_rows = ~np.isin(np.arange(len(batches)), at)
        at.append(terms.next_point(np.array(at, dtype=np.intp), open_rows, np.ones(len(batches))))
    fitted = terms.fit(np.array(at), seconds[at])
    assert np.abs(fitted / seconds - 1).max() < 0.15
    assert fitted.min() > 0


def test_capacity_is_the_speed_of_a_setting_over_models() -> None:
    batches = np.array([1.0, 8.0, 1.0, 8.0])
    settings = np.array([0, 0, 1, 1])
    fast = np.log(np.array([[1.0, 2.0, 2.0, 4.0], [10.0, 20.0, 20.0, np.nan]]))
    found = capacities(fast, settings, batches)
    assert found[0] == found[1] > found[2] == found[3]


def test_the_networks_gradient_matches_finite_differences() -> None:
    rng = np.random.default_rng(0)
    inputs, values = rng.standard_normal((6, 3)), rng.standard_normal(6)
    weights = meta_net._initial(3, rng)

    def error(at: np.ndarray) -> float:
        return float(0.5 * np.mean((meta_net._forward(at, inputs)[-1] - values) ** 2))

    slope = meta_net._gradient(weights, inputs, values)
    for place in range(0, len(weights), 97):
        step = np.zeros_like(weights)
        step[place] = 1e-6
        assert slope[place] == pytest.approx((error(weights + step) - error(weights - step)) / 2e-6, abs=1e-7)


def test_meta_learning_adapts_to_a_new_task_from_few_points() -> None:
    """Tasks are waves of any height and place (as in the papers on meta-learning): their mean is uninformative."""
    rng = np.random.default_rng(3)
    inputs = np.linspace(-2, 2, 60)[:, None]

    def task(height: float, shift: float) -> np.ndarray:
        return np.asarray(height * np.tanh(inputs[:, 0] - shift))

    table = np.array([task(rng.uniform(-2, 2), rng.uniform(-0.5, 0.5)) for _ in range(24)])
    net = meta_train(inputs, table, steps=20, rate=0.2, seed=0)
    new, at = task(1.5, 0.2), np.array([5, 20, 40, 55])
    before = float(np.mean((net.predict() - new) ** 2))
    after = float(np.mean((net.adapted(at, new[at], steps=20, rate=0.2).predict() - new) ** 2))
    assert after < 0.25 * before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vesta:rank=0", "rank must be at least 1"),
        ("ernest:design=0", "design must be at least 1"),
        ("morphling:gradient-steps=0", "gradient_steps must be at least 1"),
        ("morphling:learns=both", "allowed: value, latency"),
        ("vesta:explore=-1", "explore must be at least 0"),
        ("random:steps=-1", "steps must be at least 0"),
    ],
)
def test_a_bad_option_is_named(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        strategy(text, known=world())


def test_rivals_without_tables_are_refused() -> None:
    for name in ("vesta", "morphling", "source-mean"):
        with pytest.raises(BadInput, match="needs tables of other models"):
            strategy(name)


def test_out_of_memory_rules_out_what_needs_as_much() -> None:
    case = a_case(30.0)
    space = case.problem.space
    config = next(c for c in space.configs if dict(c.values) == {"batch": 16, "sms": 32, "precision": "fp32"})
    made = case.trial(config, 0)
    lost = Failure(
        config=config, attempt=1, kind=FailureKind.OUT_OF_MEMORY, message="", seconds=made.seconds, usd=made.usd
    )
    chosen = strategy("random", seed=0, known=world())
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(space), dtype=bool))
    open_now = chosen.suggest(case.problem, History((lost,)), remaining, len(space))
    for suggestion in open_now:
        other = suggestion.config
        worse = float(other["batch"]) >= 16 and float(other["sms"]) <= 32 and other["precision"] == "fp32"
        assert not worse
