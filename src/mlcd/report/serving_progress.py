"""Progress of a serving run on standard error: one line per load test, then the verification."""

import math
from typing import TextIO

from mlcd.events import Event, RunProgress, SearchEnded, StepEnded, StepStarted
from mlcd.goal import Goal
from mlcd.problem import Problem
from mlcd.report.live import LiveLine
from mlcd.report.progress import RunningSteps
from mlcd.report.text import Style
from mlcd.report.wording import speed_text
from mlcd.run.attempt import Ending
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Measurement
from mlcd.units import format_seconds, latency_text


class ServingProgress(LiveLine):
    """An observer that writes to `stream`: what is tried and why, its rate, and its cost.

    problem  of the run, if known: the status on a terminal then shows more
    """

    def __init__(
        self, stream: TextIO, goal: Goal, color: bool | None = None, *, problem: Problem | None = None
    ) -> None:
        super().__init__(stream, color)
        self._goal = goal
        self._failed: list[Config] = []
        """Configurations whose verification failed."""
        self._steps = RunningSteps(self, problem, step="test", samples="")

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case StepStarted() if event.step.role is Role.TRIAL:
                self.wrapped(f"{event.step.number:>3} {event.step.config}")
                self.detail(event.step.reason)
                self._steps.trial_started(event, f"Load test {event.step.number}")
            case StepEnded() if event.step.role is Role.TRIAL:
                self.hide()
                trial = event.step.trial
                if isinstance(trial, Measurement):
                    found = f"{self._result(trial)}; {event.money.spent} spent{self._best(event.incumbent)}"
                    self.wrapped(f"      {found}")
                else:
                    self.detail(f"{trial.kind}: {trial.message}", Style.BAD)
            case StepEnded() if event.step.role is Role.VERIFICATION:
                self._verification_ended(event)
            case SearchEnded():
                self.hide()
                self.wrapped(f"Search ended: {event.stopped}" if event.stopped else "Search ended.")
            case RunProgress():
                self._verified(event)
            case _:
                super().__call__(event)

    def _verified(self, event: RunProgress) -> None:
        if event.fraction == 0:
            changed = " again, at a lower rate," if event.config in self._failed else " instead" if self._failed else ""
            self.wrapped(f"Verifying {event.config}{changed} under load ...")
        if event.fraction < 1:
            self._steps.verifying(event, "Verification")

    def _verification_ended(self, event: StepEnded) -> None:
        self.hide()
        ended = event.step.final
        if ended.is_done:
            self.line(f"      done after {format_seconds(event.money.elapsed_seconds)} in all")
            return
        if ended.ending is Ending.MOVED:
            self._failed.append(ended.config)
        self.detail(f"failed: {ended.message}" if ended.ending is Ending.MOVED else ended.message, Style.BAD)

    def _result(self, trial: Measurement) -> str:
        load = trial.load
        if load is None:
            return f"{speed_text(trial.samples_per_second)} requests/s"
        text = f"{speed_text(trial.samples_per_second)} requests/s, p50 {latency_text(load.p50_seconds)}"
        text += f", p99 {latency_text(load.p99_seconds)}"
        if (tokens := load.tokens) is not None:
            text = f"{speed_text(tokens.output_tokens_per_second)} tokens/s with {tokens.concurrency:.0f} in flight"
            text += f", ttft p95 {latency_text(tokens.ttft[1])}, tpot p95 {latency_text(tokens.tpot[1])}"
        if load.errors:
            text += f", {load.errors:,} errors"
        if load.saturated:
            text += f" (perhaps more: {load.saturated})"
        return text if trial.meets(self._goal) else f"{text}: does not meet the goal"

    def _best(self, plan: Plan | None) -> str:
        if plan is None or not math.isfinite(plan.seconds):
            return ""
        return f"; best so far {plan.config} at {plan.usd} per million requests"
