"""Load tests of a server: the trials of `mlcd serve`, and the verification of what was chosen.

The promised and verified rate is the lower bound of the measured rate, less the headroom, and reduced again for each
earlier failed verification: the best of several noisy rates was probably lucky, and the p99 latency over a minute is
worse than over seconds.
"""

import math
from dataclasses import dataclass, field

from mlcd.clouds.serving.provider import ServingCloud
from mlcd.deciders.account import Account, Accounts
from mlcd.deciders.verification import failed_verifications
from mlcd.engine.checked import checked_serving, cloud_name, is_simulated
from mlcd.engine.performer import INTERRUPTED, Situation, lost_time
from mlcd.engine.trials import lost_trial, overdue
from mlcd.engine.watchdog import Bounds, Overdue, watched
from mlcd.events import RunProgress
from mlcd.problem import Problem
from mlcd.profiler.load import ServerTest, measure_load_trial, verify_load
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.run import SearchRun
from mlcd.run.step import Outcome, Role, Step
from mlcd.space import Config
from mlcd.trial.call import FunctionCall
from mlcd.units import ZERO

FAILED_RATE_FACTOR = 0.9
"""A configuration whose verification failed counts with this share of its measured, or the requested, rate."""
PROMISE_Z = 1.64
"""Standard errors below the measured rate at which a promise starts: 95% of the time the true rate is higher."""
DERATE_PER_FAILURE = 0.85
"""Factor on the promised rate for each verification that failed before."""


@dataclass(kw_only=True)
class LoadTestPerformer:
    """Starts a server and loads it as `test` describes; `bounds` says how long it waits for the cloud."""

    cloud: ServingCloud
    test: ServerTest
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def simulated(self) -> bool:
        """See Performer."""
        return is_simulated(self.cloud)

    def restore(self, run: SearchRun) -> None:
        """Nothing to restore: servers end with the process that started them."""

    def perform(self, step: Step, situation: Situation[Problem]) -> Outcome:
        """See Performer."""
        began = situation.moment()
        most = self.bounds.step_seconds(step.authorised_seconds, simulated=self.simulated)
        try:
            return watched(lambda inner: self._carry_out(step, inner), situation, most_seconds=most, bounds=self.bounds)
        except Overdue as late:
            return overdue(step, situation, began, f"the cloud {cloud_name(self.cloud)} {late}")

    def _carry_out(self, step: Step, situation: Situation[Problem]) -> Outcome:
        cloud = checked_serving(self.cloud, step, situation, self.bounds)
        if step.role is Role.VERIFICATION:
            return self._verify(cloud, step, situation)
        return measure_load_trial(
            cloud,
            step.config,
            attempt=step.authorisation.attempt,
            policy=situation.run.problem.trial,
            usd_per_hour=step.price,
            test=self.test,
            run_id=situation.run.run_id,
            cancelled=situation.stop.is_set,
        )

    def lost(self, step: Step, situation: Situation[Problem], *, interrupted: bool) -> Outcome:
        """A failure, charged for the time that has passed."""
        if step.role is Role.TRIAL:
            return lost_trial(step, situation, interrupted=interrupted)
        seconds, assumed = lost_time(step, situation)
        return Attempt(
            config=step.config,
            seconds=seconds,
            usd=step.price.for_seconds(seconds),
            ending=Ending.INTERRUPTED if interrupted else Ending.LOST,
            message=f"{INTERRUPTED if interrupted else 'mlcd ended before the verification did'}{assumed}",
        )

    def calls(self) -> tuple[FunctionCall, ...]:
        """None: a server makes no function calls."""
        return ()

    def _verify(self, cloud: ServingCloud, step: Step, situation: Situation[Problem]) -> Attempt:
        """One load test of the choice at the promised rate."""
        problem, config = situation.run.problem, step.config
        price = step.price
        account = Accounts().at(situation.run, step.started_seconds)
        asked = problem.goal.rate
        measured = _measured_rate(account, config)

        def report_progress(fraction: float, seconds: float) -> None:
            money = account.money_while_training(price.for_seconds(seconds), seconds, step.started_seconds)
            situation.tell(RunProgress(config=config, fraction=fraction, money=money))

        seen = verify_load(
            cloud,
            config,
            rate=self._promised(account, config, measured) if asked is None else asked,
            attempt=step.authorisation.attempt,
            most_seconds=step.authorised_seconds,
            test=self.test,
            run_id=situation.run.run_id,
            cancelled=situation.stop.is_set,
            report_progress=report_progress,
        )
        report_progress(1.0, seen.seconds)
        failed_rate = (measured if asked is None else asked) * FAILED_RATE_FACTOR
        return Attempt(
            config=config,
            seconds=seen.seconds,
            usd=price.for_seconds(seen.seconds) if seen.billed else ZERO,
            ending=Ending.MOVED if seen.fault else Ending.DONE,
            samples_per_second=failed_rate if seen.fault else seen.rate,
            message=seen.fault,
            load=seen.load,
        )

    def _promised(self, account: Account, config: Config, measured: float) -> float:
        trials = [trial for trial in account.history.measured if trial.config == config]
        error = max((trial.relative_error for trial in trials), default=0.0)
        derate = DERATE_PER_FAILURE ** failed_verifications(account.run)
        return measured * math.exp(-PROMISE_Z * error) * (1 - self.test.headroom) * derate


def _measured_rate(account: Account, config: Config) -> float:
    """Requests per second that `config` sustained in its load test, at most the requested rate."""
    rates = [trial.samples_per_second for trial in account.history.measured if trial.config == config]
    return min(rates[-1], account.run.problem.goal.rate or math.inf)
