"""Live progress of a serving run on standard error: a line a load test, then the verification."""

import math
from typing import TextIO

from mlcd.events import Event, RunProgress, SearchEnded, StepEnded, StepStarted, Warned
from mlcd.goal import Goal
from mlcd.report.serving import latency_text
from mlcd.report.wording import shortened, speed_text
from mlcd.run.step import Role
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Measurement
from mlcd.units import format_seconds

_WIDTH = 100


class ServingProgress:
    """An observer that writes to `stream`: what is tried and why, what it held, and what it would cost."""

    def __init__(self, stream: TextIO, goal: Goal) -> None:
        self._stream, self._goal = stream, goal

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event:
            case StepStarted() if event.step.role is Role.TRIAL:
                self._line(f"{event.step.number:>3} {event.step.config}")
                self._line(f"      {shortened(event.step.reason, _WIDTH - 6, '...')}")
            case StepEnded() if event.step.role is Role.TRIAL:
                trial = event.step.trial
                if isinstance(trial, Measurement):
                    self._line(f"      {self._result(trial)}; {event.money.spent} spent{self._best(event.incumbent)}")
                else:
                    text = " ".join(f"{trial.kind}: {trial.message}".split())
                    self._line(f"      {shortened(text, _WIDTH - 6, '...')}")
            case SearchEnded():
                self._line(f"Search ended: {event.stopped}" if event.stopped else "Search ended.")
            case RunProgress():
                if event.fraction == 0:
                    self._line(f"Verifying {event.config} under load ...")
                elif event.fraction == 1:
                    self._line(f"      done after {format_seconds(event.money.elapsed_seconds)} in all")
            case Warned():
                self._line(f"    ! {event.text}")

    def _result(self, trial: Measurement) -> str:
        load = trial.load
        if load is None:
            return f"{speed_text(trial.samples_per_second)} requests/s"
        text = f"{speed_text(trial.samples_per_second)} requests/s, p50 {latency_text(load.p50_seconds)}"
        text += f", p99 {latency_text(load.p99_seconds)}"
        if load.errors:
            text += f", {load.errors:,} errors"
        if load.saturated:
            text += f" (perhaps more: {load.saturated})"
        return text if trial.meets(self._goal) else f"{text}: does not meet the goal"

    def _best(self, plan: Plan | None) -> str:
        if plan is None or not math.isfinite(plan.seconds):
            return ""
        return f"; best so far {plan.config} at {plan.usd} per million"

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()
