"""Live progress on standard error: a line a trial, then the final run."""

import os
from typing import TextIO

from mlcd.events import Event, Money, RunProgress, SearchEnded, TrialFinished, TrialStarted
from mlcd.report.receipt import Z95
from mlcd.report.wording import short_seconds, shortened, speed_text
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, Measurement
from mlcd.units import Usd, format_seconds

_CONFIG, _SPEED, _MONEY, _TIME, _WIDTH = 20, 16, 8, 7, 100
_COLOURS = {"dim": "2", "red": "31", "green": "32", "bold": "1"}


class ProgressLines:
    """An observer that writes to `stream`. The caller decides on colour (NO_COLOR, not a terminal: none).

    On a terminal what runs now is a line that is overwritten; elsewhere the final run is told in quarters. Columns
    for a limit appear where there is that limit. Written in ASCII where the stream's encoding has no more.
    """

    def __init__(self, stream: TextIO, color: bool) -> None:
        self._stream, self._color = stream, color
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
            case TrialStarted():
                self._started(event)
            case TrialFinished():
                self._finished(event)
            case SearchEnded():
                self._ended(event)
            case RunProgress():
                self._run(event)

    def _started(self, event: TrialStarted) -> None:
        self._head(event.money)
        self._running[event.number] = event.config
        if self._terminal:
            others = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._show(f"{event.number:>3} {event.config}{others}: {event.reason}")

    def _finished(self, event: TrialFinished) -> None:
        self._head(event.money)
        row, trial = event.row, event.row.trial
        self._running.pop(row.number, None)
        improved = event.incumbent is not None and event.incumbent.config == trial.config
        if isinstance(trial, Measurement):
            self._numbers[trial.config] = row.number
            speed = f"{speed_text(trial.samples_per_second)} {'+-' if self._plain else '±'}{_interval(trial)}"
        else:
            speed = str(trial.kind)
        cells = [
            f"{row.number:>3}",
            f"{shortened(str(trial.config), _CONFIG, '..' if self._plain else '…'):<{_CONFIG}}",
            self._paint(f"{speed:>{_SPEED}}", "red" if isinstance(trial, Failure) else ""),
            *self._money(event.money),
            self._paint(self._best(event.incumbent), "green" if improved else "dim"),
        ]
        self._line(" ".join(cells).rstrip())
        if isinstance(trial, Failure) and trial.message:
            self._line(self._paint(f"      {shortened(_one_line(trial.message), _WIDTH - 6, '...')}", "dim"))

    def _ended(self, event: SearchEnded) -> None:
        self._line(f"Search ended: {event.stopped}" if event.stopped else "Search ended.")
        if event.choice is None:
            self._line(self._paint("Nothing measured fits.", "red"))
            return
        plan = event.choice
        self._line(
            self._paint(f"Chosen: {plan.config}", "bold")
            + f", {format_seconds(plan.seconds)} and {plan.usd} expected,"
            + f" at most {format_seconds(plan.worst_seconds)} and {plan.worst_usd}"
        )

    def _run(self, event: RunProgress) -> None:
        fraction = min(1.0, max(0.0, event.fraction))
        quarter = int(fraction * 4)
        if not self._terminal and quarter <= self._told:
            return
        self._told = quarter
        full, empty = ("#", ".") if self._plain else ("█", "░")
        done = round(fraction * 20)
        money = event.money
        left = "" if money.left is None else f", {money.left} left"
        text = (
            f"Training on {event.config}  {full * done}{empty * (20 - done)} {fraction:>4.0%}"
            f"  {money.spent} spent{left}, {short_seconds(money.elapsed_seconds)} in all"
        )
        if self._terminal and fraction < 1:
            self._show(text)
        else:
            self._line(text)

    def _head(self, money: Money) -> None:
        if self._headed:
            return
        self._headed = True
        cells = ["  #", f"{'configuration':<{_CONFIG}}", f"{'samples/s, 95%':>{_SPEED}}", f"{'spent':>{_MONEY}}"]
        cells.append(f"{'reserved':>{_MONEY}}")
        if money.left is not None:
            cells.append(f"{'left':>{_MONEY}}")
        if money.seconds_left is not None:
            cells.append(f"{'time':>{_TIME}}")
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
        name = f"#{number:<3}" if number is not None else str(plan.config)
        return f" {name} {short_seconds(plan.seconds):>6} {_usd(plan.usd):>{_MONEY}}"

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._color and colour else text

    def _show(self, text: str) -> None:
        """A line that the next one overwrites."""
        clipped = shortened(_printable(text), self._columns - 1, "...")
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
    low, high = trial.speed_interval(Z95)
    half = (high - low) / 2 / trial.samples_per_second
    return f"{half:.1%}" if half < 0.0995 else f"{half:.0%}"


def _columns(stream: TextIO) -> int:
    """The terminal's width: a line that is overwritten must not be wrapped."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except (OSError, ValueError, AttributeError):
        return _WIDTH


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _usd(usd: Usd) -> str:
    """Short of eight characters as long as the amount allows: no cents from $10,000 on."""
    return f"${usd.dollars:,.0f}" if abs(usd.dollars) >= 9999.5 else str(usd)
