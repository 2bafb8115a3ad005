"""Progress of a search and its training on standard error: one line per trial, then the training."""

from typing import TextIO

from mlcd.events import Event, RunProgress, SearchEnded, StepEnded, StepStarted
from mlcd.problem import Problem
from mlcd.report.live import LEAST_BAR, LiveLine, Pace, RunningStatus
from mlcd.report.text import Style
from mlcd.report.wording import sentence, short_seconds, speed_text, watch_text
from mlcd.report.worth import worth
from mlcd.run.attempt import Ending
from mlcd.run.findings import EXACT, Z95
from mlcd.run.money import Money
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import Usd, format_seconds

_CONFIG, _SPEED, _MONEY, _TIME, _BEST, _BAR = 20, 16, 8, 9, 20, 20
_FREE = "free: neither spent, committed to running trials, nor reserved for training on the best so far"


class RunningSteps:
    """The status of both kinds of search: trials, then the training or verification.

    problem  of the run, if known: adds the budget, the maximum number of trials and the samples
    """

    def __init__(self, live: LiveLine, problem: Problem | None, *, step: str, samples: str) -> None:
        self._live, self._problem, self._step, self._samples = live, problem, step, samples
        self._trials, self._final = Pace(), Pace()
        self._expected_seconds: float | None = None
        self._started_seconds: float | None = None
        self._first_fraction: float | None = None
        """Of the training: what it continued from."""

    def trial_started(self, event: StepStarted, what: str) -> None:
        """A trial has started; the clock starts with the first."""
        done = event.step.number - 1
        self._trials.tell(done, event.money.elapsed_seconds)
        to_go = None
        if self._problem is not None:
            rest = max(1, self._problem.max_trials - done)
            to_go = self._trials.seconds_for(rest) or self._problem.trial.seconds * rest
            if event.money.seconds_left is not None:
                to_go = min(to_go, max(0.0, event.money.seconds_left))
        self._show(what, event.money, rate=self._trials.text(f"{self._step}s"), to_go_seconds=to_go)

    def share(self, samples: float) -> str:
        """How far a training is after `samples`."""
        if self._problem is None:
            return "continues"
        return f"{min(samples / self._problem.work_samples, 1.0):.0%} done"

    def chosen(self, plan: Plan | None) -> None:
        """Record what will run after the search."""
        self._first_fraction = None
        self._expected_seconds = None if plan is None else plan.seconds

    def progressed(self, event: RunProgress, what: str) -> None:
        """Show the progress of the training."""
        fraction = min(1.0, max(0.0, event.fraction))
        self._final.tell(fraction, event.money.elapsed_seconds)
        to_go = self._final.seconds_for(1 - fraction)
        if self._first_fraction is None or fraction < self._first_fraction:
            self._first_fraction = fraction
        if to_go is None and self._expected_seconds is not None and self._first_fraction < 1:
            to_go = self._expected_seconds * (1 - fraction) / (1 - self._first_fraction)
        rate = self._final.per_second
        text = "" if rate is None else f"{rate * 3600:.0%}/h" if rate < 1 / 3600 else f"{rate * 60:.0%}/min"
        if rate is not None and self._problem is not None and self._samples:
            text = f"{speed_text(rate * self._problem.work_samples)} {self._samples}"
        self._show(what, event.money, rate=text, to_go_seconds=to_go, fraction=fraction)

    def verifying(self, event: RunProgress, what: str) -> None:
        """Show the progress of the verification; it takes at most the planned time."""
        if event.fraction == 0 or self._started_seconds is None:
            self._started_seconds = event.money.elapsed_seconds
        most = None if self._problem is None else self._problem.verify_seconds
        gone = event.money.elapsed_seconds - self._started_seconds
        to_go = None if most is None else max(0.0, most - gone)
        self._show(what, event.money, rate="", to_go_seconds=to_go)

    def _show(
        self, what: str, money: Money, *, rate: str, to_go_seconds: float | None, fraction: float | None = None
    ) -> None:
        budget = None if self._problem is None else self._problem.goal.budget
        self._live.show(
            RunningStatus(
                what=what,
                at=self._live.now,
                elapsed_seconds=money.elapsed_seconds,
                spent=money.spent,
                budget=budget,
                rate=rate,
                to_go_seconds=to_go_seconds,
                fraction=fraction,
            )
        )


class ProgressLines(LiveLine):
    """An observer that writes to `stream`. The caller decides on colour.

    On a terminal a status line shows what runs now; elsewhere the training is reported in quarters. Columns for a limit
    appear if there is that limit and the terminal has room. A name is never cut: a long one gets its own line. Written
    in ASCII if the stream's encoding has no more.

    replayed  whether the run replays a measured table: the job's time is then shown instead of samples/s
    problem   of the run, if known: the status then shows more
    """

    def __init__(
        self, stream: TextIO, color: bool | None = None, *, replayed: bool = False, problem: Problem | None = None
    ) -> None:
        super().__init__(stream, color)
        self._replayed, self._problem = replayed, problem
        self._incumbent: Plan | None = None
        self._has_ended = self._has_reserve = False
        self._steps = RunningSteps(self, problem, step="trial", samples="" if replayed else "samples/s")
        self._numbers: dict[Config, int] = {}
        self._trials: dict[Config, Measurement] = {}
        self._running: dict[int, Config] = {}
        self._columns: tuple[str, ...] | None = None
        self._told = -1

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case StepStarted() if event.step.role is Role.TRIAL:
                self._started(event)
            case StepEnded() if event.step.role is Role.TRIAL:
                self._finished(event)
            case StepEnded() if event.step.role is Role.TRAINING and event.step.final.ending is Ending.CONTINUED:
                self._continued(event)
            case SearchEnded():
                self._ended(event)
            case RunProgress():
                self._run(event)
            case _:
                super().__call__(event)

    def _started(self, event: StepStarted) -> None:
        self._head(event.money)
        self._running[event.step.number] = event.step.config
        self._has_reserve = event.money.reserved.micros > 0
        others = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
        self._steps.trial_started(event, f"{event.step.number:>3} {event.step.config}{others}: {event.step.reason}")

    def _finished(self, event: StepEnded) -> None:
        shown = self._head(event.money)
        row, trial = event.step, event.step.trial
        self._running.pop(row.number, None)
        if not self._running:
            self.hide()
        improved = event.incumbent is not None and event.incumbent.config == trial.config
        if isinstance(trial, Measurement):
            self._numbers[trial.config], self._trials[trial.config] = row.number, trial
            result = self._result(trial)
        else:
            result = str(trial.kind)
        start, space = f"{row.number:>3} {trial.config}", 4 + _CONFIG + 1 + _SPEED
        if len(start) + 1 + len(result) > space:
            self.line(start)
            start = ""
        cells = "".join(f" {cell}" for cell in self._money(event.money, shown))
        best = f" {self._best(event.incumbent)}" if "best" in shown else ""
        self.line(
            start,
            (f"{result:>{space - len(start)}}", Style.BAD if isinstance(trial, Failure) else Style.PLAIN),
            cells,
            (best, Style.GOOD if improved else Style.DIM),
        )
        if isinstance(trial, Failure) and trial.message:
            self.detail(trial.message)
        if isinstance(trial, Measurement) and self._problem is not None:
            knows_before = self._has_ended or (row.number == 1 and not self._has_reserve)  # not after a resume
            before = self._incumbent if knows_before else event.incumbent
            rival = None if event.incumbent is None else self._trials.get(event.incumbent.config)
            text = worth(
                self._problem,
                trial,
                before,
                event.incumbent,
                rival,
                spent=event.money.spent,
                elapsed_seconds=event.money.elapsed_seconds,
            )
            self.wrapped(f"      {row.reason}; {text}" if row.reason else f"      {text}", Style.DIM)
        self._incumbent, self._has_ended = event.incumbent, True

    def _continued(self, event: StepEnded) -> None:
        """The training goes on beside the trials."""
        share = self._steps.share(event.step.final.reached_samples)
        self.line((f"{event.step.number:>3} {event.step.config}: training, {share}", Style.DIM))

    def _result(self, trial: Measurement) -> str:
        speed = trial.samples_per_second
        value = short_seconds(1 / speed) if self._replayed else speed_text(speed)
        spread = _interval(trial)
        return f"{value} {'+-' if self.is_plain else '±'}{spread}" if spread else value

    def _ended(self, event: SearchEnded) -> None:
        self.hide()
        self._steps.chosen(event.choice)
        self.wrapped(f"Search ended: {event.stopped}" if event.stopped else "Search ended.")
        if event.choice is None:
            self.line(("Nothing measured fits.", Style.BAD))
            return
        plan = event.choice
        if event.is_done:
            self.line((f"Chosen: {plan.config}", Style.HEADING), ", whose trial did all of the work")
            return
        expected = f", {format_seconds(plan.seconds)} and {plan.usd} expected"
        if plan.worst_seconds > plan.seconds * (1 + EXACT):
            expected += f", {_at_most(plan)}"
        title = f"Chosen: {plan.config}"
        if self.limit is not None and len(title) + len(expected) > self.limit:
            self.line((title, Style.HEADING))
            self.wrapped(f"  {expected[2:]}")
        else:
            self.line((title, Style.HEADING), expected)
        if event.watch is not None:
            self.wrapped(f"  {sentence(watch_text(event.watch))}")

    def _run(self, event: RunProgress) -> None:
        fraction = min(1.0, max(0.0, event.fraction))
        if self.is_live and fraction < 1:
            self._steps.progressed(event, f"Training on {event.config}")
            self._told = -1  # of an attempt that begins again, its end is shown too
            return
        self.hide()
        quarter = int(fraction * 4)
        if quarter <= self._told:
            return
        self._told = quarter
        full, empty = ("#", ".") if self.is_plain else ("█", "░")
        money = event.money
        left = "" if money.left is None else f", {money.left} left"
        head = f"Training on {event.config}  "
        tail = f" {fraction:>4.0%}  {money.spent} spent{left}, {short_seconds(money.elapsed_seconds)} in all"
        bar = min(_BAR, max(0, self.width - 1 - len(head) - len(tail)))
        done = round(fraction * bar)
        drawn = f"{full * done}{empty * (bar - done)}" if bar >= LEAST_BAR else ""
        self.wrapped(f"{head}{drawn}{tail}" if drawn else f"{head.rstrip()}:{tail}")

    def _head(self, money: Money) -> tuple[str, ...]:
        """The columns; writes their names before the first trial."""
        if self._columns is not None:
            return self._columns
        self._columns = shown = self._fitting(money)
        result = "job time" if self._replayed else "samples/s, 95%"
        names = {"spent": "spent", "reserved": "reserved", "free": "free"}
        cells = ["  #", f"{'configuration':<{_CONFIG}}", f"{result:>{_SPEED}}"]
        cells += [f"{name:>{_MONEY}}" for column, name in names.items() if column in shown]
        if "time" in shown:
            cells.append(f"{'free time':>{_TIME}}")
        if money.left is not None or money.seconds_left is not None:
            self.wrapped(_FREE, Style.DIM)
        self.line((" ".join([*cells, *[" best so far"] * ("best" in shown)]), Style.DIM))
        return shown

    def _fitting(self, money: Money) -> tuple[str, ...]:
        """The columns that fit, the more important ones first."""
        wanted = [("spent", _MONEY)]
        wanted += [("free", _MONEY)] if money.left is not None else []
        wanted += [("best", _BEST), ("reserved", _MONEY)]
        wanted += [("time", _TIME)] if money.seconds_left is not None else []
        room, shown = (self.limit or 10**6) - (4 + _CONFIG + 1 + _SPEED), []
        for name, width in wanted:
            room -= width + 1
            if room >= 0:
                shown.append(name)
        return tuple(shown)

    def _money(self, money: Money, shown: tuple[str, ...]) -> list[str]:
        amounts = {"spent": money.spent, "reserved": money.reserved, "free": money.left}
        cells = [f"{_usd(usd):>{_MONEY}}" for name, usd in amounts.items() if usd is not None and name in shown]
        if money.seconds_left is not None and "time" in shown:
            cells.append(f"{short_seconds(money.seconds_left):>{_TIME}}")
        return cells

    def _best(self, plan: Plan | None) -> str:
        if plan is None:
            return " none fits yet"
        number = self._numbers.get(plan.config)
        name = f"#{number}" if number is not None else str(plan.config)  # a trial from before a resume has no row here
        return f" {short_seconds(plan.seconds):>6} {_usd(plan.usd):>{_MONEY}} {name}"


def _interval(trial: Measurement) -> str:
    """`2.4%`, `12%`; empty under 0.05%."""
    low, high = trial.speed_interval(Z95)
    half = (high - low) / 2 / trial.samples_per_second
    if half < 0.0005:
        return ""
    return f"{half:.1%}" if half < 0.0995 else f"{half:.0%}"


def _at_most(plan: Plan) -> str:
    return f"at most {format_seconds(plan.worst_seconds)} and {plan.worst_usd}"


def _usd(usd: Usd) -> str:
    """At most eight characters if possible: no cents from $10,000, and `<$0.0001` for less."""
    if 0 < usd.micros < 100:
        return "<$0.0001"
    return f"${usd.dollars:,.0f}" if 9999.5 <= abs(usd.dollars) < 1e15 else str(usd)
