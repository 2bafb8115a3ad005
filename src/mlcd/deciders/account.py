"""The state of a run at one instant: its trials, the remaining work, what is spent, and the resulting ledger."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from mlcd.ledger import Ledger
from mlcd.models.remaining import remaining_problem
from mlcd.problem import Problem
from mlcd.run.attempt import Attempt
from mlcd.run.authorisation import Authorisation
from mlcd.run.money import Money
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space.placed import place_of
from mlcd.trial.markets import with_markets
from mlcd.trial.plan import Plan
from mlcd.trial.replicas import with_replicas
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Trial
from mlcd.units import ZERO, Usd

RUN_ERROR_SHARE = 1 / 6
"""The error of a training's own speed, as a share of the difference between two runs (`Problem.noise`). Simulated
trainings keep their speed; a real one that loses more of it is covered by `Problem.slowdown`."""
KNOWN_SHARE = 0.5
"""The training's own speed counts once it was measured for this share of a trial."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A run at one instant of its clock.

    remaining  the problem with the remaining work
    guarded    False only for rivals on simulated clouds, to show what happens without the guarantee
    """

    run: SearchRun
    elapsed_seconds: float
    remaining: Problem
    guarded: bool = True

    @cached_property
    def history(self) -> History:
        """The trials; a speed measured later by a training or verification replaces the trial's own.

        Where trials are part of the training, whatever follows them is a restart. Of servers that scale out, with what
        the trials say about other numbers of nodes; where spot is a choice, with what they say about the other market.
        """
        history = with_replicas(self.run.problem, self.run.history)
        earlier = self.run.earlier
        seen = {a.config.machine: a.samples_per_second for a in earlier if a.samples_per_second or not a.interrupted}
        if seen:
            history = History(tuple(_as_trained(trial, seen.get(trial.config.machine)) for trial in history))
        if self.run.problem.learning:
            history = _with_same_learning(self.run.problem, history, earlier)
        is_restart = self.run.history.reached_samples > 0
        history = history.with_startup(self.run.problem.restart_seconds) if is_restart else history
        return available(with_markets(self.run.problem, history), earlier)

    @cached_property
    def restarting(self) -> History:
        """The same for a training that moves: none starts faster than `Problem.restart_seconds`."""
        return self.history.with_startup(self.run.problem.restart_seconds)

    @property
    def open(self) -> tuple[Authorisation, ...]:
        """Authorisations of steps in flight, each with the longest time that it may still take.

        Without a training beside trials, which is `training`.
        """
        beside = self._stretch_in_flight
        return tuple(
            replace(step.authorisation, seconds=self._seconds_left(step))
            for step in self.run.in_flight
            if step is not beside
        )

    @cached_property
    def training(self) -> Plan | None:
        """The rest of the work where the training runs, without a start-up; None where it runs nowhere.

        Its upper bound is what is left of its authorisation, or less where less work is left than it allows for.
        """
        running, ended = self._stretch_in_flight, self.run.open_stretch
        if running is not None:
            passed = self.elapsed_seconds - running.started_seconds
            return self._rest(running, running.authorised_usd, self._seconds_left(running), passed=passed)
        if ended is None:
            return None
        spent = ended.final
        return self._rest(ended, ended.authorised_usd - spent.usd, ended.authorised_seconds - spent.seconds)

    @property
    def _stretch_in_flight(self) -> Step | None:
        """The training in flight, of a run in which it runs beside trials."""
        if not self.run.problem.beside:
            return None
        return next((step for step in self.run.in_flight if step.role is Role.TRAINING), None)

    @property
    def _is_watched(self) -> bool:
        """Whether the training that runs beside trials may take what remains, because it is watched."""
        stretch = self._stretch_in_flight or self.run.open_stretch
        return stretch is not None and stretch.watch is not None

    def _seconds_left(self, step: Step) -> float:
        return max(step.started_seconds + step.authorised_seconds - self.elapsed_seconds, 0.0)

    def _rest(self, stretch: Step, most_usd: Usd, most_seconds: float, *, passed: float = 0.0) -> Plan:
        """The plan for the rest of the work where `stretch` ran, if at most this is left of its authorisation.

        passed  seconds for which it has been running; the work that it did in them is not counted yet
        """
        problem = self.run.problem
        config, before = stretch.config, self.run.attempts[-1] if self.run.open_stretch is not None else None
        is_restart = stretch.authorisation.attempt > 1
        tried = with_markets(problem, self.run.history)
        measured = [trial for trial in tried.measured if trial.config == config]
        history = self.restarting if is_restart else self.history
        trained = [trial for trial in history.measured if trial.config == config]
        bound = Plan(config=config, seconds=most_seconds, usd=most_usd, worst_seconds=most_seconds, worst_usd=most_usd)
        if not measured:
            return bound
        startup = max(trained[-1].startup_seconds - (before.seconds if before is not None else 0.0), 0.0)
        seen = [measured[-1], trained[-1]]
        watched = before.seconds if before is not None and before.samples_per_second is not None else 0.0
        if watched - trained[-1].startup_seconds >= KNOWN_SHARE * self.remaining.trial.planned_seconds(1):
            error = min(RUN_ERROR_SHARE * problem.noise, trained[-1].relative_error)
            seen = [replace(trained[-1], relative_error=error)]
        # Until its own speed is known, the slower one of the trial's and the training's bounds the rest.
        rests = (replace(trial, startup_seconds=startup, seconds=startup) for trial in seen)
        # The data of a lease is paid for with its first stretch: what goes on needs none.
        rest = self.remaining if before is None else replace(self.remaining, moves={})
        plans = [_later(Plan.of(rest, trial), passed) for trial in rests]
        expected, worst = plans[-1], max(plans, key=lambda plan: plan.worst_seconds)
        is_unbound = stretch.watch is not None  # its authorisation is what remained, not its upper bound
        if is_unbound or most_seconds < expected.seconds or most_usd < expected.usd:  # or it takes more than that
            return replace(expected, worst_seconds=worst.worst_seconds, worst_usd=worst.worst_usd)
        return replace(
            expected,
            worst_seconds=min(most_seconds, worst.worst_seconds),
            worst_usd=min(most_usd, worst.worst_usd),
        )

    @cached_property
    def ledger(self) -> Ledger:
        """What may be spent now, in addition to the steps in flight."""
        return Ledger(
            problem=self.remaining,
            history=self.history,
            spent=self.run.spent,
            elapsed_seconds=self.elapsed_seconds,
            open=self.open,
            guarded=self.guarded,
            training=self.training,
        )

    @property
    def noise_scale(self) -> float | None:
        """The noise scale of the job's gradients: from the training if it reported one, else from the trials."""
        return trained_noise(self.run) or self.history.noise_scale

    def incumbent(self) -> Plan | None:
        """The best measured configuration that fits what remains."""
        return self.ledger.incumbent()

    def money(self) -> Money:
        """What is spent, committed, reserved and remaining during the search."""
        ledger = self.ledger
        reserve = ledger.incumbent() if ledger.guarded else None
        if reserve is not None and self._is_watched:
            reserve = _at_most(reserve, ledger.usd_left, ledger.seconds_left)
        reserved = reserve.worst_usd if reserve else ZERO
        reserved_seconds = reserve.worst_seconds if reserve else 0.0
        return Money(
            spent=ledger.spent,
            reserved=reserved,
            left=None if ledger.usd_left is None else ledger.usd_left - reserved,
            elapsed_seconds=ledger.elapsed_seconds,
            reserved_seconds=reserved_seconds,
            seconds_left=ledger.seconds_after(reserve),
        )

    def money_while_training(self, usd: Usd, seconds: float, began_seconds: float) -> Money:
        """The same, `seconds` and `usd` into a training that began at `began_seconds` of the run."""
        goal, spent = self.run.problem.goal, self.run.spent + usd
        elapsed = began_seconds + seconds
        return Money(
            spent=spent,
            reserved=ZERO,
            left=None if goal.budget is None else goal.budget - spent,
            elapsed_seconds=elapsed,
            reserved_seconds=0.0,
            seconds_left=None if goal.deadline_seconds is None else goal.deadline_seconds - elapsed,
        )


@dataclass(kw_only=True)
class Accounts:
    """Accounts of one run. Caches the last remaining problem: its arrays over the whole space are slow to build."""

    guarded: bool = True
    _last: tuple[Problem, Problem] | None = field(default=None, init=False, repr=False, compare=False)

    def at(self, run: SearchRun, elapsed_seconds: float) -> Account:
        """The account of `run`, `elapsed_seconds` after its first start."""
        now = remaining_of(run)
        if self._last is None or self._last[0] is not run.problem or _work_in(self._last[1]) != _work_in(now):
            self._last = run.problem, now
        return Account(run=run, elapsed_seconds=elapsed_seconds, remaining=self._last[1], guarded=self.guarded)


def _with_same_learning(problem: Problem, history: History, attempts: Sequence[Attempt]) -> History:
    """The trials with which a training may continue: once it has saved work, those that learn as it did."""
    saved = next((each for each in reversed(attempts) if each.reached_samples > 0), None)
    if saved is None:
        return history
    values = problem.learning_values(saved.config)
    return History(tuple(trial for trial in history if problem.learning_values(trial.config) == values))


def available(history: History, attempts: Sequence[Attempt]) -> History:
    """The trials, with those of what the clouds no longer give as failures: a place that refused, so many of a type."""
    places = history.refused_places | {
        place_of(each.config.instance) for each in attempts if each.refused is FailureKind.REFUSED
    }
    scarce = [each.config for each in attempts if each.refused is FailureKind.CAPACITY]
    if not (places or scarce):
        return history

    def as_given(trial: Trial) -> Trial:
        config = trial.config
        few = any(
            config.instance == each.instance and config.nodes >= each.nodes and (config.is_spot or not each.is_spot)
            for each in scarce
        )
        is_refused = place_of(config.instance) in places
        if isinstance(trial, Failure) or not (few or is_refused):
            return trial
        return Failure(
            config=config,
            attempt=trial.attempt,
            kind=FailureKind.REFUSED if is_refused else FailureKind.CAPACITY,
            message="the cloud no longer gives these nodes",
            seconds=trial.seconds,
            usd=trial.usd,
            reached_samples=trial.reached_samples,
        )

    return History(tuple(map(as_given, history)))


def remaining_of(run: SearchRun) -> Problem:
    """The problem with the work that is still to do after the run's trials and attempts."""
    problem = remaining_problem(run.problem, run.history, run.earlier)
    if problem.interruptions is None:
        return problem
    return problem.with_interruptions(len(run.interrupted_steps), run.expected_interruptions)


def trained_noise(run: SearchRun) -> float | None:
    """The noise scale that the training reported last; None if it reported none."""
    return next((a.noise_scale for a in reversed(run.attempts) if a.noise_scale is not None), None)


def _work_in(problem: Problem) -> tuple[object, ...]:
    """The parts of a problem that change during a run."""
    known = problem.interruptions
    seen = None if known is None else (known.seen, known.expected)
    work = problem.work_samples, problem.work_known, problem.work_error, problem.learned_work
    return *work, problem.batching, seen, problem.trial


def _as_trained(trial: Trial, samples_per_second: float | None) -> Trial:
    if samples_per_second is None or not isinstance(trial, Measurement):
        return trial
    return replace(trial, samples_per_second=samples_per_second)


def _at_most(plan: Plan, usd: Usd | None, seconds: float | None) -> Plan:
    """The plan with upper bounds of at most this."""
    return replace(
        plan,
        worst_usd=plan.worst_usd if usd is None else min(plan.worst_usd, max(usd, ZERO)),
        worst_seconds=plan.worst_seconds if seconds is None else min(plan.worst_seconds, max(seconds, 0.0)),
    )


def _later(plan: Plan, seconds: float) -> Plan:
    """The plan after it has run for so many seconds; its money stays, because a step in flight is not yet charged."""
    left = max(plan.seconds - seconds, 0.0)
    return replace(plan, seconds=left, worst_seconds=max(plan.worst_seconds - seconds, 0.0))
