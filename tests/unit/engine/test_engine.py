import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.synthetic import (
    MACHINES,
    Listed,
    SyntheticCloud,
    SyntheticLease,
    driven,
    make_engine,
    make_problem,
    stored,
    timeless,
)

from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Purpose
from mlcd.clouds.reading import Reading
from mlcd.clouds.wrappers import Flaky, NoisyRun, SlowerRun
from mlcd.errors import Interrupted, ProviderError
from mlcd.events import Event, RunBegan, RunEnded, RunProgress, SearchEnded, StepEnded, StepStarted, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Ending
from mlcd.run.step import Role, Step
from mlcd.search.registry import strategy
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion
from mlcd.units import Usd

D = Config.deployment
FASTEST = Goal(minimize=Objective.TIME)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def run(problem: Problem, cloud: Any, store: Store, chosen: Any, **others: Any) -> tuple[Any, list[Event]]:
    events: list[Event] = []
    record = driven(make_engine(problem, cloud, store, chosen=chosen, observer=events.append, **others), store)
    return record, events


def test_from_the_first_trial_to_the_receipt(store: Store) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(40)))
    cloud = SyntheticCloud()
    naive = (("the cheapest type", D("c5.small", 1)), ("the dearest", D("p2.one", 2)))
    chosen = Listed(configs=(D("c5.small", 1), D("c5.big", 4)))
    record, events = run(problem, cloud, store, chosen, naive=naive)
    assert record.status is Status.DONE
    assert record.choice is not None
    assert record.choice.config == D("c5.big", 4)
    assert [type(event) for event in events[:7]] == [
        StepStarted, StepEnded, StepStarted, StepEnded, SearchEnded, StepStarted, RunProgress,
    ]  # fmt: skip
    assert isinstance(events[-1], StepEnded)
    assert events[-1].step == record.steps[-1]
    ends = [event for event in events if isinstance(event, RunProgress)]
    assert (ends[0].fraction, ends[-1].fraction) == (0.0, 1.0)
    assert ends[-1].money.spent == record.total_usd
    true = cloud.true_samples_per_second(D("c5.big", 4))
    assert true is not None
    assert record.final is not None
    assert record.final.seconds == pytest.approx(48 + problem.work_samples / true)
    assert record.final.usd == problem.price(D("c5.big", 4)).for_seconds(record.final.seconds)
    assert [(n.label, n.measured) for n in record.naive] == [("the cheapest type", True), ("the dearest", False)]
    assert cloud.released == len(cloud.leased) == 3
    assert record.stopped == "the list is at its end"


def test_what_a_job_says_is_wrong_reaches_the_user(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [Reading(seconds=at, warning="the loss at 640 samples is not a number") for at in (1.0, 2.0)]
    monkeypatch.setattr(SyntheticLease, "heard", said, raising=False)
    _, events = run(make_problem(), SyntheticCloud(), store, Listed(configs=(D("c5.big", 1),)))
    kinds = [type(event) for event in events]
    assert kinds[:3] == [StepStarted, StepEnded, Warned], "once a trial, however often it was said"
    warned = [event.text for event in events if isinstance(event, Warned)]
    assert warned == [f"{where}: the loss at 640 samples is not a number" for where in (D("c5.big", 1), "the training")]


def test_a_finished_run_is_only_shown_again(store: Store) -> None:
    problem, cloud = make_problem(), SyntheticCloud()
    chosen = Listed(configs=(D("c5.big", 1),))
    record, _ = run(problem, cloud, store, chosen)
    before = len(cloud.leased)
    again, events = run(problem, cloud, store, chosen, add=False)
    assert again == record
    assert len(cloud.leased) == before
    assert not events


def test_no_more_trials_than_allowed(store: Store) -> None:
    problem = make_problem(max_trials=3)
    record, _ = run(problem, SyntheticCloud(), store, strategy("exhaustive"), parallel=2)
    assert len(record.trials) == 3
    assert [row.round for row in record.trials] == [1, 1, 2]
    assert record.stopped == "the limit of 3 trials is reached"


def test_trials_at_once_share_a_round_and_its_time(store: Store) -> None:
    problem = make_problem()
    record, _ = run(problem, SyntheticCloud(), store, Listed(configs=(D("c5.small", 1), D("c5.small", 16))), parallel=2)
    assert [row.started_seconds for row in record.trials] == [0.0, 0.0]
    assert record.search_seconds == max(row.trial.seconds for row in record.trials)
    assert record.search_usd == record.trials[0].trial.usd + record.trials[1].trial.usd


@pytest.mark.parametrize(("short", "first_round"), [(0, 2), (1, 1)])
def test_the_ledger_authorises_the_sum_of_a_round(store: Store, short: int, first_round: int) -> None:
    free, pair = make_problem(), (D("p2.one", 16), D("p2.one", 12))
    worst = Usd(sum(int(free.worst_trial_micros[free.space.index[config]]) for config in pair))
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=worst - Usd(short)))
    record, _ = run(problem, SyntheticCloud(), store, Listed(configs=pair), parallel=2)
    assert [row.round for row in record.trials].count(1) == first_round


class Rash(Listed):
    """Suggests what the ledger refused."""

    def suggest(self, problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        rest = [c for c in self.configs if c not in history.tried]
        return tuple(Suggestion(config=c, reason="rash") for c in rest[:count])


def test_what_is_refused_is_never_started(store: Store) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of("0.1")))
    cloud = SyntheticCloud()
    record, _ = run(problem, cloud, store, Rash(configs=(D("p2.one", 16),)))
    assert record.status is Status.INFEASIBLE
    assert cloud.leased == []
    assert record.stopped.startswith("a trial of 16 x p2.one was refused: a trial may take")
    assert record.relaxations == () or record.relaxations[0].budget is not None


class FirstTimeBroken(SyntheticCloud):
    """The first attempt of every configuration fails in the same way."""

    def __init__(self, kind: FailureKind, *, seconds: float = 50.0, attempts: int = 1) -> None:
        super().__init__()
        self.kind, self.seconds, self.attempts = kind, seconds, attempts

    def lease(self, order: Order) -> Lease:
        lease = super().lease(order)
        if order.attempt <= self.attempts and order.purpose is Purpose.TRIAL:
            raise LeaseFailed(self.kind, "made", seconds=self.seconds)
        return lease


@pytest.mark.parametrize("kind", list(FailureKind))
def test_only_transient_failures_are_retried(store: Store, kind: FailureKind) -> None:
    record, _ = run(make_problem(), FirstTimeBroken(kind), store, Listed(configs=(D("c5.big", 2),)))
    attempts = [row.trial.attempt for row in record.trials]
    if kind.is_transient:
        assert attempts == [1, 2]
        assert record.trials[1].reason == "again, after: made"
        assert record.status is Status.DONE
    else:
        assert attempts == [1]
        assert record.status is (Status.REFUSED if kind is FailureKind.REFUSED else Status.ALL_FAILED)
        assert record.final is None


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_are_bounded(store: Store, retries: int) -> None:
    problem = make_problem(trial=TrialPolicy(retries=retries))
    cloud = FirstTimeBroken(FailureKind.LAUNCH, attempts=99)
    record, _ = run(problem, cloud, store, Listed(configs=(D("c5.big", 2),)))
    assert len(record.trials) == 1 + retries


def test_a_retry_that_cannot_be_afforded_does_not_end_the_search(store: Store) -> None:
    free = make_problem()
    dear, cheap = D("p2.one", 16), D("c5.big", 1)
    worst = Usd(int(free.worst_trial_micros[free.space.index[dear]]))
    problem = make_problem(goal=Goal(minimize=Objective.COST, budget=worst), work_samples=1e4)
    cloud = FirstTimeBroken(FailureKind.LAUNCH, seconds=600.0)
    record, _ = run(problem, cloud, store, Listed(configs=(dear, cheap)))
    assert [row.trial.config for row in record.trials] == [dear, cheap, cheap]
    assert record.status is Status.DONE


def test_a_round_is_recorded_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a round had two writes, a run killed between them would continue differently."""
    rounds: list[int] = []
    write = store.start

    def watched(run_id: str, steps: Sequence[Step]) -> None:
        if steps[0].role is Role.TRIAL:
            rounds.append(len(steps))
        write(run_id, steps)

    monkeypatch.setattr(store, "start", watched)
    run(make_problem(max_trials=5), SyntheticCloud(), store, strategy("exhaustive"), parallel=3)
    assert rounds == [3, 2]


def test_statuses_when_nothing_is_trained(store: Store) -> None:
    nothing_fits = make_problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(2)))
    record, _ = run(nothing_fits, SyntheticCloud(), store, Listed(configs=(D("c5.small", 1),)))
    assert record.status is Status.NOTHING_FITS
    assert record.choice is None
    assert record.relaxations


def test_a_choice_that_was_not_measured_or_does_not_fit_is_not_trained(store: Store) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(30)))
    never = Plan(config=D("p2.one", 8), seconds=10, usd=Usd.of(1), worst_seconds=10, worst_usd=Usd.of(1))
    dear = Plan(config=D("c5.small", 1), seconds=10, usd=Usd.of(1), worst_seconds=10, worst_usd=Usd.of(31))
    for number, answer in enumerate((never, dear)):
        cloud = SyntheticCloud()
        chosen = Listed(configs=(D("c5.small", 1),), answer=answer)
        record, _ = run(problem, cloud, store, chosen, run_id=f"r{number}")
        assert record.choice is None
        assert record.status is Status.NOTHING_FITS
        assert all(purpose is Purpose.TRIAL for _, _, purpose in cloud.leased)


def test_an_unguarded_strategy_that_breaks_its_limit_is_reported(store: Store) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(10)), max_trials=24)
    record, _ = run(problem, SyntheticCloud(), store, strategy("exhaustive"))
    assert record.status is Status.OVERRAN
    assert record.total_usd > Usd.of(10)
    late = make_problem(goal=Goal(minimize=Objective.COST, deadline_seconds=5 * 3600), max_trials=24)
    record, _ = run(late, SyntheticCloud(), store, strategy("exhaustive"), run_id="late")
    assert record.status is Status.OVERRAN
    assert record.total_seconds > 5 * 3600


def test_a_noisy_run_that_overruns_is_reported(store: Store) -> None:
    class Slower(NoisyRun):
        def lease(self, order: Order) -> Lease:
            lease = self.inner.lease(order)
            assert isinstance(lease, SyntheticLease)
            if order.purpose is Purpose.RUN and lease.speed is not None:
                lease.speed /= 3
            return lease

    problem = make_problem(goal=Goal(minimize=Objective.COST, budget=Usd.of(12)))
    cloud = Slower(SyntheticCloud(), sigma=0.1, seed=1)
    record, _ = run(problem, cloud, store, Listed(configs=(D("c5.small", 1),)))
    assert record.status is Status.OVERRAN
    assert record.final is not None
    assert record.final.ending is Ending.STOPPED, "a simulated training is stopped before the budget breaks, too"
    assert record.total_usd <= Usd.of(12)
    assert "stopped before it would cost more than the budget of $12.00; 4" in record.final.message


@pytest.mark.parametrize("slower", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("limit", ["budget", "deadline"])
def test_a_training_within_the_slowdown_keeps_the_limits(store: Store, slower: float, limit: str) -> None:
    """The tightest limit that lets the training start: without the slowdown in its bound, a slower one breaks it."""
    cloud, config = SlowerRun(SyntheticCloud(), share=slower), D("c5.small", 1)
    free = make_problem(noise=0.0, slowdown=0.1)
    first, _ = run(free, SyntheticCloud(), store, Listed(configs=(config,)), run_id="free")
    choice = first.choice
    assert choice is not None
    budget = first.search_usd + choice.worst_usd
    seconds = first.search_seconds + choice.worst_seconds
    limits: dict[str, Any] = {"budget": budget} if limit == "budget" else {"deadline_seconds": seconds}
    goal = Goal(minimize=Objective.COST, **limits)
    record, _ = run(replace(free, goal=goal), cloud, store, Listed(configs=(config,)), run_id="tight")
    assert record.status is Status.DONE
    assert record.total_usd <= budget
    assert record.total_seconds <= seconds


def test_paleo_trains_unseen_and_may_fail_there(store: Store) -> None:
    machines = {name: type(m)(usd_per_hour=m.usd_per_hour, speed=m.speed, drag=m.drag, fewest=99)
                for name, m in MACHINES.items()}  # fmt: skip
    problem = make_problem()
    record, _ = run(problem, SyntheticCloud(machines), store, strategy("paleo"))
    assert record.trials == ()
    assert record.status is Status.RUN_FAILED
    assert record.final is not None
    assert record.final.usd > Usd(0)
    fine, _ = run(problem, SyntheticCloud(), store, strategy("paleo"), run_id="fine")
    assert fine.status is Status.DONE
    hopeless = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd(1)))
    none, _ = run(hopeless, SyntheticCloud(), store, strategy("paleo"), run_id="none")
    assert none.status is Status.INFEASIBLE


class Stops(SyntheticCloud):
    """The training ends before its work is done."""

    def lease(self, order: Order) -> Lease:
        lease = super().lease(order)
        if order.purpose is Purpose.RUN:
            assert isinstance(lease, SyntheticLease)
            return _Short(self, lease.speed, lease.startup_seconds)
        return lease


class _Short(SyntheticLease):
    def progress(self) -> Iterator[JobProgress]:
        yield JobProgress(0.0, 0.0)
        yield JobProgress(700.0, 10.0)


def test_a_run_that_ends_too_early_is_paid_and_not_called_done(store: Store) -> None:
    record, _ = run(make_problem(), Stops(), store, Listed(configs=(D("c5.small", 1),)))
    assert record.status is Status.RUN_FAILED
    assert record.final is not None
    assert record.final.seconds == 700
    assert record.final.usd == make_problem().price(D("c5.small", 1)).for_seconds(700)


class Interrupting(SyntheticCloud):
    """Raises in the lease of one configuration, once the others have started or ended."""

    def __init__(self, config: Config, error: BaseException, *, simulated: bool = True) -> None:
        super().__init__(simulated=simulated)
        self.config, self.error = config, error
        self.gate = threading.Event()

    def lease(self, order: Order) -> Lease:
        lease = super().lease(order)
        if order.config == self.config:
            raise self.error
        return lease


def test_ctrl_c_keeps_what_was_paid_and_resumes(store: Store) -> None:
    problem = make_problem(max_trials=3)
    chosen = Listed(configs=(D("c5.small", 1), D("c5.small", 2), D("c5.small", 4)))
    with pytest.raises(Interrupted, match="mlcd resume run-1"):
        run(problem, Interrupting(D("c5.small", 2), KeyboardInterrupt()), store, chosen)
    half = stored(store)
    assert half.status is Status.INTERRUPTED
    assert len(half.trials) == 1
    assert len(stored(store).in_flight) == 1
    resumed, _ = run(problem, SyntheticCloud(), store, chosen, add=False)
    whole, _ = run(problem, SyntheticCloud(), store, chosen, run_id="whole")
    assert timeless(resumed.trials) == timeless(whole.trials)
    assert resumed.final == whole.final


def test_ctrl_c_in_one_of_several_keeps_the_others_that_ended(store: Store) -> None:
    problem = make_problem(max_trials=3)
    chosen = Listed(configs=(D("c5.small", 1), D("c5.small", 2), D("c5.small", 4)))
    cloud = Interrupting(D("c5.small", 2), KeyboardInterrupt(), simulated=False)
    with pytest.raises(Interrupted):
        run(problem, cloud, store, chosen, parallel=3)
    trials = {row.trial.config: row.trial for row in stored(store).trials}
    assert len(trials) == 3
    lost = trials[D("c5.small", 2)]
    assert isinstance(lost, Failure)
    assert (lost.kind, lost.message) == (FailureKind.STOPPED, "interrupted with the run")
    for config in (D("c5.small", 1), D("c5.small", 4)):
        trial = trials[config]
        assert isinstance(trial, Measurement) or trial.kind is FailureKind.STOPPED
    assert cloud.released == 2


def test_what_had_ended_when_ctrl_c_was_pressed_is_kept(store: Store) -> None:
    problem, cloud = make_problem(max_trials=3), SyntheticCloud(simulated=False)
    pressed: list[Event] = []

    def press(event: Event) -> None:
        if isinstance(event, StepEnded) and not pressed:
            pressed.append(event)
            while cloud.released < 3:
                threading.Event().wait(0.001)
            raise KeyboardInterrupt

    configs = (D("c5.small", 1), D("c5.small", 2), D("c5.small", 4))
    engine = make_engine(problem, cloud, store, chosen=Listed(configs=configs), parallel=3, observer=press)
    with pytest.raises(Interrupted):
        engine.drive()
    assert stored(store).status is Status.INTERRUPTED
    assert [type(row.trial) for row in stored(store).trials] == [Measurement] * 3


def test_without_a_measurement_there_is_nothing_to_compare(store: Store) -> None:
    naive = (("the cheapest type", D("c5.small", 1)),)
    cloud = FirstTimeBroken(FailureKind.ERROR)
    record, _ = run(make_problem(), cloud, store, Listed(configs=(D("c5.big", 2),)), naive=naive)
    assert record.naive == ()


def test_a_provider_error_ends_the_command_and_the_run_can_continue(store: Store) -> None:
    problem = make_problem(max_trials=2)
    chosen = Listed(configs=(D("c5.small", 1), D("c5.small", 2)))
    for parallel, run_id in ((1, "one"), (2, "two")):
        cloud = Interrupting(D("c5.small", 2), ProviderError("quota exceeded"))
        with pytest.raises(ProviderError, match="quota"):
            run(problem, cloud, store, chosen, parallel=parallel, run_id=run_id)
        assert stored(store, run_id).status is Status.RUNNING
        record, _ = run(problem, SyntheticCloud(), store, chosen, parallel=parallel, run_id=run_id, add=False)
        assert record.status is Status.DONE
        assert len(record.trials) == 2


def test_a_run_killed_after_the_verdict_trains_once(store: Store) -> None:
    class Killed(BaseException):
        """mlcd died here."""

    class Dies(SyntheticCloud):
        def lease(self, order: Order) -> Lease:
            if order.purpose is Purpose.RUN:
                raise Killed
            return super().lease(order)

    problem, chosen = make_problem(), Listed(configs=(D("c5.small", 1),))
    with pytest.raises(Killed):
        run(problem, Dies(), store, chosen)
    cloud = SyntheticCloud()
    record, _ = run(problem, cloud, store, chosen, add=False)
    assert record.status is Status.DONE
    assert [purpose for _, _, purpose in cloud.leased] == [Purpose.RUN]


def test_reported_money_stays_within_the_limits(store: Store) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(40), deadline_seconds=50 * 3600))
    _, events = run(problem, Flaky(SyntheticCloud(), rate=0.3, seed=2), store, strategy("heterbo"), parallel=2)
    for event in events:
        assert not isinstance(event, Warned | RunBegan | RunEnded)
        money = event.money
        assert money.left is not None
        assert money.seconds_left is not None
        assert money.spent + money.reserved + money.left <= Usd.of(40)
        assert money.elapsed_seconds + money.reserved_seconds + money.seconds_left <= 50 * 3600 + 1e-6


def test_a_real_training_that_dies_with_mlcd_is_charged_and_restarted(store: Store) -> None:
    problem, cloud = make_problem(max_trials=1), SyntheticCloud(simulated=False)
    chosen = Listed(configs=(D("c5.small", 2),))

    def press(event: Event) -> None:
        if isinstance(event, RunProgress):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        make_engine(problem, cloud, store, chosen=chosen, observer=press).drive()
    begun = stored(store)
    assert begun.status is Status.INTERRUPTED
    assert begun.final is None
    assert [run.is_done for run in begun.earlier] == [False]
    record = driven(make_engine(problem, cloud, store, chosen=chosen, add=False), store)
    assert record.status is Status.DONE
    assert len(record.trials) == 1
    assert record.final is not None
    assert record.total_usd == record.search_usd + record.earlier[0].usd + record.final.usd


def test_a_real_training_that_no_longer_fits_is_not_restarted(store: Store) -> None:
    cloud, chosen = SyntheticCloud(simulated=False), Listed(configs=(D("c5.small", 2),))
    plain, _ = run(make_problem(max_trials=1), SyntheticCloud(), store, chosen, run_id="plain")
    assert plain.choice is not None
    budget = plain.search_usd + plain.choice.worst_usd + Usd(1)
    problem = make_problem(max_trials=1, goal=Goal(minimize=Objective.TIME, budget=budget))

    def press(event: Event) -> None:
        if isinstance(event, RunProgress):
            threading.Event().wait(0.05)
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        make_engine(problem, cloud, store, chosen=chosen, observer=press).drive()
    record = driven(make_engine(problem, cloud, store, chosen=chosen, add=False), store)
    assert record.status is Status.NOTHING_FITS
    assert record.final is None
    assert record.total_usd <= budget


def test_a_search_reports_why_it_ended(store: Store) -> None:
    names = {
        "random:steps=2": "all 2 random trials were made",
        "exhaustive:points=3": "all 3 selected configurations were tried",
        "paleo": "paleo makes no trials",
        "convbo:steps=4,threshold=0": "all 4 trials of convbo were made",
        "cherrypick:threshold=0.9": "the expected improvement is under 90% of the best",
    }
    for number, (name, words) in enumerate(names.items()):
        record, _ = run(make_problem(), SyntheticCloud(), store, strategy(name), run_id=f"run-{number}")
        assert words in record.stopped, name


def test_heterbo_reports_when_the_reserve_ends_the_search(store: Store) -> None:
    free, _ = run(make_problem(max_trials=1), SyntheticCloud(), store, strategy("heterbo"), run_id="free")
    assert free.choice is not None
    budget = free.search_usd + free.choice.worst_usd + Usd(1)
    tight = make_problem(goal=Goal(minimize=Objective.TIME, budget=budget))
    record, _ = run(tight, SyntheticCloud(), store, strategy("heterbo"), run_id="tight")
    assert len(record.trials) == 1
    kept = f"what is kept to train on {free.choice.config} leaves no room for another trial: "
    assert record.stopped.startswith(kept)
    assert record.stopped.endswith("more would let the search continue")
