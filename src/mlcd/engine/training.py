"""The training itself: watched, moved before a limit breaks, begun again from its checkpoint when nodes go."""

import math
import threading
import time
from dataclasses import dataclass, field, replace

from mlcd.clouds.provider import LeaseFailed, Order, Purpose
from mlcd.clouds.reading import Listening, Reading
from mlcd.engine.accounts import Accounts
from mlcd.engine.watch import QUIET_GAPS, Watch
from mlcd.errors import Interrupted
from mlcd.events import Observer, RunProgress, Warned
from mlcd.ledger import Refusal
from mlcd.profiler.measure import learned, warnings
from mlcd.profiler.noise import noise_scale
from mlcd.search.strategy import Elastic
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Left, Plan, best_fitting
from mlcd.trial.record import Ending, FinalRun, RunRecord
from mlcd.trial.trial import FailureKind, Measurement
from mlcd.units import HOUR, ZERO, Usd, format_seconds

SWITCH_SECONDS = 10.0
"""Between two looks at whether another number of nodes or another batch would be better."""
LOOK_AGAIN_SECONDS = 5.0
"""Between two looks at whether another deployment would do better."""
STOP_SHARE, STOP_SECONDS = 0.03, 6.0
"""What is kept of the last money to save and to give the nodes back: a share of it, and no less than so long."""
SWITCH_GAIN = 0.05
"""A change of nodes or batch in mid-training must promise this much after its restart: predictions are no better."""
STRANGE_SHARE = 0.9
"""A job that ends well with less of its work done than this did not do what its file says."""


@dataclass(kw_only=True)
class Training:
    """From a choice to the run's end."""

    accounts: Accounts
    record: RunRecord
    observer: Observer
    stop: threading.Event
    elastic: Elastic | None = None
    _warned: bool = field(default=False, init=False)
    _aim: Plan | None = field(default=None, init=False)

    def run(self, choice: Plan) -> None:
        """Train on `choice`, wherever that leads; everything is in the store when this returns or raises."""
        accounts, store, run_id = self.accounts, self.accounts.store, self.accounts.run_id
        plan: Plan | None = self._as_it_stands(choice)
        while True:
            attempt = self._begin(plan) if plan is not None else None
            if plan is None or attempt is None:
                store.end_run(run_id, Status.NOTHING_FITS, None)
                return
            final = self._attempt(plan, attempt)
            if not final.ending.is_begun_again:
                store.end_run(run_id, self._status(final), final, attempt=attempt)
                return
            store.end_attempt(run_id, attempt, final)
            accounts.earlier.append(final)
            self._tell_of(final)
            plan = self._next(final)

    def settle_lost(self) -> None:
        """Charge a real training that is not running any more for the time that went by."""
        store, run_id = self.accounts.store, self.accounts.run_id
        before = store.final_in_flight(run_id)
        if before is None or self.accounts.cloud.simulated:
            return
        leave = before.authorisation
        seconds = max(time.time() - before.started_at, 0.0)
        if leave.seconds < math.inf:
            seconds = min(seconds, leave.seconds)
        lost = FinalRun(
            config=leave.config,
            seconds=seconds,
            usd=self.accounts.problem.price(leave.config).for_seconds(seconds),
            ending=Ending.LOST,
            reached_samples=self.accounts.saved_samples,
            message="mlcd ended before the training did",
        )
        store.end_attempt(run_id, leave.attempt, lost)
        self.accounts.earlier.append(lost)
        self._tell_of(lost)

    # ---- attempts

    def _as_it_stands(self, choice: Plan) -> Plan:
        """The choice with the work that is left now, where some of it was done meanwhile."""
        self.settle_lost()
        if not self.accounts.reached_samples:
            return choice
        return self._plan_on(choice) or choice

    def _plan_on(self, choice: Plan) -> Plan | None:
        measured = [t for t in self.accounts.history.measured if t.config == choice.config]
        return Plan.of(self.accounts.open_problem, measured[-1]) if measured else None

    def _begin(self, plan: Plan) -> int | None:
        """The training's attempt, authorised and written down; None when it does not fit any more.

        A simulated training that died with mlcd is simply run again.
        """
        accounts, store = self.accounts, self.accounts.store
        before = store.final_in_flight(accounts.run_id)
        if before is not None and accounts.cloud.simulated:
            return before.authorisation.attempt
        leave = accounts.ledger().authorise_run(plan)
        if isinstance(leave, Refusal):
            return None
        attempt = 1 + len(accounts.earlier)
        store.start_final(accounts.run_id, replace(leave, attempt=attempt), time.time())
        return attempt

    def _attempt(self, plan: Plan, attempt: int) -> FinalRun:
        """One lease of the deployment, to its end: done, moved, restarted, stopped or failed."""
        price = self.accounts.problem.price(plan.config)
        work = self.accounts.open_problem.work_of(plan.config)
        watch = Watch(work=work, seconds_left=self._seconds_left(plan, price=price))
        order = Order(
            config=plan.config,
            attempt=attempt,
            purpose=Purpose.RUN,
            seconds=watch.seconds_left,
            run_id=self.accounts.run_id,
            noise_scale=self.accounts.live_noise or self.accounts.history.noise_scale,
        )
        try:
            return self._watched(plan, order, watch, price)
        except _Hung as hung:
            # Its nodes went when the lease was left, and that took its time too.
            seconds = watch.last.seconds + max(watch.clock() - hung.since, 0.0)
            again = self._may_restart(self.accounts.saved_samples)
            return self._broken(plan, seconds, price, str(hung), self.accounts.saved_samples, again=again)
        except LeaseFailed as failed:
            again = failed.kind.is_transient and self._may_restart(failed.reached_samples)
            paid = price if failed.billed else ZERO
            return self._broken(plan, failed.seconds, paid, failed.message, failed.reached_samples, again=again)

    def _broken(self, plan: Plan, seconds: float, price: Usd, message: str, reached: float, *, again: bool) -> FinalRun:
        return FinalRun(
            config=plan.config,
            seconds=seconds,
            usd=price.for_seconds(seconds),
            ending=Ending.RESTARTED if again else Ending.FAILED,
            reached_samples=reached,
            message=message,
        )

    def _watched(self, plan: Plan, order: Order, watch: Watch, price: Usd) -> FinalRun:
        cloud = self.accounts.cloud
        self._tell(plan, 0.0, ZERO, 0.0)
        with cloud.lease(order) as lease:
            for point in lease.progress():
                if self.stop.is_set():
                    raise Interrupted("the training was ended with the run")
                watch.take(point)
                if cloud.simulated and point.samples >= watch.work:
                    seconds = watch.crossing()
                    usd = price.for_seconds(seconds)
                    self._tell(plan, 1.0, usd, seconds)
                    return FinalRun(config=plan.config, seconds=seconds, usd=usd)
                self._tell(plan, min(point.samples / watch.work, 1.0), price.for_seconds(point.seconds), point.seconds)
                if not cloud.simulated:
                    self._end_a_hang(plan, watch)
                ending = None if cloud.simulated else self._re_decide(plan, watch, price)
                if ending is None and self.elastic is not None and isinstance(lease, Listening):
                    ending = self._switch(self.elastic, plan, watch, lease)
                if ending is not None:
                    settled = lease.finish(point)
                    return self._ended(plan, settled.seconds, watch, ending, settled.reached_samples)
            if cloud.simulated:
                problem = "the job ended before its work was done"
                raise LeaseFailed(FailureKind.ERROR, problem, seconds=watch.last.seconds)
            settled = lease.finish(watch.last)
            heard = lease.heard if isinstance(lease, Listening) else []
        self._check_end(watch, heard)
        self._tell(plan, 1.0, price.for_seconds(settled.seconds), settled.seconds)
        return self._ended(plan, settled.seconds, watch, (Ending.DONE, ""), settled.reached_samples)

    def _check_end(self, watch: Watch, heard: list[Reading]) -> None:
        """Pass on what the job said was wrong; say it when one that ended well did not do what its file says."""
        for text in warnings(heard):
            self.observer(Warned(text=f"the training: {text}"))
        target = self.accounts.problem.target
        if target is not None:
            points = learned(heard, target.metric)
            if points and not any(target.is_met_by(point.metric) for point in points):
                text = f"the job ended at {target.metric} {points[-1].metric:g}, before its target of {target.value:g}"
                self.observer(Warned(text=text))
            return
        share = (self.accounts.reached_samples + watch.last.samples) / self.accounts.problem.work_samples
        if share < STRANGE_SHARE:
            text = f"the job ended well after {share:.0%} of the work its file names: check job.samples"
            self.observer(Warned(text=text))

    def _ended(self, plan: Plan, seconds: float, watch: Watch, ending: tuple[Ending, str], reached: float) -> FinalRun:
        return FinalRun(
            config=plan.config,
            seconds=seconds,
            usd=self.accounts.problem.price(plan.config).for_seconds(seconds),
            ending=ending[0],
            reached_samples=reached,
            samples_per_second=watch.speed(),
            message=ending[1],
        )

    # ---- decisions

    def _end_a_hang(self, plan: Plan, watch: Watch) -> None:
        """Raises _Hung when a job with work left has said nothing for too long, by what is usual for it."""
        policy = self.accounts.problem.trial
        all_done = watch.last.samples >= watch.work and self.accounts.problem.target is None
        if not policy.watchdog_seconds or all_done:
            return
        if watch.last.samples <= 0:
            if watch.last.seconds >= policy.worst_seconds(plan.config.nodes):
                raise _Hung(f"it ended before its first sample after {watch.last.seconds:.0f} s", watch.clock())
        elif watch.silent_seconds >= max(policy.watchdog_seconds, QUIET_GAPS * watch.longest_gap):
            raise _Hung(f"no progress for {watch.silent_seconds:.0f} s", watch.clock())

    def _seconds_left(self, plan: Plan, *, price: Usd) -> float:
        """The longest the training may take before the budget is gone; without one, far beyond its bound."""
        ledger = self.accounts.ledger()
        if not ledger.guarded or ledger.usd_left is None:
            return math.inf if self.accounts.cloud.simulated else 10 * plan.worst_seconds + HOUR
        return ledger.usd_left.dollars / price.dollars * HOUR

    def _re_decide(self, plan: Plan, watch: Watch, price: Usd) -> tuple[Ending, str] | None:
        """Whether to end this attempt now: because its money is nearly gone, or because it should move."""
        if not self.accounts.guarded:
            return None
        budget = self.accounts.problem.goal.budget
        if budget is not None and watch.last.seconds >= _stop_at(watch.seconds_left):
            done = f"{watch.last.samples / watch.work:.0%} of the work that was left is done"
            return Ending.STOPPED, f"stopped before it would cost more than the budget of {budget}; {done}"
        if watch.is_quiet or not watch.is_due("limits", LOOK_AGAIN_SECONDS):
            return None
        limit = min(_stop_at(watch.seconds_left) if budget is not None else math.inf, self._deadline_left(watch))
        end = watch.expected_end()
        if end is None or end <= limit:
            return None
        other = self._better(plan, watch, price)
        if other is not None:
            return Ending.MOVED, f"{plan.config} {_ends(end, limit)}; goes on at {other.config}"
        if not self._warned:
            self._warned = True
            text = f"{plan.config} falls behind: it {_ends(end, limit)}, and nothing else that was measured fits"
            self.observer(Warned(text=text))
        return None

    def _deadline_left(self, watch: Watch) -> float:
        """Seconds of this attempt at which the deadline is reached."""
        deadline = self.accounts.problem.goal.deadline_seconds
        if deadline is None:
            return math.inf
        return deadline - self.accounts.elapsed_seconds + watch.last.seconds

    def _better(self, plan: Plan, watch: Watch, price: Usd) -> Plan | None:
        """Another measured deployment that fits what is left, were this one stopped now with its work saved."""
        speed = watch.speed()
        if speed is None or not self._saves_work():
            return None
        here = self.accounts.open_problem
        problem = here.with_work_done(watch.last.samples * here.worth(plan.config))
        history = self.accounts.history
        kept = tuple(t for t in history if not (isinstance(t, Measurement) and t.config == plan.config))
        ledger = self.accounts.ledger()
        spent = price.for_seconds(watch.last.seconds + STOP_SECONDS)
        left = Left(
            usd=None if ledger.usd_left is None else ledger.usd_left - spent,
            seconds=None if ledger.seconds_left is None else ledger.seconds_left - STOP_SECONDS,
            allowed=ledger.left().allowed,
        )
        return best_fitting(problem, type(history)(kept), left)

    def _switch(self, elastic: Elastic, plan: Plan, watch: Watch, lease: Listening) -> tuple[Ending, str] | None:
        """Whether another number of nodes or batch is better for the rest, now that the noise has drifted.

        A receding horizon's step: what is left is planned anew on every configuration, and a change pays its restart.
        """
        speed = watch.speed()
        if speed is None or watch.is_quiet or not watch.is_due("switch", SWITCH_SECONDS) or not self._saves_work():
            return None
        noise = noise_scale(lease.heard)
        here = self.accounts.open_problem.with_noise(noise)
        problem = here.with_work_done(watch.last.samples * here.worth(plan.config))
        if not problem.work_known:
            return None
        history = self.accounts.history
        seen = tuple(
            replace(t, samples_per_second=speed) if isinstance(t, Measurement) and t.config == plan.config else t
            for t in history
        )
        options = {p.config: p for p in elastic.outlook(problem, type(history)(seen))}
        stay, left = options.get(plan.config), self.accounts.ledger().left()
        if stay is None:
            return None

        def value(option: Plan, seconds: float) -> float:
            return problem.goal.value(seconds, problem.price(option.config).dollars * seconds / HOUR)

        def moved(option: Plan) -> float:
            return value(option, option.seconds + STOP_SECONDS)  # its own start is in the plan

        fitting = [p for p in options.values() if p.config != plan.config and left.fits(p)]
        there = min(fitting, key=moved, default=None)
        staying = value(stay, max(stay.seconds - watch.startup_seconds, 0.0))
        if there is None or moved(there) > staying * (1 - SWITCH_GAIN):
            return None
        self._aim, self.accounts.live_noise = there, noise
        why = f"with a noise scale of {noise:,.0f} samples" if noise is not None else "at the speed it shows"
        return Ending.MOVED, f"{why} {there.config} is better for the rest than {plan.config}"

    def _saves_work(self) -> bool:
        """Whether this job has ever left a checkpoint, so that moving it loses nothing."""
        return self.accounts.saved_samples > 0

    def _may_restart(self, reached_samples: float) -> bool:
        """Again after every attempt that got further, and a few times (search.trial.retries) without that."""
        earlier = self.accounts.earlier
        if reached_samples > self.accounts.reached_samples:
            return True
        return sum(run.ending is Ending.RESTARTED for run in earlier) < self.accounts.problem.trial.retries

    def _next(self, ended: FinalRun) -> Plan | None:
        """Where to go on: after a move what fits best, else the same deployment, else again what fits best."""
        ledger = self.accounts.ledger()
        problem, history, left = self.accounts.open_problem, self.accounts.history, ledger.left()
        aim, self._aim = self._aim, None
        if aim is not None and left.fits(aim):
            return aim
        same = [Plan.of(problem, t) for t in history.measured if t.config == ended.config]
        if ended.ending is Ending.RESTARTED and same and left.fits(same[-1]):
            return same[-1]
        return best_fitting(problem, history, left)

    def _status(self, final: FinalRun) -> Status:
        goal, accounts = self.accounts.problem.goal, self.accounts
        if final.ending is Ending.FAILED:
            return Status.RUN_FAILED
        ended_at = self.record.search_seconds + final.seconds if accounts.cloud.simulated else accounts.elapsed_seconds
        over_time = goal.deadline_seconds is not None and ended_at > goal.deadline_seconds
        over_money = goal.budget is not None and accounts.spent + final.usd > goal.budget
        stopped = final.ending is Ending.STOPPED
        return Status.OVERRAN if over_time or over_money or stopped else Status.DONE

    def _tell_of(self, ended: FinalRun) -> None:
        """Why the training is begun again, and how much of it is kept."""
        kept = min(self.accounts.reached_samples / self.accounts.problem.work_samples, 1.0)
        where = f"from its checkpoint, at {kept:.0%}" if kept > 0 else "from the beginning"
        if kept > 0 and self.accounts.problem.target is not None:
            where = "from its checkpoint"
        self.observer(Warned(text=f"{ended.message}; the training goes on {where}"))

    def _tell(self, plan: Plan, fraction: float, usd: Usd, seconds: float) -> None:
        money = self.accounts.money_while_training(usd, seconds, self.record.search_seconds)
        self.observer(RunProgress(config=plan.config, fraction=fraction, money=money))


class _Hung(Exception):
    """The job stands still; `since` is when that was decided, by the watch's clock."""

    def __init__(self, message: str, since: float) -> None:
        super().__init__(message)
        self.since = since


def _ends(end: float, limit: float) -> str:
    return f"would end after {format_seconds(end)}, {format_seconds(limit)} are left"


def _stop_at(seconds_left: float) -> float:
    return seconds_left - max(STOP_SECONDS, STOP_SHARE * seconds_left)
