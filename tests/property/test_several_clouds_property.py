"""Several clouds at random, with data that costs to move and clouds that refuse: nothing is ever overspent."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.property.test_beside_property import check_books, check_open, chose_for_certain
from tests.property.test_search_property import a_search
from tests.property.test_watched_property import close_call
from tests.synthetic import Listed, driven, make_engine

from mlcd.clouds.provider import Cloud, JobProgress, Lease, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.wrappers import SlowerRun, Wrapped
from mlcd.problem import DataMove, Problem
from mlcd.run.attempt import Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space.placed import place_of
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind
from mlcd.units import Usd

PLACES = ("aws/us-east-1", "gcp", "azure/westeurope")
REFUSAL = "this place gives no nodes"
SEEDS = [pytest.param(range(100), id="100"), pytest.param(range(100, 10_000), id="10000", marks=pytest.mark.extra)]


class MovesData(Wrapped):
    """Every lease starts later, by the time that its data takes."""

    def __init__(self, inner: Cloud, moves: dict[str, DataMove]) -> None:
        super().__init__(inner)
        self.moves = moves

    def lease(self, order: Order) -> Lease:
        move = self.moves.get(place_of(order.config.instance), DataMove())
        seconds = move.trial_seconds if order.purpose is Purpose.TRIAL else move.seconds
        return _LaterLease(super().lease(order), seconds)


class _LaterLease:
    def __init__(self, inner: Lease, seconds: float) -> None:
        self.inner, self.seconds = inner, seconds

    def __enter__(self) -> "_LaterLease":
        self.inner.__enter__()
        return self

    def __exit__(self, *exit_: object) -> bool | None:
        return self.inner.__exit__(*exit_)  # type: ignore[arg-type]

    def progress(self) -> Iterator[JobProgress]:
        try:
            for point in self.inner.progress():
                yield JobProgress(point.seconds + self.seconds, point.samples)
        except LeaseFailed as failed:
            failed.seconds += self.seconds
            raise

    def finish(self, at: JobProgress) -> Settled:
        settled = self.inner.finish(JobProgress(max(at.seconds - self.seconds, 0.0), at.samples))
        return replace(settled, seconds=settled.seconds + self.seconds)


class Refuses(Wrapped):
    """Places that give no nodes: from their first order on, or when the training is ordered."""

    def __init__(self, inner: Cloud, *, trials: dict[str, FailureKind], runs: dict[str, FailureKind]) -> None:
        super().__init__(inner)
        self.trials, self.runs = trials, runs

    def lease(self, order: Order) -> Lease:
        refusing = self.trials if order.purpose is Purpose.TRIAL else self.runs
        if (kind := refusing.get(place_of(order.config.instance))) is not None:
            raise LeaseFailed(kind, REFUSAL, seconds=min(5.0, order.seconds), billed=False)
        return super().lease(order)


def run_of(seed: int) -> tuple[SearchRun, bool]:
    """The run, and whether its training gets its nodes and is as fast as its trials."""
    rng = random.Random(f"clouds|{seed}")
    places = PLACES[: rng.randint(2, 3)]
    problem, cloud, text, parallel = a_search(rng, places)
    while problem.goal.budget is None or len(set(problem.places)) < 2:
        problem, cloud, text, parallel = a_search(rng, places)
    listed: Listed | None = None
    if rng.random() < 0.5 and problem.noise > 0:
        problem, listed = close_call(problem, cloud, rng)
    problem = with_data(problem, rng)
    work = rng.choice(("thrown", "kept", "beside", "beside"))
    problem = replace(
        problem,
        watched=rng.random() < 0.7,
        keeps_work=work == "kept",
        beside=work == "beside",
        restart_seconds=0.0 if work == "thrown" else rng.choice((0.0, 60.0)),
    )
    refusals = (FailureKind.REFUSED, FailureKind.CAPACITY)
    share = rng.choice((0.0, 0.0, 0.5, 3.0))
    cloud = Refuses(
        SlowerRun(MovesData(cloud, dict(problem.moves)), share=share),
        trials={place: rng.choice(refusals) for place in places if rng.random() < 0.1},
        runs={place: rng.choice(refusals) for place in places if rng.random() < 0.1},
    )
    with Store(None) as store:
        text = rng.choice((text, "auto"))
        engine = make_engine(problem, cloud, store, text, seed=seed, parallel=parallel, chosen=listed)
        return driven(engine, store), share == 0 and not cloud.runs


def with_data(problem: Problem, rng: random.Random) -> Problem:
    """The problem with data to move at most places, up to half of its budget, which pays for some of it more."""
    goal = problem.goal
    dollars = 10.0 if goal.budget is None else goal.budget.dollars
    moves = {place: _move(rng, dollars) for place in dict.fromkeys(problem.places) if rng.random() < 0.8}
    if goal.budget is not None and moves:
        more = max(move.usd + move.trial_usd * 2 for move in moves.values()) * rng.choice((0.5, 1.0, 1.0, 2.0))
        goal = replace(goal, budget=goal.budget + more)
    return replace(problem, goal=goal, moves=moves)


def _move(rng: random.Random, dollars: float) -> DataMove:
    """What may be nothing; a trial may need less."""
    usd, seconds = dollars * rng.choice((0.0, 0.01, 0.1, 0.5)), rng.choice((0.0, 0.0, 30.0, 600.0))
    less = rng.choice((1.0, 0.1))
    return DataMove(
        usd=Usd.of(round(usd, 6)),
        trial_usd=Usd.of(round(usd * less, 6)),
        seconds=seconds,
        trial_seconds=seconds * less,
    )


def check_moves(run: SearchRun) -> None:
    """Each lease pays for its data once, besides its time: counted apart from the ledger."""
    held_seconds, held_usd = 0.0, Usd(0)  # of the stretches that this one continues
    for step in run.steps:
        assert step.outcome is not None
        move, seconds, usd = run.problem.move_to(step.config), step.outcome.seconds, step.outcome.usd
        if step.role is Role.TRIAL:
            assert usd == (Usd(0) if is_unpaid(step) else step.price.for_seconds(seconds) + move.trial_usd)
            assert usd <= step.authorised_usd
            continue
        if not held_seconds:  # a lease begins: what was authorised, and its look, pay for its time and its data
            least = step.price.for_seconds(max(step.authorised_seconds - 0.002, 0.0)) + move.usd  # without rounding up
            assert step.authorised_usd >= least
            assert step.watch is None or step.watch.usd == step.price.for_seconds(step.watch.seconds) + move.usd
        seconds, usd = held_seconds + seconds, held_usd + usd
        assert usd == (Usd(0) if is_unpaid(step) else step.price.for_seconds(seconds) + move.usd)
        goes_on = step.final.ending is Ending.CONTINUED
        held_seconds, held_usd = (seconds, usd) if goes_on else (0.0, Usd(0))


def is_unpaid(step: Step) -> bool:
    """Whether no nodes were given."""
    return getattr(step.outcome, "message", "") == REFUSAL or (
        isinstance(step.outcome, Failure) and step.outcome.kind is FailureKind.CAPACITY
    )


def kept_promise(seed: int) -> SearchRun:
    run, as_measured = run_of(seed)
    goal = run.problem.goal
    if as_measured and any(step.role is Role.TRAINING for step in run.steps):
        assert run.status is Status.DONE or (run.status is Status.NOTHING_FITS and not chose_for_certain(run))
    assert run.status.is_final
    assert run.status is not Status.OVERRAN or run.final is not None
    assert goal.budget is None or run.total_usd <= goal.budget
    if run.status is not Status.OVERRAN:
        assert goal.deadline_seconds is None or run.total_seconds <= goal.deadline_seconds * (1 + 1e-9)
    if as_measured:
        check_open(run)
        check_books(run)
    else:  # a training that is far slower than its trials may end late; it never costs more
        check_open(replace(run, problem=replace(run.problem, goal=replace(goal, deadline_seconds=None))))
    check_moves(run)
    return run


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_protocols_over_several_clouds_never_overspend(seeds: range) -> None:
    """What can happen is seen among them: else they would prove little."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        run = kept_promise(seed)
        seen[run.status] += 1
        seen["refused"] += bool(run.history.refused_places)
        seen["moved on"] += any(attempt.refused for attempt in run.attempts)
        moved = [step for step in run.steps if run.problem.move_to(step.config).usd > 0]
        seen["data paid"] += any(not is_unpaid(step) for step in moved)
        seen["trained with data"] += any(step.role is Role.TRAINING for step in moved)
        seen["beside"] += any(attempt.ending is Ending.CONTINUED for attempt in run.attempts) or run.problem.beside
        budget = goal.budget if (goal := run.problem.goal) else None
        seen["tight"] += budget is not None and run.total_usd.micros > 0.8 * budget.micros
    wanted = (Status.DONE, Status.NOTHING_FITS, Status.REFUSED, "refused", "moved on", "data paid", "trained with data")
    assert not [what for what in (*wanted, "beside", "tight") if not seen[what]], seen
