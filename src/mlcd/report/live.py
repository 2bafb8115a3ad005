"""Progress of a run of any kind: permanent lines, and on a terminal a status line below them."""

import atexit
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from mlcd.events import Event, Warned
from mlcd.report.terminal import columns, is_live, is_plain, wants_colour
from mlcd.report.text import WIDTH, Line, Style, rendered
from mlcd.report.wording import short_seconds, shortened
from mlcd.units import Usd, speed_text
from mlcd.untrusted import on_one_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

_BAR = 20
LEAST_BAR = 5
_LEAST_WHAT = 24
MOST_DETAIL = 600
"""Characters of an explanation: about six lines."""
REFRESHES_PER_SECOND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStatus:
    """What runs now, as the last event told it; the clock goes on from there.

    at               when the event arrived, in seconds of time.monotonic
    elapsed_seconds  since the run's first start, at that time
    to_go_seconds    until it is done, at that time; None if unknown
    fraction         of the work that is done; None if not applicable
    """

    what: str
    at: float
    elapsed_seconds: float
    spent: Usd
    budget: Usd | None = None
    rate: str = ""
    to_go_seconds: float | None = None
    fraction: float | None = None

    def text(self, now: float, width: int, *, plain: bool = False) -> str:
        """One line of at most `width` characters: always the clock, money and time to go; the rest if there is room."""
        gone, spent = max(0.0, now - self.at), str(self.spent)
        done = "" if self.fraction is None else f"{int(100 * self.fraction)}%"  # 100% is said when it is done
        clock = clock_text(self.elapsed_seconds + gone)
        rest = "" if self.to_go_seconds is None else f"~{short_seconds(max(0.0, self.to_go_seconds - gone))} to go"
        spent_of = f"{spent} spent" if self.budget is None else f"{spent} of {self.budget}"
        for money, rate in ((spent_of, self.rate), (spent, self.rate), (spent_of, ""), (spent, "")):
            tail = "  ".join(filter(None, (done, clock, money, rate, rest)))
            room = width - len(tail) - 2
            if room >= min(len(self.what), _LEAST_WHAT):
                break
        what = self.what if len(self.what) <= room else self.what[: max(0, room - 3)] + "..."
        bar = min(_BAR, room - len(what) - 2)
        if self.fraction is not None and bar >= LEAST_BAR:
            full, empty = ("#", ".") if plain else ("█", "░")
            marks = round(self.fraction * bar)
            what = f"{what}  {full * marks}{empty * (bar - marks)}"
        return f"{what}  {tail}"[:width]


class Pace:
    """How fast steps are done, from the elapsed time in the run's events."""

    def __init__(self) -> None:
        self._started_at: float | None = None
        self._first = 0.0

    def tell(self, done: float, elapsed_seconds: float) -> None:
        """Record how much is done at this time. Counting starts at the last call before anything was done."""
        if self._started_at is None or done <= self._first:
            self._started_at, self._first = elapsed_seconds, done
        self._done, self._elapsed = done, elapsed_seconds

    @property
    def per_second(self) -> float | None:
        """Steps per second; None until known."""
        if self._started_at is None or self._elapsed <= self._started_at or self._done <= self._first:
            return None
        return (self._done - self._first) / (self._elapsed - self._started_at)

    def seconds_for(self, rest: float) -> float | None:
        """Seconds that `rest` more steps take; None until known."""
        return None if self.per_second is None else rest / self.per_second

    def text(self, noun: str) -> str:
        """`14 trials/h`; empty until known."""
        if self.per_second is None:
            return ""
        an_hour = self.per_second * 3600
        return f"{speed_text(an_hour) if an_hour >= 1000 else f'{an_hour:.3g}'} {noun}/h"


class _Lossy:
    """A stream that drops what can no longer be written: progress that nobody sees must not end a paid run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False

    def write(self, text: str) -> int:
        """Like the stream's, until it fails."""
        self._unless_lost(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """The same."""
        self._unless_lost(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _unless_lost(self, action: Callable[[], object]) -> None:
        if not self._is_lost:
            try:
                action()
            except (OSError, ValueError):  # a full disk, no reader, no terminal; ValueError: it was closed
                self._is_lost = True


class LiveLine:
    """An observer that writes permanent lines and, on a terminal, a status line below them, redrawn twice a second.

    A context manager that restores the terminal at its end. `clock` returns the seconds for the status. Where the
    stream can no longer be written, nothing more is shown, and nothing is raised.
    """

    def __init__(self, stream: TextIO, colour: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console  # noqa: PLC0415 - only what prints needs it

        self._clock = clock
        self.is_live, self.is_plain = is_live(stream), is_plain(stream)
        self.limit = columns(stream)
        self.width = min(WIDTH, self.limit or WIDTH)
        colour = wants_colour(stream) if colour is None else colour
        self._console = Console(
            file=cast(TextIO, _Lossy(stream)),
            width=self.limit or WIDTH,
            color_system="standard" if colour else None,
            force_terminal=self.is_live or colour,
            no_color=False,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            _environ={},  # report.terminal alone reads it: rich fails on an odd COLUMNS or LINES
        )
        self._live: Live | None = None
        self._status: RunningStatus | None = None

    def __call__(self, event: Event) -> None:
        """Show one event; subclasses show what is specific to a kind of job."""
        if isinstance(event, Warned):
            self.wrapped(f"    ! {event.text}", Style.BAD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    @property
    def now(self) -> float:
        """What `RunningStatus.at` is counted in."""
        return self._clock()

    def line(self, *pieces: str | tuple[str, Style]) -> None:
        """Write one permanent line, unwrapped."""
        from rich.text import Text  # noqa: PLC0415 - only what prints needs it

        parts = [
            on_one_line(piece) if isinstance(piece, str) else (on_one_line(piece[0]), str(piece[1])) for piece in pieces
        ]
        text = Text.assemble(*parts)
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def wrapped(self, text: str, style: Style = Style.PLAIN) -> None:
        """Write a permanent line, wrapped to the terminal."""
        for part in rendered([Line(text)], width=self.limit).split("\n"):
            self.line((part, style))

    def detail(self, text: str, style: Style = Style.DIM) -> None:
        """Write what explains the line above, indented and wrapped; of a very long text not its middle."""
        self.wrapped(f"      {shortened(on_one_line(' '.join(text.split())), MOST_DETAIL, ' ... ')}", style)

    def show(self, status: RunningStatus) -> None:
        """The status from now on; nothing where lines cannot be drawn anew."""
        if not self.is_live:
            return
        self._status = status
        if self._live is not None:
            self._live.refresh()
            return
        from rich.live import Live  # noqa: PLC0415 - only a terminal needs it

        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        atexit.register(self.hide)  # restore the cursor even if the caller is interrupted
        self._live.start(refresh=True)

    def hide(self) -> None:
        """Remove the status until the next one."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            atexit.unregister(self.hide)

    def _drawn(self) -> "Text":
        from rich.text import Text  # noqa: PLC0415 - only a terminal needs it

        status = self._status
        text = "" if status is None else status.text(self._clock(), (self.limit or WIDTH) - 1, plain=self.is_plain)
        return Text(on_one_line(text), no_wrap=True)


def clock_text(seconds: float) -> str:
    """`0:02:13`, `27:00:05`: hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
