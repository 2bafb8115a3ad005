"""The loop on its own: the order of records, starts and events, and the state after a kill or Ctrl-C."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.clocks import FakeClocks
from tests.synthetic import (
    Listed,
    SyntheticCloud,
    driven,
    make_engine,
    make_problem,
    make_run,
    measured,
    stored,
    timeless,
)

from mlcd.clouds.wrappers import Flaky
from mlcd.deciders.decision import Conclude, Decision, End, Start
from mlcd.engine import Engine
from mlcd.engine.performer import Situation
from mlcd.engine.trials import lost_trial
from mlcd.errors import Interrupted, ProviderError
from mlcd.events import Event, SearchEnded, StepEnded, StepStarted, Warned
from mlcd.goal import Goal, Objective
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation
from mlcd.run.findings import Findings
from mlcd.run.money import Money
from mlcd.run.run import SearchRun
from mlcd.run.step import Outcome, Request, Role, Step
from mlcd.run.verdict import Verdict
from mlcd.space import Config
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, Measurement
from mlcd.units import ZERO, Usd

D = Config.deployment
A, B, C = D("c5.small", 1), D("c5.small", 2), D("c5.small", 4)
AUTHORISED_SECONDS = 1000.0


class Killed(BaseException):
    """Like kill -9: nothing of mlcd runs after it."""


@dataclass
class Rounds:
    """A decider that starts fixed rounds, one after the other, then concludes and ends. `before` is called first."""

    rounds: Sequence[Sequence[Config]]
    before: Callable[[SearchRun], None] = lambda _run: None

    def next(self, run: SearchRun, elapsed_seconds: float) -> Decision:
        self.before(run)
        assert not run.in_flight, "the loop asks only when everything is settled"
        done = max((step.round for step in run.steps), default=0)
        if done < len(self.rounds):
            return Start(requests=tuple(self._request(run, config) for config in self.rounds[done]))
        if run.verdict is None:
            return Conclude(verdict=Verdict(stopped="all rounds were made", search_seconds=elapsed_seconds))
        return End(status=Status.DONE)

    def money(self, run: SearchRun, elapsed_seconds: float) -> Money:
        return Money(
            spent=run.spent,
            reserved=ZERO,
            left=None,
            elapsed_seconds=elapsed_seconds,
            reserved_seconds=0.0,
            seconds_left=None,
        )

    def incumbent(self, run: SearchRun, elapsed_seconds: float) -> Plan | None:
        return None

    def _request(self, run: SearchRun, config: Config) -> Request:
        price = run.problem.price(config)
        usd = price.for_seconds(AUTHORISED_SECONDS)
        authorisation = Authorisation(choice=config, attempt=1, usd=usd, seconds=AUTHORISED_SECONDS)
        return Request(role=Role.TRIAL, authorisation=authorisation, reason="listed", usd_per_hour=price)


@dataclass
class Hands:
    """A performer whose trials take 100 s for each node. `trouble` is called with each step before it ends."""

    simulated: bool = True
    trouble: Callable[[Step, Situation[Problem]], None] = lambda _step, _situation: None
    log: list[tuple[str, Any]] = field(default_factory=list)

    def restore(self, run: SearchRun) -> None:
        self.log.append(("restore", len(run.ended)))

    def perform(self, step: Step, situation: Situation[Problem]) -> Outcome:
        self.log.append(("perform", step.number))
        self.trouble(step, situation)
        config = step.config
        return measured(situation.run.problem, config, speed=10.0 * config.nodes, seconds=100.0 * config.nodes)

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:
        self.log.append(("lost", (step.number, interrupted)))
        return lost_trial(step, situation, interrupted=interrupted)

    def calls(self) -> tuple[()]:
        return ()

    @property
    def performed(self) -> list[int]:
        return [what for name, what in self.log if name == "perform"]


@dataclass
class Loop:
    """Engines on one run of one store, each as a separate process would make it."""

    store: Store
    rounds: Sequence[Sequence[Config]]
    log: list[tuple[str, Any]] = field(default_factory=list)
    clocks: FakeClocks = field(default_factory=FakeClocks)

    def __post_init__(self) -> None:
        self.store.add(make_run(make_problem(), SyntheticCloud(), "rounds", run_id="run-1"), spec={})

    def engine(
        self,
        hands: Hands | None = None,
        *,
        before: Callable[[SearchRun], None] = lambda _run: None,
        observer: Callable[[Event], None] = lambda _event: None,
    ) -> Engine[Problem]:
        return Engine(
            run=stored(self.store),
            decider=Rounds(self.rounds, before),
            performer=hands or Hands(),
            journal=self.store,
            observer=observer,
            moments=self.clocks,
        )


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


def logged(store: Store, log: list[tuple[str, Any]]) -> None:
    """Append each completed write of the store to `log`."""

    def wrap(name: str, what: Callable[..., Any]) -> None:
        write = getattr(store, name)

        def doing(*args: Any, **others: Any) -> None:
            write(*args, **others)
            log.append((name, what(*args)))

        setattr(store, name, doing)

    wrap("start", lambda _id, steps: tuple(step.number for step in steps))
    wrap("end", lambda _id, step, *_calls: step.number)
    wrap("conclude", lambda _id, verdict: verdict.stopped)
    wrap("set_status", lambda _id, status: status)
    wrap("finish", lambda _id, status, _findings: status)


# ---- records and events


def test_nothing_starts_before_it_is_recorded(store: Store) -> None:
    loop = Loop(store, [[A], [B]])
    seen: list[int] = []

    def look(step: Step, situation: Situation[Problem]) -> None:
        kept = stored(store)
        assert [flying.number for flying in kept.in_flight] == [step.number]
        assert kept.in_flight[0] == step
        assert situation.run.steps == kept.ended, "what came before it has ended, and is written"
        seen.append(step.number)

    loop.engine(Hands(trouble=look)).drive()
    assert seen == [1, 2]


def test_a_round_is_recorded_before_any_of_its_steps_starts(tmp_path: Any) -> None:
    with Store(tmp_path) as store:
        loop = Loop(store, [[A, B, C]])
        written: list[tuple[int, ...]] = []

        def look(_step: Step, _situation: Situation[Problem]) -> None:
            with Store(tmp_path) as other:  # steps of a round run in threads of their own
                written.append(tuple(step.number for step in stored(other).steps))

        loop.engine(Hands(trouble=look)).drive()
    assert written == [(1, 2, 3)] * 3


def test_each_step_is_recorded_then_run_then_reported(store: Store) -> None:
    log: list[tuple[str, Any]] = []
    loop = Loop(store, [[A], [B]])
    logged(store, log)
    hands = Hands(log=log)

    def told(event: Event) -> None:
        match event:
            case StepStarted() | StepEnded():
                log.append((type(event).__name__, event.step.number))
            case SearchEnded():
                log.append(("SearchEnded", event.stopped))
            case _:
                raise AssertionError(event)

    loop.engine(hands, observer=told).drive()
    assert log == [
        ("restore", 0),
        ("start", (1,)),
        ("StepStarted", 1),
        ("perform", 1),
        ("end", 1),
        ("StepEnded", 1),
        ("start", (2,)),
        ("StepStarted", 2),
        ("perform", 2),
        ("end", 2),
        ("StepEnded", 2),
        ("conclude", "all rounds were made"),
        ("SearchEnded", "all rounds were made"),
        ("finish", Status.DONE),
    ]


def test_events_of_steps_are_passed_on_in_the_engines_thread_after_they_end(store: Store) -> None:
    events: list[Event] = []
    here = threading.get_ident()

    def observe(event: Event) -> None:
        assert threading.get_ident() == here
        events.append(event)

    def say(step: Step, situation: Situation[Problem]) -> None:
        situation.tell(Warned(text=f"of step {step.number}"))

    Loop(store, [[A, B], [C]]).engine(Hands(trouble=say), observer=observe).drive()
    for number in (1, 2, 3):
        (ended,) = [i for i, e in enumerate(events) if isinstance(e, StepEnded) and e.step.number == number]
        (warned,) = [i for i, e in enumerate(events) if e == Warned(text=f"of step {number}")]
        assert warned > ended or number < 3, "those of a round are told when the first of it has ended"
    assert [type(event) for event in events[:2]] == [StepStarted, StepStarted]
    assert events.index(Warned(text="of step 3")) == len(events) - 2


def test_rounds_follow_each_other_on_the_simulated_clock(store: Store) -> None:
    run = Loop(store, [[A, C], [B]]).engine().drive()
    assert [(step.round, step.started_seconds) for step in run.steps] == [(1, 0.0), (1, 0.0), (2, 400.0)]
    assert run.search_seconds == 600.0


def test_a_run_that_has_ended_is_returned_unchanged(store: Store) -> None:
    loop = Loop(store, [[A]])
    ended = loop.engine().drive()
    hands = Hands()
    assert loop.engine(hands).drive() == ended == stored(store)
    assert hands.log == []


# ---- a step that raises


@pytest.mark.parametrize("simulated", [True, False])
def test_one_of_a_round_raises_and_the_others_that_ended_are_kept(store: Store, simulated: bool) -> None:
    loop = Loop(store, [[A, B, C]])
    others = threading.Barrier(3, timeout=10)

    def quota(step: Step, _situation: Situation[Problem]) -> None:
        others.wait()
        if step.config == B:
            raise ProviderError("quota exceeded")

    with pytest.raises(ProviderError, match="quota"):
        loop.engine(Hands(simulated=simulated, trouble=quota)).drive()
    kept = stored(store)
    assert kept.status is Status.RUNNING
    assert [step.config for step in kept.in_flight] == [B]
    assert [step.config for step in kept.ended] == [A, C]
    hands = Hands(simulated=simulated)
    resumed = loop.engine(hands).drive()
    assert resumed.status is Status.DONE
    assert hands.performed == ([2] if simulated else []), "what ended is not run again"
    kinds = [type(step.outcome) for step in resumed.steps]
    assert kinds == [Measurement, Measurement if simulated else Failure, Measurement]


def test_the_others_of_a_round_are_asked_to_end_when_one_raises(store: Store) -> None:
    asked: list[bool] = []

    def wait_or_raise(step: Step, situation: Situation[Problem]) -> None:
        if step.config == B:
            raise ProviderError("quota exceeded")
        asked.append(situation.stop.wait(10))
        raise Interrupted("the run was stopped")

    with pytest.raises(ProviderError):
        Loop(store, [[A, B]]).engine(Hands(trouble=wait_or_raise)).drive()
    assert asked == [True]
    assert len(stored(store).in_flight) == 2


# ---- killed


def at(run: SearchRun) -> tuple[object, ...]:
    """A run without the wall clock."""
    return run.status, run.verdict, timeless(run.steps), run.spent, run.step_seconds


def test_killed_between_the_end_of_a_step_and_the_next_decision(store: Store) -> None:
    whole = Loop(store, [[A], [B], [C]]).engine().drive()
    for ended in (1, 2, 3):
        with Store(None) as other:
            loop = Loop(other, [[A], [B], [C]])

            def die(run: SearchRun, *, after: int = ended) -> None:
                if len(run.ended) == after:
                    raise Killed

            with pytest.raises(Killed):
                loop.engine(before=die).drive()
            assert len(stored(other).ended) == ended
            hands = Hands()
            assert at(loop.engine(hands).drive()) == at(whole)
            assert hands.performed == list(range(ended + 1, 4))


def killing(store: Store, moment: int) -> None:
    """Kill at this moment: there is one before and one after each write, counted from 1."""
    count = 0

    def wrap(write: Callable[..., Any]) -> Callable[..., Any]:
        def doing(*args: Any, **others: Any) -> None:
            nonlocal count
            count += 1
            if count == moment:
                raise Killed
            write(*args, **others)
            count += 1
            if count == moment:
                raise Killed

        return doing

    for name in ("start", "end", "conclude", "finish", "set_status"):
        setattr(store, name, wrap(getattr(store, name)))


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_killed_at_any_write_reaches_the_same_answer(parallel: int) -> None:
    problem = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(40)), max_trials=7)

    def engine(store: Store, *, add: bool) -> Engine[Problem]:
        cloud = Flaky(SyntheticCloud(noise=0.03, seed=2), rate=0.3, seed=2)
        return make_engine(problem, cloud, store, seed=2, parallel=parallel, add=add)

    with Store(None) as store:
        whole = driven(engine(store, add=True), store)
    assert whole.status is Status.DONE
    assert whole.history.failures
    rounds = {step.round for step in whole.steps}
    writes = len(rounds) + len(whole.steps) + 2
    for moment in range(1, 2 * writes + 1):
        with Store(None) as store:
            kept = {name: getattr(store, name) for name in ("start", "end", "conclude", "finish", "set_status")}
            first = engine(store, add=True)
            killing(store, moment)
            with pytest.raises(Killed):
                first.drive()
            for name, write in kept.items():
                setattr(store, name, write)
            again = driven(engine(store, add=False), store)
        assert at(again) == at(whole), f"killed at {moment}"


def test_a_simulated_step_in_flight_is_performed_again(store: Store) -> None:
    loop = Loop(store, [[A], [B]])

    def die(step: Step, _situation: Situation[Problem]) -> None:
        if step.number == 2:
            raise Killed

    with pytest.raises(Killed):
        loop.engine(Hands(trouble=die)).drive()
    hands = Hands()
    run = loop.engine(hands).drive()
    assert hands.log == [("restore", 1), ("perform", 2)]
    assert [type(step.outcome) for step in run.steps] == [Measurement, Measurement]


@pytest.mark.parametrize("downtime", [123.0, 1e6])
def test_a_real_step_in_flight_is_charged_once_and_only_once(store: Store, downtime: float) -> None:
    loop = Loop(store, [[A], [B]])

    def die(step: Step, _situation: Situation[Problem]) -> None:
        if step.number == 1:
            raise Killed

    with pytest.raises(Killed):
        loop.engine(Hands(simulated=False, trouble=die)).drive()
    assert stored(store).spent == ZERO
    loop.clocks.wait(downtime)

    def die_after_the_charge(run: SearchRun) -> None:
        raise Killed

    hands = Hands(simulated=False)
    with pytest.raises(Killed):
        loop.engine(hands, before=die_after_the_charge).drive()
    assert hands.log == [("restore", 0), ("lost", (1, False))]
    seconds = min(downtime, AUTHORISED_SECONDS)
    (lost,) = stored(store).ended
    assert isinstance(lost.outcome, Failure)
    assert (lost.outcome.kind, lost.outcome.seconds) == (FailureKind.LOST, seconds)
    assert stored(store).spent == lost.price.for_seconds(seconds) <= lost.authorised_usd
    loop.clocks.wait(1e6)
    hands = Hands(simulated=False)
    run = loop.engine(hands).drive()
    assert hands.log == [("restore", 1), ("perform", 2)], "it is neither run nor charged again"
    assert run.steps[0] == lost
    assert run.spent == lost.outcome.usd + run.steps[1].trial.usd


# ---- Ctrl-C


@pytest.mark.parametrize("simulated", [True, False])
def test_ctrl_c_while_a_step_runs(store: Store, simulated: bool) -> None:
    loop = Loop(store, [[A], [B]])

    def press(step: Step, _situation: Situation[Problem]) -> None:
        if step.number == 2:
            loop.clocks.wait(60.0)
            raise KeyboardInterrupt

    hands = Hands(simulated=simulated, trouble=press)
    with pytest.raises(Interrupted, match="mlcd resume run-1"):
        loop.engine(hands).drive()
    kept = stored(store)
    assert kept.status is Status.INTERRUPTED
    assert (len(kept.in_flight), len(kept.ended)) == ((1, 1) if simulated else (0, 2))
    assert [entry for entry in hands.log if entry[0] == "lost"] == ([] if simulated else [("lost", (2, True))])
    loop.clocks.wait(1e6)
    states: list[Status] = []
    again = Hands(simulated=simulated, trouble=lambda _step, situation: states.append(situation.run.status))
    run = loop.engine(again).drive()
    assert run.status is Status.DONE
    assert again.performed == ([2] if simulated else [])
    assert set(states) <= {Status.RUNNING}
    second = run.steps[1].trial
    assert second.seconds == (200.0 if simulated else 60.0), "downtime is not charged"


@pytest.mark.parametrize("name", ["start", "end", "conclude", "finish"])
@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_between_a_write_and_what_follows_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """The journal decides, whatever the engine had in memory at Ctrl-C."""
    loop = Loop(store, [[A, B], [C]])
    write, count = getattr(store, name), 0

    def press(*args: Any, **others: Any) -> None:
        nonlocal count
        write(*args, **others)
        count += 1
        if count == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, name, press)
    engine = loop.engine(Hands(simulated=False))
    if name == "finish" and number == 1:
        assert engine.drive().status is Status.DONE, "it was over: nothing was interrupted"
    elif name in ("conclude", "finish") and number == 2:
        assert engine.drive().status is Status.DONE, "there is only one"
    else:
        with pytest.raises(Interrupted):
            engine.drive()
        assert stored(store).in_flight == (), "each is settled, also those that had not begun"
        assert stored(store).status is Status.INTERRUPTED
    loop.clocks.wait(1e6)
    run = loop.engine(Hands(simulated=False)).drive()
    assert run.status is Status.DONE
    assert [step.number for step in run.steps] == [1, 2, 3]
    lost = [step for step in run.steps if isinstance(step.outcome, Failure)]
    assert [step.trial.seconds for step in lost] == [0.0] * len(lost), "downtime is not charged"


def test_ctrl_c_before_steps_start_charges_nothing_for_them(store: Store) -> None:
    loop = Loop(store, [[A, B, C]])

    def press(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step.number == 1:
            raise KeyboardInterrupt

    hands = Hands(simulated=False)
    with pytest.raises(Interrupted):
        loop.engine(hands, observer=press).drive()
    assert hands.performed == []
    assert stored(store).in_flight == ()
    loop.clocks.wait(1e6)
    assert loop.engine(Hands(simulated=False)).drive().spent == ZERO


def test_the_engine_names_what_it_was_doing_when_it_is_read_from_outside(store: Store) -> None:
    """`engine.run` is the newest state at any time."""
    engine = make_engine(make_problem(max_trials=2), SyntheticCloud(), store, chosen=Listed(configs=(A, B)))
    states: list[int] = []
    engine.observer = lambda _event: states.append(len(engine.run.ended))
    engine.drive()
    assert states[:4] == [0, 1, 1, 2]
    assert engine.run == stored(store)


def test_what_a_lost_step_is_charged_counts_as_time_where_the_clocks_cannot_tell(store: Store) -> None:
    loop = Loop(store, [[A]])

    def die(_step: Step, _situation: Situation[Problem]) -> None:
        raise Killed

    with pytest.raises(Killed):
        loop.engine(Hands(simulated=False, trouble=die)).drive()

    class Charging(Hands):
        def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:
            return replace(lost_trial(step, situation, interrupted=interrupted), seconds=700.0)

    loop.clocks.wait(10.0)
    (lost,) = loop.engine(Charging(simulated=False)).drive().steps
    assert lost.ended_seconds == lost.started_seconds + 700.0


def test_the_findings_of_a_run_are_stored_with_its_end(store: Store) -> None:
    loop = Loop(store, [[A]])
    engine = loop.engine()
    seen: list[Status] = []

    def found(run: SearchRun) -> Findings:
        seen.append(run.status)
        return Findings()

    engine.findings = found
    assert engine.drive().findings == Findings()
    assert stored(store).findings == Findings()
    assert seen == [Status.DONE], "computed once, of the run as it ended"


def test_a_step_knows_the_run_without_itself(store: Store) -> None:
    known: list[tuple[int, ...]] = []

    def look(_step: Step, situation: Situation[Problem]) -> None:
        known.append(tuple(step.number for step in situation.run.steps))

    Loop(store, [[A], [B]]).engine(Hands(trouble=look)).drive()
    assert known == [(), (1,)]
