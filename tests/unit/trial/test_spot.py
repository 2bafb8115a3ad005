"""Spot nodes: what interruptions add to a plan, what a trial says of both markets, and until when spot may be used."""

import math
from dataclasses import replace

import pytest
from scipy.stats import nbinom

from mlcd.goal import Goal, Objective
from mlcd.interruptions import LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS, Interruptions
from mlcd.ledger import Ledger
from mlcd.problem import DataMove, Problem
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.search.markets import PerMachine
from mlcd.search.registry import strategy
from mlcd.space import MARKET, ON_DEMAND, SPOT, Config, Knob, Space
from mlcd.trial.markets import with_markets
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Measurement
from mlcd.trial.watched import seconds_on_spot, watched
from mlcd.units import MOST_SECONDS, ZERO, Usd

HOUR = 3600.0


def config(nodes: int, market: str, name: str = "a") -> Config:
    return Config((("instance", name), ("nodes", nodes), (MARKET, market)))


def belief(**changes: object) -> Interruptions:
    given = {"per_node_hour": {"a": 0.1}, "save_seconds": 10.0, "on_demand": {"a": Usd.of(1)}}
    return Interruptions(**{**given, **changes})  # type: ignore[arg-type]


def problem(**changes: object) -> Problem:
    counts = (1, 2, 4)
    configs = tuple(config(n, market) for n in counts for market in (ON_DEMAND, SPOT))
    knobs = (
        Knob(name="instance", values=("a",), features={"a": (1.0,)}),
        Knob(name="nodes", values=counts),
        Knob(name=MARKET, values=(ON_DEMAND, SPOT), features={ON_DEMAND: (), SPOT: ()}, same_speed=True),
    )
    given: dict[str, object] = {
        "name": "spot",
        "work_samples": 10 * HOUR,
        "space": Space(knobs, configs),
        "goal": Goal(minimize=Objective.COST, deadline_seconds=20 * HOUR),
        "usd_per_hour": tuple(Usd.of("0.3" if c.is_spot else "1") * c.nodes for c in configs),
        "noise": 0.03,
        "keeps_work": True,
        "restart_seconds": 100.0,
        "interruptions": belief(),
    }
    return Problem(**{**given, **changes})  # type: ignore[arg-type]


def measured(nodes: int, market: str = SPOT, *, speed: float = 1.0, error: float = 0.01) -> Measurement:
    return Measurement(
        config=config(nodes, market),
        attempt=1,
        samples_per_second=speed,
        relative_error=error,
        iterations=10,
        startup_seconds=100.0,
        seconds=600.0,
        usd=Usd.of(1),
    )


def remaining(found: Problem, *, seconds: float | None = None, usd: Usd | None = None) -> Remaining:
    return replace(Ledger(problem=found, history=History()).remaining(), seconds=seconds, usd=usd)


# ---- the belief


def test_quantiles_are_those_of_the_negative_binomial() -> None:
    known = belief(shape=2.0).with_seen(3, 0.5)
    where, seconds = config(4, SPOT), 10 * HOUR
    mean = 0.1 * 4 * 10
    share = (2.0 + 0.5) / (2.0 + 0.5 + mean)
    for assurance in (0.5, 0.9, 0.999999):
        assert known.quantile(where, seconds, assurance) == int(nbinom.ppf(assurance, 5.0, share))
    assert known.chance_of_at_most(where, seconds, 3) == pytest.approx(float(nbinom.cdf(3, 5.0, share)))
    assert known.chance_of_at_most(where, seconds, -1) == 0
    assert known.quantile(config(4, ON_DEMAND), seconds, 0.999999) == 0


def test_interruptions_in_the_run_correct_the_rate() -> None:
    where = config(2, SPOT)
    assert belief().per_second(where) == pytest.approx(0.2 / HOUR)
    assert belief().with_seen(4, 1.0).per_second(where) == pytest.approx(2.5 * 0.2 / HOUR)
    assert belief().with_seen(0, 3.0).per_second(where) == pytest.approx(0.25 * 0.2 / HOUR)
    assert belief().per_second(config(2, ON_DEMAND)) == 0


def test_the_checkpoint_interval_is_youngs() -> None:
    where = config(2, SPOT)
    assert belief().checkpoint_seconds(where) == pytest.approx(math.sqrt(2 * 10 / (0.2 / HOUR)))
    assert belief(per_node_hour={"a": 50.0}).checkpoint_seconds(where) == LEAST_INTERVAL_SECONDS
    assert belief(per_node_hour={"a": 0.0}).checkpoint_seconds(where) == MOST_INTERVAL_SECONDS
    assert belief(saves=False).checkpoint_seconds(where) is None
    assert belief().checkpoint_seconds(config(2, ON_DEMAND)) is None


def test_the_expected_time_is_that_of_a_simulation() -> None:
    import random

    known, where = belief(per_node_hour={"a": 0.5}), config(2, SPOT)
    interval, rate = known.checkpoint_seconds(where), known.per_second(where)
    assert interval is not None
    rng = random.Random(0)

    def run(work: float, restart: float) -> float:
        passed, done = restart, 0.0
        while done < work:
            part = min(interval, work - done) + 10.0
            until = rng.expovariate(rate)
            passed += min(part, until)
            if until >= part:
                done += interval
                continue
            while (again := rng.expovariate(rate)) < restart:
                passed += again
            passed += restart
        return passed

    mean = sum(run(20 * HOUR, 300.0) for _ in range(400)) / 400
    assert known.expected_seconds(where, 300.0, 20 * HOUR) == pytest.approx(mean, rel=0.02)


def test_a_training_that_saves_nothing_starts_over() -> None:
    where = config(2, SPOT)
    saved, lost = belief(), belief(saves=False)
    assert lost.expected_seconds(where, 100.0, 10 * HOUR) > 2 * saved.expected_seconds(where, 100.0, 10 * HOUR)
    bounds = [each.worst_seconds(where, 100.0, 10 * HOUR, assurance=0.99) for each in (saved, lost)]
    assert bounds[1] > 5 * bounds[0]
    never = belief(saves=False, per_node_hour={"a": 50.0}).worst_seconds(where, 100.0, 10 * HOUR, assurance=0.99)
    assert never > MOST_SECONDS


def test_a_bound_assumes_as_many_interruptions_as_the_assurance_says() -> None:
    where, known = config(2, SPOT), belief()
    interval = known.checkpoint_seconds(where)
    assert interval is not None
    for assurance in (0.5, 0.99, 0.999999):
        bound = known.worst_seconds(where, 100.0, 10 * HOUR, assurance=assurance)
        count = known.quantile(where, bound, assurance)
        undisturbed = 100.0 + 10 * HOUR * (1 + 10 / interval)
        assert bound == pytest.approx(undisturbed + count * (100.0 + interval + 10))


def test_every_interruption_brings_the_data_again() -> None:
    """Each lease has new nodes: a plan pays for its data once, and once more for each interruption that it counts."""
    moved = Usd.of(5)
    plain, paying = problem(), problem(moves={"": DataMove(usd=moved)})
    without, plan = Plan.of(plain, measured(2)), Plan.of(paying, measured(2))
    known = paying.interruptions
    assert known is not None
    count = known.quantile(config(2, SPOT), plan.worst_seconds, paying.assurance)
    assert count > 1
    assert plan.worst_usd == without.worst_usd + moved * (1 + count)
    expected = known.per_second(config(2, SPOT)) * plan.seconds
    assert plan.usd.dollars == pytest.approx(without.usd.dollars + 5 * (1 + expected), abs=1e-5)
    assert plan.moved_usd == moved  # of the lease that starts next
    on_demand = Plan.of(paying, measured(2, ON_DEMAND))
    assert on_demand.worst_usd == Plan.of(plain, measured(2, ON_DEMAND)).worst_usd + moved


# ---- plans of both markets


def test_a_trial_measures_the_machine_on_both_markets() -> None:
    found = problem()
    history = with_markets(found, History((measured(2),)))
    assert [trial.config for trial in history] == [config(2, SPOT), config(2, ON_DEMAND)]
    assert history.trials[1].usd == ZERO
    spot, on_demand = (Plan.of(found, trial) for trial in history.measured)
    assert on_demand.seconds == pytest.approx(10 * HOUR + 100)
    assert spot.seconds > on_demand.seconds
    assert spot.usd < on_demand.usd
    assert spot.worst_seconds > on_demand.worst_seconds > on_demand.seconds
    own = History((measured(2), measured(2, ON_DEMAND, speed=1.1)))
    assert with_markets(found, own) == own


def test_models_do_not_see_the_market() -> None:
    space = problem().space
    rows = [space.index[config(2, market)] for market in (ON_DEMAND, SPOT)]
    encoding = space.encoding
    assert encoding.identity[rows[0]] == encoding.identity[rows[1]]
    assert encoding.machine[rows[0]] == encoding.machine[rows[1]]
    assert encoding.features.shape[1] == 0
    dollars = problem().node_dollars
    assert dollars[rows[0]] == dollars[rows[1]] == pytest.approx(1 / HOUR)


def test_a_strategy_sees_each_machine_once_and_tries_the_market_of_the_goal() -> None:
    for goal, market in (
        (Goal(minimize=Objective.COST), SPOT),
        (Goal(minimize=Objective.TIME), ON_DEMAND),
        (Goal(minimize=Objective.TIME, budget=Usd.of(100)), SPOT),
    ):
        found = problem(goal=goal)
        left = Ledger(problem=found, history=History()).remaining()
        first = PerMachine(inner=strategy("exhaustive")).suggest(found, History(), left, 9)
        assert {suggestion.config for suggestion in first} == {config(n, market) for n in (1, 2, 4)}
    done = with_markets(found, History((measured(2), measured(4))))
    rest = PerMachine(inner=strategy("exhaustive")).suggest(found, done, left, 9)
    assert [suggestion.config for suggestion in rest] == [config(1, SPOT)]


def test_a_machine_whose_spot_nodes_were_taken_away_is_tried_on_demand() -> None:
    found = problem()
    left = Ledger(problem=found, history=History()).remaining()
    taken = Failure(
        config=config(1, SPOT), attempt=1, kind=FailureKind.INTERRUPTED, message="", seconds=60.0, usd=Usd.of(1)
    )
    history = with_markets(found, History((taken, measured(2), measured(4))))
    wanted = PerMachine(inner=strategy("exhaustive")).suggest(found, history, left, 9)
    assert [suggestion.config for suggestion in wanted] == [config(1, ON_DEMAND)]
    crashed = replace(taken, kind=FailureKind.OUT_OF_MEMORY)
    history = with_markets(found, History((crashed, measured(2), measured(4))))
    assert PerMachine(inner=strategy("exhaustive")).suggest(found, history, left, 9) == ()


# ---- until when spot may be used


def test_spot_is_watched_while_on_demand_still_fits() -> None:
    found = problem(goal=Goal(minimize=Objective.COST, deadline_seconds=13 * HOUR))
    history = with_markets(found, History((measured(2),)))
    left = remaining(found, seconds=13 * HOUR)
    places = list(watched(found, history, left))
    assert [place.plan.config for place in places] == [config(2, SPOT)]
    watch = places[0].watch
    assert watch is not None
    assert watch.fallback is not None
    assert watch.renews
    assert watch.fallback.config == config(2, ON_DEMAND)
    assert watch.seconds == pytest.approx(13 * HOUR - watch.fallback.worst_seconds, abs=0.01)
    assert watch.is_covered(left)
    assert not replace(watch, seconds=watch.seconds + 1).is_covered(left)


def test_money_for_the_fallback_is_kept_too() -> None:
    found = problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(24)))
    history = with_markets(found, History((measured(2),)))
    left = remaining(found, usd=Usd.of(24))
    on_demand = next(Plan.of(found, trial) for trial in history.measured if not trial.config.is_spot)
    seconds, fallback = seconds_on_spot(found, config(2, SPOT), [on_demand], left)
    assert fallback == on_demand
    assert found.price(config(2, SPOT)).for_seconds(seconds) + on_demand.worst_usd <= Usd.of(24)
    assert found.price(config(2, SPOT)).for_seconds(seconds + 1) + on_demand.worst_usd > Usd.of(24)
    assert seconds_on_spot(found, config(2, SPOT), [on_demand], remaining(found, usd=on_demand.worst_usd))[1] is None


def test_a_look_on_spot_nodes_pays_for_bringing_their_data() -> None:
    """Else an interruption could leave less than the fallback needs."""
    moved = Usd.of("0.5")
    found = problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(28)), moves={"": DataMove(usd=moved)})
    history = with_markets(found, History((measured(2),)))
    left = remaining(found, usd=Usd.of(28))
    (place,) = watched(found, history, left)
    watch = place.watch
    assert watch is not None
    assert watch.fallback is not None
    assert watch.usd == found.price(config(2, SPOT)).for_seconds(watch.seconds) + moved
    assert watch.usd + watch.fallback.worst_usd <= Usd.of(28)
    paid, _ = seconds_on_spot(found, config(2, SPOT), [watch.fallback], left, has_data=True)
    assert paid > watch.seconds


def test_the_ledger_refuses_spot_without_room_for_the_fallback() -> None:
    found = problem(goal=Goal(minimize=Objective.COST, deadline_seconds=13 * HOUR))
    history = with_markets(found, History((measured(2),)))
    ledger = Ledger(problem=found, history=history)
    (place,) = watched(found, history, ledger.remaining())
    answer = ledger.authorise_run(place.plan, place.watch)
    assert isinstance(answer, Authorisation)
    assert answer.seconds <= 13 * HOUR
    later = replace(ledger, elapsed_seconds=10.0)
    assert isinstance(later.authorise_run(place.plan, place.watch), Refusal)


def test_where_nothing_fits_for_certain_spot_goes_on_without_a_fallback_if_it_is_likely_to_fit() -> None:
    """After an interruption: to end the training there would waste what remains."""
    seen = belief(seen=1, expected=0.05)
    found = problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(9)), interruptions=seen, watched=True)
    history = with_markets(found, History((measured(2),)))
    left = remaining(found, usd=Usd.of(9))
    assert not any(left.fits(Plan.of(found, trial)) for trial in history.measured)
    (place,) = watched(found, history, left)
    assert place.plan.config == config(2, SPOT)
    assert place.watch is not None
    assert place.watch.fallback is None
    assert place.watch.is_covered(left)
    unwatched = replace(found, watched=False)
    assert list(watched(unwatched, history, left, has_begun=True)) == [place]  # with every strategy
    assert list(watched(unwatched, history, left)) == []  # nothing is done yet: nothing starts that may be in vain
    assert list(watched(found, history, remaining(found, usd=Usd.of(4)))) == []  # not likely to


def test_a_job_that_saves_nothing_is_not_watched_on_spot() -> None:
    found = problem(goal=Goal(minimize=Objective.COST, deadline_seconds=13 * HOUR), interruptions=belief(saves=False))
    history = with_markets(found, History((measured(2),)))
    assert list(watched(found, history, remaining(found, seconds=13 * HOUR))) == []
