"""Progress of a training on functions on standard error: loss against time and money, one line per epoch."""

import math
from collections.abc import Mapping
from typing import TextIO

from mlcd.events import Event, StepEnded, StepStarted
from mlcd.report.live import LiveLine, Pace, RunningStatus
from mlcd.report.text import Style
from mlcd.trial.epoch import Epoch
from mlcd.units import format_seconds

_TO_TARGET = "to the target"
_COLUMNS = {
    "epoch": (0, ">", 5),
    "functions": (2, "<", 16),
    "samples": (1, ">", 7),
    "loss": (1, ">", 9),
    "time": (2, ">", 12),
    "spent": (2, ">", 9),
    "left": (1, ">", 10),
    _TO_TARGET: (2, "<", 24),
}
"""Column -> the space before it, its alignment and its width."""


class EpochProgress(LiveLine):
    """An observer that writes to `stream`. The bar shows the progress of the loss towards the target."""

    def __init__(self, stream: TextIO, target_loss: float, color: bool | None = None) -> None:
        super().__init__(stream, color)
        self._target = target_loss
        self._first: float | None = None
        self._loss: float | None = None
        self._elapsed_seconds = 0.0
        self._epochs, self._way = Pace(), Pace()
        self._headed = False
        self._columns = _fitting(self.limit)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case StepStarted():
                self._started(event)
            case StepEnded():
                self._finished(event)
            case _:
                super().__call__(event)

    def _started(self, event: StepStarted) -> None:
        self._head()
        number = event.step.authorisation.attempt
        self._epochs.tell(number - 1, self._elapsed_seconds)
        loss = "" if self._loss is None else f", loss {self._loss:.4g} of {self._target:.4g}"
        self.show(
            RunningStatus(
                what=f"Epoch {number}: {event.step.fleet}{loss}",
                at=self.now,
                elapsed_seconds=self._elapsed_seconds,
                spent=event.money.spent,
                budget=None if event.money.left is None else event.money.spent + event.money.left,
                rate=self._epochs.text("epochs"),
                to_go_seconds=None
                if self._loss is None
                else self._way.seconds_for(1 - self._loss_progress(self._loss)),
            )
        )

    def _loss_progress(self, loss: float) -> float:
        """Progress from the first loss to the target, from 0 to 1, if the loss falls by a constant factor per epoch."""
        first, target = self._first, self._target
        if first is None or first <= target:
            return 1.0
        if target > 0 and loss > 0:
            return min(1.0, math.log(first / loss) / math.log(first / target))
        return min(1.0, (first - loss) / (first - target))

    def _finished(self, event: StepEnded) -> None:
        self.hide()
        self._head()
        money = event.money
        self._elapsed_seconds = money.elapsed_seconds
        done = event.step.epoch
        cells = {
            "epoch": str(done.number),
            "functions": done.fleet.plain,
            "samples": f"{done.fleet.share:.0%}",
            "loss": f"{done.loss:.4f}" if isinstance(done, Epoch) else "failed",
            "time": format_seconds(money.elapsed_seconds),
            "spent": str(money.spent),
            "left": "" if money.left is None else str(money.left),
        }
        if not isinstance(done, Epoch):
            self._row(cells, Style.BAD)
            self.detail(done.message)
            return
        self._loss = done.loss
        self._first = done.loss if self._first is None else max(self._first, done.loss)
        self._way.tell(self._loss_progress(done.loss), money.elapsed_seconds)
        self._row({**cells, _TO_TARGET: self._bar(done.loss)})

    def _row(self, cells: Mapping[str, str], loss: Style = Style.PLAIN) -> None:
        pieces = []
        for name, (gap, side, width) in self._columns.items():
            pieces.append((f"{'':{gap}}{cells.get(name, ''):{side}{width}}", loss if name == "loss" else Style.PLAIN))
        self.line(*pieces)

    def _bar(self, loss: float) -> str:
        if self._first is None or self._first <= self._target or _TO_TARGET not in self._columns:
            return ""
        share = min(1.0, max(0.0, (self._first - loss) / (self._first - self._target)))
        return "#" * round(share * self._columns[_TO_TARGET][2])

    def _head(self) -> None:
        if not self._headed:
            self._headed = True
            self._row({name: name for name in self._columns})


def _fitting(limit: int | None) -> dict[str, tuple[int, str, int]]:
    """The columns that fit. The bar is dropped first, then what is left, then the share of the samples."""
    columns = dict(_COLUMNS)
    if limit is None:
        return columns
    for name in (_TO_TARGET, "left", "samples"):
        over = sum(gap + width for gap, _, width in columns.values()) - limit
        if over <= 0:
            break
        gap, side, width = columns.pop(name)
        if name == _TO_TARGET and width - over >= len(_TO_TARGET):
            columns[name] = (gap, side, width - over)
    return columns
