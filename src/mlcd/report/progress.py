"""Live progress on standard error: a line a trial, then the final run."""

import os
from typing import TextIO

from mlcd.events import Event, RunProgress, SearchEnded, StepEnded, StepStarted, Warned
from mlcd.report.wording import short_seconds, shortened, speed_text
from mlcd.run.findings import EXACT, Z95
from mlcd.run.money import Money
from mlcd.run.step import Role
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import Usd, format_seconds

_CONFIG, _SPEED, _MONEY, _TIME, _WIDTH, _BAR = 20, 16, 8, 9, 100, 20
_FREE = "free: neither spent, promised to running trials, nor reserved for training on the best so far"
_COLOURS = {"dim": "2", "red": "31", "green": "32", "bold": "1"}


class ProgressLines:
    """An observer that writes to `stream`. The caller decides on colour (NO_COLOR, not a terminal: none).

    On a terminal what runs now is a line that is overwritten; elsewhere the final run is told in quarters. Columns
    for a limit appear where there is that limit. A name is never cut: a long one takes a line of its own. Written in
    ASCII where the stream's encoding has no more.

    replayed  whether a measured table answers: the job's time is then shown instead of samples/s
    """

    def __init__(self, stream: TextIO, color: bool, *, replayed: bool = False) -> None:
        self._stream, self._color, self._replayed = stream, color, replayed
        self._terminal = stream.isatty()
        self._columns = min(_WIDTH, _columns(stream))
        self._plain = not _encodes(stream)
        self._numbers: dict[Config, int] = {}
        self._running: dict[int, Config] = {}
        self._headed = self._transient = False
        self._told = -1

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event:
            case StepStarted() if event.step.role is Role.TRIAL:
                self._started(event)
            case StepEnded() if event.step.role is Role.TRIAL:
                self._finished(event)
            case SearchEnded():
                self._ended(event)
            case RunProgress():
                self._run(event)
            case Warned():
                self._line(self._paint(f"    ! {event.text}", "red"))

    def _started(self, event: StepStarted) -> None:
        self._head(event.money)
        self._running[event.step.number] = event.step.config
        if self._terminal:
            others = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._show(f"{event.step.number:>3} {event.step.config}{others}: {event.step.reason}")

    def _finished(self, event: StepEnded) -> None:
        self._head(event.money)
        row, trial = event.step, event.step.trial
        self._running.pop(row.number, None)
        improved = event.incumbent is not None and event.incumbent.config == trial.config
        if isinstance(trial, Measurement):
            self._numbers[trial.config] = row.number
            result = self._result(trial)
        else:
            result = str(trial.kind)
        start, space = f"{row.number:>3} {trial.config}", 4 + _CONFIG + 1 + _SPEED
        if len(start) + 1 + len(result) > space:
            self._line(start)
            start = ""
        cells = [
            start + self._paint(f"{result:>{space - len(start)}}", "red" if isinstance(trial, Failure) else ""),
            *self._money(event.money),
            self._paint(self._best(event.incumbent), "green" if improved else "dim"),
        ]
        self._line(" ".join(cells).rstrip())
        if isinstance(trial, Failure) and trial.message:
            self._line(self._paint(f"      {shortened(_one_line(trial.message), _WIDTH - 6, '...')}", "dim"))

    def _result(self, trial: Measurement) -> str:
        speed = trial.samples_per_second
        value = short_seconds(1 / speed) if self._replayed else speed_text(speed)
        spread = _interval(trial)
        return f"{value} {'+-' if self._plain else '±'}{spread}" if spread else value

    def _ended(self, event: SearchEnded) -> None:
        self._line(f"Search ended: {event.stopped}" if event.stopped else "Search ended.")
        if event.choice is None:
            self._line(self._paint("Nothing measured fits.", "red"))
            return
        plan = event.choice
        self._line(
            self._paint(f"Chosen: {plan.config}", "bold")
            + f", {format_seconds(plan.seconds)} and {plan.usd} expected"
            + ("" if plan.worst_seconds <= plan.seconds * (1 + EXACT) else f", {_at_most(plan)}")
        )

    def _run(self, event: RunProgress) -> None:
        fraction = min(1.0, max(0.0, event.fraction))
        quarter = int(fraction * 4)
        if not self._terminal and quarter <= self._told:
            return
        self._told = quarter
        full, empty = ("#", ".") if self._plain else ("█", "░")
        money = event.money
        left = "" if money.left is None else f", {money.left} left"
        head = f"Training on {event.config}  "
        tail = f" {fraction:>4.0%}  {money.spent} spent{left}, {short_seconds(money.elapsed_seconds)} in all"
        bar = min(_BAR, max(0, self._columns - 1 - len(head) - len(tail)))
        done = round(fraction * bar)
        text = f"{head}{full * done}{empty * (bar - done)}{tail}"
        if self._terminal and fraction < 1:
            self._show(text)
        else:
            self._line(text)

    def _head(self, money: Money) -> None:
        if self._headed:
            return
        self._headed = True
        result = "job time" if self._replayed else "samples/s, 95%"
        cells = ["  #", f"{'configuration':<{_CONFIG}}", f"{result:>{_SPEED}}", f"{'spent':>{_MONEY}}"]
        cells.append(f"{'reserved':>{_MONEY}}")
        if money.left is not None:
            cells.append(f"{'free':>{_MONEY}}")
        if money.seconds_left is not None:
            cells.append(f"{'free time':>{_TIME}}")
        if money.left is not None or money.seconds_left is not None:
            self._line(self._paint(_FREE, "dim"))
        self._line(self._paint(" ".join([*cells, " best so far"]), "dim"))

    def _money(self, money: Money) -> list[str]:
        cells = [f"{_usd(money.spent):>{_MONEY}}", f"{_usd(money.reserved):>{_MONEY}}"]
        if money.left is not None:
            cells.append(f"{_usd(money.left):>{_MONEY}}")
        if money.seconds_left is not None:
            cells.append(f"{short_seconds(money.seconds_left):>{_TIME}}")
        return cells

    def _best(self, plan: Plan | None) -> str:
        if plan is None:
            return " none fits yet"
        number = self._numbers.get(plan.config)
        name = f"#{number}" if number is not None else str(plan.config)  # a trial of before a resume has no row here
        return f" {short_seconds(plan.seconds):>6} {_usd(plan.usd):>{_MONEY}} {name}"

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._color and colour else text

    def _show(self, text: str) -> None:
        """A line that the next one overwrites."""
        clipped = _printable(text)
        if len(clipped) > self._columns - 1:
            clipped = clipped[: max(0, self._columns - 4)] + "..."
        self._stream.write(f"\r{clipped:<{self._columns - 1}}")
        self._stream.flush()
        self._transient = True

    def _line(self, text: str) -> None:
        if self._transient:
            self._stream.write("\r" + " " * (self._columns - 1) + "\r")
            self._transient = False
        self._stream.write(text + "\n")
        self._stream.flush()


def _encodes(stream: TextIO) -> bool:
    try:
        "±█░…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _interval(trial: Measurement) -> str:
    """`2.4%`, `12%`; empty under 0.05%."""
    low, high = trial.speed_interval(Z95)
    half = (high - low) / 2 / trial.samples_per_second
    if half < 0.0005:
        return ""
    return f"{half:.1%}" if half < 0.0995 else f"{half:.0%}"


def _columns(stream: TextIO) -> int:
    """The terminal's width: a line that is overwritten must not be wrapped."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except (OSError, ValueError, AttributeError):
        return _WIDTH


def _at_most(plan: Plan) -> str:
    return f"at most {format_seconds(plan.worst_seconds)} and {plan.worst_usd}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _usd(usd: Usd) -> str:
    """Short of eight characters as long as the amount allows: no cents from $10,000 on."""
    return f"${usd.dollars:,.0f}" if abs(usd.dollars) >= 9999.5 else str(usd)
