"""The training itself: watched, moved before it breaks a limit, restarted from its checkpoint when nodes are lost."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Purpose, Settled
from mlcd.clouds.reading import Listening, Reading
from mlcd.deciders.account import Account, Accounts, available
from mlcd.deciders.watched import first_spot_watch, seconds_to_look
from mlcd.engine.checked import CheckedCloud
from mlcd.engine.looks import Looked, after_look, after_spot_look, after_stretch, is_due
from mlcd.engine.performer import INTERRUPTED, Situation, lost_time
from mlcd.engine.stretch import TrainingNodes, points_after
from mlcd.engine.switching import better_switch
from mlcd.engine.undone import undone_work
from mlcd.engine.watch import AttemptWatch, Hung, end_a_hang
from mlcd.errors import Interrupted
from mlcd.events import RunProgress, Warned
from mlcd.ledger import Ledger
from mlcd.models.remaining import remaining_problem
from mlcd.problem import STOP_SECONDS, Problem
from mlcd.profiler.measure import learned
from mlcd.profiler.noise import noise_scale
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.search.strategy import Elastic
from mlcd.trial.markets import with_markets
from mlcd.trial.plan import Plan, Remaining, best_fitting, stop_at
from mlcd.trial.trial import FailureKind, History, Learned, Measurement
from mlcd.trial.watched import Watch
from mlcd.trial.work_done import Stretch
from mlcd.units import HOUR, ZERO, Usd, format_seconds

SWITCH_EVERY_SECONDS = 10.0
"""Time between two checks whether another number of nodes or another batch would be better."""
LIMITS_EVERY_SECONDS = 5.0
"""Time between two checks whether the training still fits the limits."""


@dataclass(kw_only=True)
class Training:
    """One attempt at the training: one lease of the step's configuration.

    Beside a search, a stretch of one: it ends with the trials of its round, or where there are none as soon as the
    search is to be asked again. The next stretch continues on the same nodes, unless the training should move.
    """

    cloud: CheckedCloud
    step: Step
    situation: Situation[Problem]
    accounts: Accounts
    elastic: Elastic | None = None
    held: TrainingNodes | None = None
    """The nodes of the stretch before this one; after `run`, those that the next stretch continues on."""
    _warned: bool = field(default=False, init=False)
    _ends_early: bool = field(default=False, init=False)
    """Whether its nodes end themselves before the budget is used up."""
    _ends_at_deadline: bool = field(default=False, init=False)
    """Whether they end themselves at the deadline, before the budget is used up."""
    _next_plan: Plan | None = field(default=None, init=False)
    _warning: str = field(default="", init=False)
    _next_look: Watch | None = field(default=None, init=False)
    """How it is watched now, after the search; None where nothing remains to be looked at."""

    def __post_init__(self) -> None:
        self._next_look = self.step.watch

    def run(self) -> Attempt:
        """Train until done, moved, restarted, stopped or failed. Raises Interrupted, ProviderError."""
        attempt = self._attempt()
        goes_on = attempt.ending.is_begun_again and self._latest.finished_trial is None
        if goes_on and attempt.ending is not Ending.CONTINUED:
            self._report_restart(attempt)
        return attempt

    @property
    def most_seconds(self) -> float:
        """The longest that an attempt which starts now may take: its nodes end themselves then."""
        return self._seconds_left(self._account)

    def lost(self, *, interrupted: bool) -> Attempt:
        """The outcome of a real training that died with mlcd or was interrupted, charged for the time that passed."""
        seconds, assumed = lost_time(self._as_ordered, self.situation)
        lost = Attempt(
            config=self.step.config,
            seconds=seconds,
            usd=self._charge(seconds),
            ending=Ending.INTERRUPTED if interrupted else Ending.LOST,
            reached_samples=self._saved_samples,
            message=f"{INTERRUPTED if interrupted else 'mlcd ended before the training did'}{assumed}",
        )
        self._report_restart(lost)
        return lost

    @property
    def _as_ordered(self) -> Step:
        """This step with the time of its nodes: after the search, under a budget, that is more than its upper bound."""
        is_longer = self.cloud.outlives_mlcd and self._run.problem.goal.budget is not None and not self._is_beside
        if not is_longer:
            return self.step
        # In whole milliseconds, as they are charged: it costs no more than what was left.
        ordered = math.floor(1000 * self._seconds_left(self._at_start)) / 1000
        seconds = max(ordered, self.step.authorised_seconds)
        return replace(self.step, authorisation=replace(self.step.authorisation, seconds=seconds))

    # ---- the attempt

    @property
    def _latest(self) -> SearchRun:
        """The run now."""
        return self.situation.now

    @cached_property
    def _run(self) -> SearchRun:
        """The run when this attempt started, without it; trials beside it are in flight."""
        number = self.step.number
        steps = (replace(s, outcome=None) if s.round == self.step.round else s for s in self._latest.steps)
        return replace(self._latest, steps=tuple(step for step in steps if step.number != number))

    @cached_property
    def _is_beside(self) -> bool:
        """Whether the search goes on beside it."""
        return self._run.problem.beside and self._run.verdict is None

    @property
    def _stop_seconds(self) -> float:
        """The longest that saving it and releasing its nodes may take; a simulated one takes no time for that."""
        return 0.0 if self.cloud.simulated else self._run.problem.stop_seconds

    @cached_property
    def _has_trials(self) -> bool:
        """Whether trials run beside it."""
        return any(step.round == self.step.round for step in self._run.in_flight)

    @cached_property
    def _before(self) -> Attempt | None:
        """The stretches that this one continues; None where it starts."""
        return self._run.attempts[-1] if self._run.open_stretch is not None else None

    @cached_property
    def _base_samples(self) -> float:
        """The training's progress when this attempt started."""
        if self._before is not None and (self.cloud.simulated or self.held is not None):
            return self._before.reached_samples
        return self._run.reached_samples if self.cloud.simulated else self._saved_samples

    @cached_property
    def _at_start(self) -> Account:
        """The account of the run when this attempt started."""
        return self.accounts.at(self._run, self.step.started_seconds)

    @property
    def _account(self) -> Account:
        """The account of the run now, without this attempt."""
        return replace(self._at_start, elapsed_seconds=self.situation.elapsed_seconds())

    @property
    def _saved_samples(self) -> float:
        """Samples up to which the training is saved, including what steps saved that died with mlcd."""
        return self.cloud.reached_samples(self._run.run_id)

    def _attempt(self) -> Attempt:
        account, config = self._account, self.step.config
        begun = self._begun_seconds
        if config.is_spot and self._next_look is None:
            self._next_look = first_spot_watch(account, config)
        watch = AttemptWatch(work=account.remaining.work_of(config), seconds_left=self._seconds_left(account))
        order = Order(
            config=config,
            attempt=self.step.authorisation.attempt,
            purpose=Purpose.RUN,
            seconds=watch.seconds_left,
            run_id=self._run.run_id,
            noise_scale=account.noise_scale,
            checkpoint_seconds=account.remaining.checkpoint_seconds(config),
        )
        try:
            return self._watched(order, watch)
        except Hung as hung:
            # The nodes were released when the lease was left; that time is charged too, by the engine's own clock.
            seconds = self.cloud.charged(watch.last.seconds + max(watch.clock() - hung.since, 0.0))
            again = self._may_restart(self._saved_samples)
            return self._broken(seconds, str(hung), self._saved_samples, again=again)
        except LeaseFailed as failed:
            crowded = failed.kind is FailureKind.CAPACITY and self._has_trials  # they may have what it needs
            taken = failed.kind is FailureKind.INTERRUPTED and config.is_spot
            again = taken or ((failed.kind.is_transient or crowded) and self._may_restart(failed.reached_samples))
            seconds = max(failed.seconds - begun, 0.0)
            broken = self._broken(seconds, failed.message, failed.reached_samples, again=again, billed=failed.billed)
            broken = replace(broken, interrupted=taken, samples_per_second=watch.speed() if taken else None)
            if not again and failed.kind in (FailureKind.REFUSED, FailureKind.CAPACITY):
                return self._after_refusal(failed.kind, broken)
            return replace(broken, ending=Ending.OVERRAN) if failed.kind is FailureKind.OVERRAN else broken

    def _after_refusal(self, kind: FailureKind, broken: Attempt) -> Attempt:
        """The attempt that got no nodes; of several clouds or markets, it continues on another that was measured."""
        if len(set(self._run.problem.places)) < 2 and not broken.config.is_spot:
            return broken
        broken = replace(broken, refused=kind)
        known = with_markets(self._run.problem, self._run.history)
        is_elsewhere = available(known, (*self._run.earlier, broken)).measured
        return replace(broken, ending=Ending.MOVED) if is_elsewhere else broken

    def _broken(self, seconds: float, message: str, reached: float, *, again: bool, billed: bool = True) -> Attempt:
        return Attempt(
            config=self.step.config,
            seconds=seconds,
            usd=self._charge(seconds) if billed else ZERO,
            ending=Ending.RESTARTED if again else Ending.FAILED,
            reached_samples=reached,
            message=message,
        )

    def _watched(self, order: Order, watch: AttemptWatch) -> Attempt:
        nodes, self.held = self.held or TrainingNodes(cloud=self.cloud, order=order), None
        nodes.cloud.warn = self.cloud.warn
        self._tell(self._share_done(watch), ZERO, 0.0)
        try:
            with nodes:
                for point in self._progress(nodes):
                    if self.situation.stop.is_set():
                        raise Interrupted("the training was ended with the run")
                    watch.take(point)
                    ended = self._simulated_end(watch) if self.cloud.simulated else None
                    if ended is not None:
                        return ended
                    self._tell(self._share_done(watch), self._charge(point.seconds), point.seconds)
                    ending = self._ending(watch, nodes)
                    if ending is not None:
                        settled = self._kept(nodes, point) if ending[0] is Ending.CONTINUED else nodes.finish(point)
                        return self._ended(settled, watch, ending, nodes.heard)
                if self.cloud.simulated:
                    problem = "the job ended before its work was done"
                    raise LeaseFailed(FailureKind.ERROR, problem, seconds=self._begun_seconds + watch.last.seconds)
                silence = nodes.silence() if watch.last.samples <= 0 else ""
                settled = nodes.finish(watch.last)
        finally:
            for text in nodes.new_warnings():
                self.situation.tell(Warned(text=f"the training: {text}"))
        self._warn_of_undone(watch.last.samples, nodes.heard, silence)
        self._tell(1.0, self._charge(settled.seconds), settled.seconds)
        return self._ended(settled, watch, (Ending.DONE, ""), nodes.heard)

    def _progress(self, nodes: TrainingNodes) -> Iterator[JobProgress]:
        """The job's progress in this stretch. A simulated lease is repeated up to where the last stretch ended."""
        return points_after(nodes.progress(), self._begun_seconds) if self.cloud.simulated else nodes.progress()

    def _ending(self, watch: AttemptWatch, nodes: TrainingNodes) -> tuple[Ending, str] | None:
        """Whether to end this attempt, or stretch, now. Raises Hung."""
        ending = None
        if not self.cloud.simulated:
            end_a_hang(watch, self._run.problem, nodes=self.step.config.nodes, silence=nodes.silence)
            ending = self._at_the_limit(watch) or self._looked(watch)
            if ending is None and self._awaited_look is not None:  # until then its speed is no reason to move
                return None
            ending = ending or self._re_decide(watch)
        if ending is None and self.elastic is not None and nodes.listening is not None:
            ending = self._switch(self.elastic, watch, nodes.listening)
        if ending is None and not self.cloud.simulated and self._is_beside and self._is_over(watch.last.seconds):
            ending = self._after_stretch(watch.last.seconds, watch.last.samples, watch.speed())
        return ending

    def _kept(self, nodes: TrainingNodes, at: JobProgress) -> Settled:
        """Keep the nodes for the next stretch."""
        nodes.keep(at)
        self.held = nodes
        return Settled(seconds=at.seconds, reached_samples=self._base_samples + at.samples)

    def _simulated_end(self, watch: AttemptWatch) -> Attempt | None:
        """The attempt, if the work, the money or this stretch of it ended before the newest point."""
        done = watch.crossing() if watch.last.samples >= watch.work else math.inf
        beside = self._stretch_seconds() if self._is_beside else math.inf
        if watch.last.seconds >= beside and beside <= min(done, watch.seconds_left):
            samples = watch.samples_before(beside)
            speed = self._simulated_speed(beside, watch)
            ending = self._after_stretch(beside, samples, speed)
            settled = Settled(seconds=beside, reached_samples=self._base_samples + samples)
            return replace(self._ended(settled, watch, ending, []), samples_per_second=speed)
        while (looked := self._awaited_look) is not None and min(watch.last.seconds, done) >= looked.seconds:
            left = self._simulated_look(looked, watch)
            if left is not None:
                return left
        if watch.is_over_budget:
            seconds = stop_at(watch.seconds_left)
            samples = watch.samples_before(seconds)
            ending = self._out_of_time(watch, samples)
            settled = Settled(seconds=seconds, reached_samples=self._base_samples + samples if self._is_beside else 0.0)
            return self._ended(settled, watch, ending, [])
        if watch.last.samples >= watch.work:
            usd = self._charge(done)
            self._tell(1.0, usd, done)
            return Attempt(config=self.step.config, seconds=done, usd=usd)
        return None

    # ---- a training that is watched, after the search

    @property
    def _awaited_look(self) -> Watch | None:
        """How it is watched where it is not certain to fit, until its own speed is known; on spot nodes, renewed."""
        return None if self._is_beside else self._next_look

    def _looked(self, watch: AttemptWatch) -> tuple[Ending, str] | None:
        """Whether a real training is too slow, when it is looked at."""
        looked, at = self._awaited_look, watch.last
        if looked is None or not is_due(looked, at.seconds, stop_seconds=self._stop_seconds):
            return None
        unsaved = max(self._base_samples + at.samples - self._saved_samples, 0.0) if looked.renews else 0.0
        return self._left(self._after_look(looked, at.seconds, at.samples, watch.speed(), unsaved))

    def _after_look(
        self, looked: Watch, seconds: float, samples: float, speed: float | None, unsaved: float
    ) -> Looked | None:
        """Where it goes after a look; None if it stays, on spot nodes until the next one."""
        account, self._next_look = self._account_after(seconds, samples, speed), None
        if not looked.renews:
            return after_look(account, looked)
        answer = after_spot_look(account, seconds, unsaved)
        if isinstance(answer, Watch):
            self._next_look = answer
            return None
        return answer

    def _simulated_look(self, looked: Watch, watch: AttemptWatch) -> Attempt | None:
        """The attempt, if a simulated training is too slow when it is looked at."""
        seconds = looked.seconds
        samples, speed = watch.samples_before(seconds), self._simulated_speed(seconds, watch)
        unsaved = min((speed or 0.0) * (self._at_start.remaining.checkpoint_seconds(self.step.config) or 0.0), samples)
        ending = self._left(self._after_look(looked, seconds, samples, speed, unsaved))
        if ending is None:
            return None
        kept = self._run.problem.keeps_work or self._run.problem.beside
        settled = Settled(seconds=seconds, reached_samples=self._base_samples + samples if kept else 0.0)
        return replace(self._ended(settled, watch, ending, []), samples_per_second=speed)

    def _left(self, looked: Looked | None) -> tuple[Ending, str] | None:
        if looked is None:
            return None
        self._next_plan = looked.next_plan
        return looked.ending, looked.message

    def _simulated_speed(self, seconds: float, watch: AttemptWatch) -> float | None:
        """The speed until so many seconds of this stretch; None without a sample."""
        samples, trained = watch.samples_before(seconds), seconds - watch.startup_seconds
        if samples <= 0 or trained <= 0:
            return None
        # Simulated runs are slower by the stretch of interruptions, and so are plans.
        return samples / trained * self._run.problem.stretch_of(self.step.config)

    def _account_after(self, seconds: float, samples: float, speed: float | None) -> Account:
        """The account after so much of this attempt, or stretch, if the training stays on its nodes."""
        ended = Attempt(
            config=self.step.config,
            seconds=seconds,
            usd=self._charge(seconds),
            ending=Ending.CONTINUED,
            reached_samples=self._base_samples + samples,
            samples_per_second=speed,
        )
        run = self._latest.with_ended(self.step.number, ended)
        elapsed = self.step.started_seconds + seconds if self.cloud.simulated else self.situation.elapsed_seconds()
        return self.accounts.at(run, elapsed)

    def _charge(self, seconds: float) -> Usd:
        """The cost of this stretch, so that all stretches of an attempt cost what it costs in one piece."""
        moved = self._run.problem.move_to(self.step.config).usd
        if self._before is None:
            return self.step.price.for_seconds(seconds) + moved
        return self.step.price.for_seconds(self._before.seconds + seconds) + moved - self._before.usd

    # ---- beside a search

    def _is_over(self, seconds: float) -> bool:
        """Whether this stretch ends after so many seconds in real time."""
        if self.step.watch is not None:
            return is_due(self.step.watch, seconds, stop_seconds=self._stop_seconds)
        if not self._has_trials:
            return seconds >= self._stretch_seconds()
        return not any(s.role is Role.TRIAL and s.round == self.step.round for s in self._latest.in_flight)

    def _stretch_seconds(self) -> float:
        """How long the trials beside it took; without trials, until it is looked at again."""
        if not self._has_trials:
            return self._look_seconds
        return max(s.trial.seconds for s in self._latest.trials if s.round == self.step.round)

    @cached_property
    def _look_seconds(self) -> float:
        """Seconds until the search is asked again, without trials beside it."""
        watch = self.step.watch
        return seconds_to_look(self._at_start, self.step.config) if watch is None else watch.seconds

    @property
    def _begun_seconds(self) -> float:
        """Seconds of this attempt's lease that earlier stretches are charged."""
        if self.cloud.simulated:
            return 0.0 if self._before is None else self._before.seconds
        return 0.0 if self.held is None else self.held.at.seconds

    def _after_stretch(self, seconds: float, samples: float, speed: float | None) -> tuple[Ending, str]:
        """Whether the training continues where it is, or moves to where the rest of it is better done by now."""
        looked = after_stretch(self._account_after(seconds, samples, speed), self.step.watch)
        self._next_plan = looked.next_plan
        return looked.ending, looked.message

    def _warn_of_undone(self, samples: float, heard: list[Reading], silence: str) -> None:
        """Say now, and in every report of the run, what a job that exited successfully left undone."""
        self._warning = undone_work(self._run, samples, heard, silence)
        if self._warning:
            self.situation.tell(Warned(text=self._warning))

    def _ended(
        self, settled: Settled, watch: AttemptWatch, ending: tuple[Ending, str], heard: list[Reading]
    ) -> Attempt:
        done = ending[0] is Ending.DONE
        made = self._run.reached_samples + watch.last.samples if done else 0.0  # its last steps need no checkpoint
        return Attempt(
            config=self.step.config,
            seconds=settled.seconds,
            usd=self._charge(settled.seconds),
            ending=ending[0],
            reached_samples=max(settled.reached_samples, made),
            samples_per_second=watch.speed(),
            message=ending[1],
            next_plan=self._next_plan,
            noise_scale=noise_scale(heard),
            learned=self._learned(heard),
            node_metrics=settled.node_metrics,
            missing_outputs=settled.missing_outputs if done else (),
            kept_folder=settled.kept_folder if done else "",
            warning=self._warning if done else "",
        )

    # ---- decisions

    def _seconds_left(self, account: Account) -> float:
        """Seconds until the nodes of this attempt end themselves.

        When the budget is used up; without one, far beyond the upper bound. Beside trials, which need money too, at the
        upper bound, and stretches on the same nodes cannot change that. One that is watched also ends at the deadline.
        """
        money, nodes = self._money_seconds(account.ledger), math.inf
        if self.step.watch is not None and account.ledger.seconds_left is not None:
            self._ends_at_deadline = account.ledger.seconds_left < money
            money = min(money, max(account.ledger.seconds_left, 0.0))
        if self.held is not None:
            nodes = self.held.seconds_left
        elif self._is_beside and not self.cloud.simulated and account.ledger.usd_left is not None:
            nodes = self.step.authorised_seconds
        self._ends_early = self._is_beside or nodes < money
        return min(money, nodes)

    def _money_seconds(self, ledger: Ledger) -> float:
        """Seconds until the training has used up the budget; without one, far beyond its upper bound."""
        if not ledger.guarded or ledger.usd_left is None:
            return math.inf if self.cloud.simulated else 10 * self.step.authorised_seconds + HOUR
        moved = self._run.problem.move_to(self.step.config).usd if self._before is None else ZERO
        return max(ledger.usd_left - moved, ZERO).dollars / self.step.price.dollars * HOUR

    def _at_the_limit(self, watch: AttemptWatch) -> tuple[Ending, str] | None:
        """Whether to end this attempt now, because its nodes soon end themselves."""
        is_limited = self._run.problem.goal.budget is not None or self.step.watch is not None
        if not (self.accounts.guarded and is_limited) or watch.last.seconds < stop_at(watch.seconds_left):
            return None
        return self._out_of_time(watch, watch.last.samples)

    def _re_decide(self, watch: AttemptWatch) -> tuple[Ending, str] | None:
        """Whether to end this attempt now, because it would break a limit and another deployment would not."""
        if not self.accounts.guarded:
            return None
        budget = self._run.problem.goal.budget
        if watch.is_quiet or not watch.is_due("limits", LIMITS_EVERY_SECONDS):
            return None
        limit = min(stop_at(watch.seconds_left) if budget is not None else math.inf, self._deadline_left(watch))
        end = watch.expected_end()
        if end is None or end <= limit:
            return None
        other = self._better(watch)
        if other is not None:
            self._next_plan = other
            return Ending.MOVED, f"{self.step.config} {_ends(end, limit)}; continues on {other.config}"
        if not self._warned:
            self._warned = True
            text = f"{self.step.config} falls behind: it {_ends(end, limit)}, and nothing else that was measured fits"
            self.situation.tell(Warned(text=text))
        return None

    def _out_of_time(self, watch: AttemptWatch, samples: float) -> tuple[Ending, str]:
        """Why the training ends here, and how far it came. If only the time of its nodes is over, it starts again."""
        budget = self._run.problem.goal.budget
        done = f"{samples / watch.work:.0%} of the remaining work is done"
        if self._ends_early:
            return Ending.MOVED, f"it takes longer than its upper bound beside the search; {done}"
        if self._ends_at_deadline:
            deadline = format_seconds(self._run.problem.goal.deadline_seconds or 0.0)
            return Ending.STOPPED, f"stopped before the deadline of {deadline}; {done}"
        return Ending.STOPPED, f"stopped before it would cost more than the budget of {budget}; {done}"

    def _deadline_left(self, watch: AttemptWatch) -> float:
        """Seconds of this attempt at which the deadline is reached."""
        deadline = self._run.problem.goal.deadline_seconds
        if deadline is None:
            return math.inf
        return deadline - self.situation.elapsed_seconds() + watch.last.seconds

    def _better(self, watch: AttemptWatch) -> Plan | None:
        """The best other measured deployment that fits if this attempt stops now with its work saved."""
        speed = watch.speed()
        saves = self._saves_work()
        if speed is None or not (saves or self.step.watch is not None):
            return None
        account, config = self._account, self.step.config
        saved = watch.last.samples if saves else 0.0
        problem = account.remaining.with_work_done(saved * account.remaining.worth(config))
        kept = tuple(t for t in account.restarting if not (isinstance(t, Measurement) and t.config == config))
        ledger = account.ledger
        spent = self._charge(watch.last.seconds + STOP_SECONDS)
        remaining = Remaining(
            usd=None if ledger.usd_left is None else ledger.usd_left - spent,
            seconds=None if ledger.seconds_left is None else ledger.seconds_left - STOP_SECONDS,
            allowed=ledger.remaining().allowed,
        )
        return best_fitting(problem, History(kept), remaining)

    def _switch(self, elastic: Elastic, watch: AttemptWatch, lease: Listening) -> tuple[Ending, str] | None:
        """Whether another number of nodes or batch is better for the rest, at the noise scale measured now."""
        speed = watch.speed()
        is_due = not watch.is_quiet and watch.is_due("switch", SWITCH_EVERY_SECONDS)
        if speed is None or not is_due or not self._saves_work():
            return None
        problem = self._remaining_now(watch, lease.heard)
        if not problem.work_known:
            return None
        began = watch.startup_seconds
        return self._left(
            better_switch(elastic, self._account, problem, self.step.config, speed=speed, startup_seconds=began)
        )

    def _remaining_now(self, watch: AttemptWatch, heard: list[Reading]) -> Problem:
        """What remains after this attempt so far, with its noise and metrics."""
        run = self._run
        now = Stretch(
            config=self.step.config,
            reached_samples=run.reached_samples + watch.last.samples,
            noise_scale=noise_scale(heard),
            learned=self._learned(heard),
        )
        return remaining_problem(run.problem, run.history, (*run.earlier, now))

    def _learned(self, heard: list[Reading]) -> tuple[Learned, ...]:
        target = self._run.problem.target
        return () if target is None else learned(heard, target.metric)

    def _saves_work(self) -> bool:
        """Whether this job has ever saved a checkpoint, so that moving it loses nothing."""
        return self._saved_samples > 0

    def _may_restart(self, reached_samples: float) -> bool:
        """True after an attempt that made progress; without progress, up to search.trial.retries times."""
        run = self._run
        if reached_samples > run.reached_samples:
            return True
        return sum(attempt.ending is Ending.RESTARTED for attempt in run.earlier) < run.problem.trial.retries

    def _report_restart(self, ended: Attempt) -> None:
        """Report why the training restarts, and how much of it is kept."""
        run = self._run
        kept = min(max(run.reached_samples, ended.reached_samples) / run.problem.work_samples, 1.0)
        where = f"from its checkpoint, at {kept:.0%}" if kept > 0 else "from the beginning"
        if kept > 0 and run.problem.target is not None:
            where = "from its checkpoint"
        self.situation.tell(Warned(text=f"{ended.message}; the training continues {where}"))

    def _share_done(self, watch: AttemptWatch) -> float:
        """The share of the whole training that is done: what the attempt continues from, and what it did."""
        before = self._run.reached_samples
        whole = before + watch.work
        return min((before + watch.last.samples) / whole, 1.0) if whole > 0 else 0.0

    def _tell(self, fraction: float, usd: Usd, seconds: float) -> None:
        if self._has_trials:  # they are what is shown
            return
        money = self._at_start.money_while_training(usd, seconds, self.step.started_seconds)
        self.situation.tell(RunProgress(config=self.step.config, fraction=fraction, money=money))


def _ends(end: float, limit: float) -> str:
    return f"would end after {format_seconds(end)}, {format_seconds(limit)} remain"
