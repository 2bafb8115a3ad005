"""falcon and falcon-transfer over a made-up GPU."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.serving_world import world

from mlcd.bench.serve.case import Bed, Case, Walk, searcher, walk
from mlcd.bench.serve.score import ServeComparison, compare
from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective, Slo
from mlcd.known.tables import Known, OperatorUse, TargetModel
from mlcd.search.registry import strategy
from mlcd.search.serving.falcon import Falcon
from mlcd.search.serving.serving_forecast import latency_bound, load_tests, outlook
from mlcd.search.serving.table_informed import open_rows
from mlcd.space import Config
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Load, Measurement
from mlcd.units import Usd

BOTH = ["falcon", "falcon-transfer"]


@cache
def bed() -> Bed:
    known = world()
    return Bed(name="made up", known=known, targets=tuple(model.name for model in known.models))


@cache
def sources(name: str) -> Known:
    return bed().sources(name)


def case(name: str, slo_ms: float, *, noise: float = 0.0, max_trials: int = 12) -> Case:
    found = Case.of(bed(), name, slo_ms / 1000, noise=noise, max_trials=max_trials)
    assert found is not None
    return found


def searched(text: str, name: str, slo_ms: float) -> Walk:
    chosen = case(name, slo_ms)
    return walk(chosen, searcher(text, chosen, sources(name), seed=0), seed=0)


def everything(chosen: Case) -> Remaining:
    return Remaining(usd=None, seconds=None, allowed=np.ones(len(chosen.problem.space), dtype=bool))


@pytest.mark.parametrize("text", BOTH)
def test_a_few_trials_find_nearly_the_best(text: str) -> None:
    accuracies = [searched(text, model.name, 3.0).accuracy_after(6) for model in world().models if fits(model.name)]
    assert np.mean(accuracies) > 0.95
    assert min(accuracies) > 0.7


def fits(name: str) -> bool:
    return Case.of(bed(), name, 0.003, noise=0.0, max_trials=1) is not None


def test_both_beat_random_and_the_second_beats_the_first() -> None:
    comparison = ServeComparison(
        strategies=("falcon", "falcon-transfer", "random"), slo_ms=(3.0,), seeds=1, trials=(3, 6)
    )
    rows = compare(comparison, [bed()])

    def mean(text: str, trials: int) -> float:
        return float(np.mean([row.accuracy[trials] for row in rows if row.strategy == text]))

    for trials in (3, 6):
        assert mean("random", trials) + 0.1 < mean("falcon", trials) <= mean("falcon-transfer", trials) + 0.01


@pytest.mark.parametrize("text", BOTH)
def test_the_weight_of_the_limit_decides_between_a_close_and_a_safe_choice(text: str) -> None:
    chosen = case("residual-50", 10.0)
    remaining = everything(chosen)
    close, safe = (Config.of({"batch": batch, "sms": 132, "precision": "fp16"}) for batch in (128, 64))
    trials = tuple(slower(chosen, config, factor) for config, factor in ((close, 0.99), (safe, 0.55)))

    def recommended(weight: float) -> Config:
        made = searcher(f"{text}:limit-weight={weight}", chosen, sources("residual-50"), seed=0)
        plan = made.recommend(chosen.problem, History(trials), remaining)
        assert plan is not None
        return plan.config

    assert recommended(0.0) == close
    assert recommended(50.0) == safe


@pytest.mark.parametrize("text", BOTH)
def test_a_trial_that_breaks_the_limit_still_informs_the_latency(text: str) -> None:
    """Bert under 3 ms: one trial that took twice the predicted latency everywhere turns to smaller batches."""
    chosen = case("bert-base", 3.0)
    made = searcher(text, chosen, sources("bert-base"), seed=0)
    remaining = everything(chosen)
    first = made.suggest(chosen.problem, History(), remaining, 1)[0].config
    slow = slower(chosen, first, 3.0)
    assert not slow.meets(chosen.problem.goal)
    second = made.suggest(chosen.problem, History((slow,)), remaining, 1)[0].config
    assert float(second["batch"]) / float(second["sms"]) < float(first["batch"]) / float(first["sms"])
    assert made.recommend(chosen.problem, History((slow,)), remaining) is None


def slower(chosen: Case, config: Config, factor: float) -> Measurement:
    latency = chosen.slo_seconds * factor
    load = Load(p50_seconds=latency, p95_seconds=latency, p99_seconds=latency, requests=10)
    return Measurement(
        config=config,
        attempt=1,
        samples_per_second=float(config["batch"]) / latency,
        relative_error=0.01,
        iterations=10,
        startup_seconds=0.0,
        seconds=60.0,
        usd=Usd(1),
        load=load,
    )


@pytest.mark.parametrize("text", BOTH)
def test_an_operator_never_measured_is_named_and_costs_two_more_trials(text: str) -> None:
    name = "residual-18"
    chosen = case(name, 10.0, max_trials=30)
    own = chosen.target.target
    strange = TargetModel(name=name, operators=tuple(renamed(use, "conv2d", "fold") for use in own.operators))
    usual = strategy(text, known=sources(name), target=own)
    other = strategy(text, known=sources(name), target=strange)
    reason = other.suggest(chosen.problem, History(), everything(chosen), 1)[0].reason
    assert "never measured before: fold (treated as conv2d)" in reason
    assert "never" not in usual.suggest(chosen.problem, History(), everything(chosen), 1)[0].reason
    options = "gain=10" if text == "falcon" else "requests=0"  # ends as soon as it may
    counts = [
        len(walk(chosen, strategy(f"{text}:{options}", known=sources(name), target=model), seed=0).configs)
        for model in (own, strange)
    ]
    assert counts == [3, 5]


def renamed(use: OperatorUse, old: str, new: str) -> OperatorUse:
    return replace(use, operator=new) if use.operator == old else use


def test_the_net_gain_stop_takes_the_trials_price_into_account() -> None:
    chosen = case("residual-50", 10.0, max_trials=30)

    def made(requests: float) -> int:
        text = f"falcon-transfer:requests={requests:g}"
        return len(walk(chosen, searcher(text, chosen, sources("residual-50"), seed=0), seed=0).configs)

    assert made(1e5) == 3 <= made(1e9) <= made(1e13)
    searcher_ = searcher("falcon-transfer:requests=1e5", chosen, sources("residual-50"), seed=0)
    history = History(tuple(chosen.trial(config, 0) for config in searched("falcon", "residual-50", 10.0).configs[:3]))
    assert "save what it costs over 100,000 requests" in searcher_.ending(chosen.problem, history, everything(chosen))


@pytest.mark.parametrize("text", BOTH)
def test_it_ends_when_nothing_can_keep_the_limit(text: str) -> None:
    chosen = case("bert-large", 10.0)
    problem = replace(chosen.problem, goal=Goal(minimize=Objective.COST, slo=Slo(seconds=1e-5, percentile=50)))
    made = searcher(text, chosen, sources("bert-large"), seed=0)
    history, remaining = History(), everything(chosen)
    while answer := made.suggest(problem, history, remaining, 1):
        history = history.with_trials(chosen.trial(answer[0].config, 0))
    assert len(history) <= 4
    assert made.ending(problem, history, remaining) == "nothing that may still be tried is likely to keep the limits"


@pytest.mark.parametrize("text", BOTH)
def test_several_at_once_are_spread(text: str) -> None:
    chosen = case("residual-101", 10.0)
    made = searcher(text, chosen, sources("residual-101"), seed=0)
    several = [s.config for s in made.suggest(chosen.problem, History(), everything(chosen), 4)]
    assert len(set(several)) == 4


def test_above_a_required_rate_more_throughput_is_worth_nothing() -> None:
    chosen = case("residual-50", 10.0)
    problem = replace(chosen.problem, goal=Goal(minimize=Objective.COST, rate=500.0, slo=Slo(seconds=0.01)))
    seconds = np.log(chosen.bed.known.batches / 600.0)  # each holds 600 requests/s, almost certainly
    found = outlook(problem, History(), seconds, np.full(len(seconds), 1e-4), np.ones(len(seconds)))
    price = chosen.problem.dollars_per_second
    assert found.log_value == pytest.approx(np.log(1e6 / 500.0 * price))
    within = chosen.bed.known.batches / 600.0 < 0.009
    assert found.keeps[within].min() > 0.5
    assert found.keeps[chosen.bed.known.batches / 600.0 > 0.05].max() < 0.01
    assert int(found.gain.argmax()) in np.flatnonzero(within & (price == price.min()))


def test_the_bound_on_a_batch_is_learnt_from_load_tests() -> None:
    chosen = case("residual-50", 10.0)
    problem = replace(chosen.problem, goal=Goal(minimize=Objective.COST, slo=Slo(seconds=0.01, percentile=99)))

    def tested(full_batch: float, p99: float) -> Measurement:
        trial = slower(chosen, problem.space.configs[30], full_batch / chosen.slo_seconds)
        return replace(trial, load=Load(p50_seconds=p99, p95_seconds=p99, p99_seconds=p99, requests=9))

    def bound(*trials: Measurement) -> float:
        return float(np.exp(latency_bound(problem, History(trials))))

    assert bound() == pytest.approx(0.01)
    assert bound(tested(0.004, 0.009)) == pytest.approx(0.01)
    assert bound(tested(0.02, 0.03)) == pytest.approx(0.01)
    assert bound(tested(0.03, 0.009)) == pytest.approx(0.03), "the server did not wait for a full batch"
    assert bound(tested(0.004, 0.02)) == pytest.approx(0.004), "requests waited"
    assert 0.004 < bound(tested(0.03, 0.009), tested(0.004, 0.02)) < 0.03
    assert latency_bound(replace(problem, goal=Goal(minimize=Objective.COST)), History()) == np.inf
    assert load_tests(problem, History((tested(0.03, 0.009),))).log_seconds == pytest.approx([np.log(0.03)])


def test_out_of_memory_rules_out_what_needs_as_much_and_has_no_more() -> None:
    chosen = case("plain-16", 10.0)
    config = Config.of({"batch": 32, "sms": 64, "precision": "fp32"})
    failure = Failure(config=config, attempt=1, kind=FailureKind.OUT_OF_MEMORY, message="", seconds=1.0, usd=Usd(1))
    is_open = open_rows(chosen.problem, History((failure,)), everything(chosen))
    closed = [c for c, may in zip(chosen.problem.space, is_open, strict=True) if not may]
    assert closed == [
        c
        for c in chosen.problem.space
        if c["batch"] >= 32 and c["sms"] <= 64 and c["precision"] == "fp32"  # type: ignore[operator]
    ]
    hang = replace(failure, kind=FailureKind.HANG)
    assert open_rows(chosen.problem, History((hang,)), everything(chosen)).sum() == len(is_open) - 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("falcon:threshold=0", "threshold and cutoff must be above 0"),
        ("falcon:cutoff=1.5", "threshold and cutoff must be above 0"),
        ("falcon:explore=-1", "explore must be at least 0"),
        ("falcon:least=0", "least must be at least 1"),
        ("falcon:steps=-1", "steps must be at least 0"),
        ("falcon-transfer:requests=-1", "requests must be at least 0"),
        ("falcon-transfer:gain=nan", "gain: out of range"),
    ],
)
def test_invalid_option_values_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        strategy(text, known=world(), target=world().models[0].target)


def test_created_without_tables_it_raises() -> None:
    bare = Falcon()
    with pytest.raises(ValueError, match="falcon was created without tables of other models"):
        _ = bare.tables
    with pytest.raises(ValueError, match="falcon was created without the model's operators"):
        _ = bare.model


@pytest.mark.parametrize("text", BOTH)
def test_a_narrower_space_is_searched_with_the_same_tables(text: str) -> None:
    """A user who offers fewer configurations, and a batch that was never measured, still gets an answer."""
    chosen = case("residual-50", 10.0)
    space = chosen.problem.space
    kept = tuple(c for c in space.configs if c["precision"] == "fp16" and c["sms"] in (16, 64))
    odd = tuple(Config.of({**c.as_dict(), "batch": 24}) for c in kept if c["batch"] == 16)
    knobs = tuple(replace(k, values=(*k.values, 24)) if k.name == "batch" else k for k in space.knobs)
    prices = {c: chosen.problem.price(c) for c in kept}
    prices |= {c: prices[Config.of({**c.as_dict(), "batch": 16})] for c in odd}
    problem = replace(
        chosen.problem, space=type(space)(knobs, (*kept, *odd)), usd_per_hour=tuple(prices[c] for c in (*kept, *odd))
    )
    made = searcher(text, chosen, sources("residual-50"), seed=0)
    remaining = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    (first,) = made.suggest(problem, History(), remaining, 1)
    assert first.config in problem.space
