"""Serving: the same loop with load tests as trials; then the choice is loaded for a while before it is recommended.

A choice that does not hold in its verification falls: from then on it counts with the share of its rate that is left,
and whatever is best then is verified next, authorised by the ledger each time. One that falls also says that the load
tests were brighter than this machine is over a minute: less of the next one's rate is promised. Only what held is
recommended.
"""

import math
import time
from dataclasses import dataclass, replace

from mlcd.clouds.serving.provider import ServingCloud
from mlcd.engine.accounts import Accounts
from mlcd.engine.engine import Engine
from mlcd.events import RunProgress
from mlcd.ledger import Refusal
from mlcd.profiler.load import LoadTest, measure_load_trial, verify_load
from mlcd.space import Config
from mlcd.store.store import StartedTrial
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, best_fitting
from mlcd.trial.record import Ending, FinalRun, Naive
from mlcd.trial.trial import History, Trial

FALL = 0.9
"""What of its measured rate, or of the rate that was asked for, a configuration that fell counts with from then on."""
DOUBT = 1.64
"""Standard errors below the measured rate that a promise begins at: 95% of the time, more can be had."""
CAUTION = 0.85
"""What of a measured rate less the headroom is still promised, for each verification that fell before."""
MOST_VERIFICATIONS = 5
"""A search whose best choices all fall has measured something else than it serves."""


@dataclass(kw_only=True)
class ServingEngine(Engine):
    """One run of `mlcd serve`. `test` is how the server is loaded."""

    cloud: ServingCloud
    test: LoadTest

    def __post_init__(self) -> None:
        # Guarded whoever searches: what has to fit is the verification, which every trial leaves room for.
        self._accounts = Accounts(
            run_id=self.run_id, problem=self.problem, cloud=self.cloud, guarded=True, store=self.store
        )

    def _measure(self, started: StartedTrial) -> Trial:
        leave = started.authorisation
        return measure_load_trial(
            self.cloud,
            leave.config,
            attempt=leave.attempt,
            policy=self.problem.trial,
            usd_per_hour=started.usd_per_hour,
            test=self.test,
            run_id=self.run_id,
            cancelled=self._stop.is_set,
        )

    def _compare(self, history: History) -> tuple[Naive, ...]:  # noqa: ARG002 - nobody serves without a load test
        return ()

    def _finish(self, choice: Plan | None) -> None:
        if choice is None:
            super()._finish(None)
            return
        self._training(self.store.record(self.run_id)).settle_lost()
        if not self.test.verify_seconds:
            self.store.end_run(self.run_id, Status.DONE, None)
            return
        plan = self._next() if self._accounts.earlier else choice
        while plan is not None:
            final = self._verify(plan)
            if final is None or final.is_done:
                break
            attempt = 1 + len(self._accounts.earlier)
            self.store.end_attempt(self.run_id, attempt, final)
            self._accounts.earlier.append(final)
            plan = self._next() if attempt < MOST_VERIFICATIONS else None
        if plan is None or final is None:
            self.store.end_run(self.run_id, Status.NOTHING_FITS, None)
        else:
            self.store.end_run(self.run_id, Status.DONE, final, attempt=1 + len(self._accounts.earlier))

    def _next(self) -> Plan | None:
        """What is best now that some have fallen."""
        ledger = self._accounts.ledger()
        return best_fitting(ledger.problem, ledger.history, ledger.left())

    def _verify(self, plan: Plan) -> FinalRun | None:
        """One load test of the choice, authorised and written down; None where there is no room for it."""
        accounts = self._accounts
        leave = accounts.ledger().authorise_run(plan)
        if isinstance(leave, Refusal):
            return None
        leave = replace(leave, attempt=1 + len(accounts.earlier))
        self.store.start_final(self.run_id, leave, time.time())
        price = self.problem.price(plan.config)
        began = accounts.elapsed_seconds
        asked = self.problem.goal.rate
        measured = self.problem.work_samples / plan.seconds

        def told(fraction: float, seconds: float) -> None:
            money = accounts.money_while_training(price.for_seconds(seconds), seconds, began)
            self.observer(RunProgress(config=plan.config, fraction=fraction, money=money))

        seen = verify_load(
            self.cloud,
            plan.config,
            rate=self._promised(plan.config, measured) if asked is None else asked,
            attempt=leave.attempt,
            most_seconds=leave.seconds,
            test=self.test,
            run_id=self.run_id,
            cancelled=self._stop.is_set,
            told=told,
        )
        told(1.0, seen.seconds)
        return FinalRun(
            config=plan.config,
            seconds=seen.seconds,
            usd=price.for_seconds(seen.seconds),
            ending=Ending.MOVED if seen.fault else Ending.DONE,
            samples_per_second=(measured if asked is None else asked) * FALL if seen.fault else seen.rate,
            message=seen.fault,
            load=seen.load,
        )

    def _promised(self, config: Config, measured: float) -> float:
        """What is verified there: the lower bound of the measured rate, less the headroom.

        The best of several noisy rates is likely to have been lucky, and p99 of a minute is worse than of seconds.
        """
        trials = [trial for trial in self._accounts.ledger().history.measured if trial.config == config]
        doubt = max((trial.relative_error for trial in trials), default=0.0)
        return measured * math.exp(-DOUBT * doubt) * (1 - self.test.headroom) * CAUTION ** len(self._accounts.earlier)
