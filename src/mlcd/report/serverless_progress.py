"""Live progress of a training on functions on standard error: loss against time and money, a line an epoch."""

from typing import TextIO

from mlcd.events import Event, StepEnded, StepStarted, Warned
from mlcd.report.wording import shortened
from mlcd.trial.epoch import Epoch
from mlcd.units import format_seconds

_WIDTH, _BAR = 100, 24


class EpochProgress:
    """An observer that writes to `stream`. The bar is how far the loss has come from its first value to the target."""

    def __init__(self, stream: TextIO, target_loss: float) -> None:
        self._stream, self._target = stream, target_loss
        self._terminal = stream.isatty()
        self._first: float | None = None
        self._headed = self._transient = False

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        match event:
            case StepStarted():
                self._head()
                if self._terminal:
                    self._show(f"{event.step.authorisation.attempt:>5}  {event.step.fleet} ...")
            case StepEnded():
                self._finished(event)
            case Warned():
                self._line(f"    ! {event.text}")

    def _finished(self, event: StepEnded) -> None:
        self._head()
        done = event.step.epoch
        left = "" if event.money.left is None else f"{event.money.left!s:>10}"
        start = f"{done.number:>5}  {done.fleet.plain:<16} {done.fleet.share:>7.0%}"
        spent = f"{format_seconds(event.money.elapsed_seconds):>12}  {event.money.spent!s:>9} {left}"
        if not isinstance(done, Epoch):
            self._line(f"{start} {'failed':>9}  {spent}")
            self._line(f"       {shortened(' '.join(done.message.split()), _WIDTH - 7, '...')}")
            return
        self._first = done.loss if self._first is None else max(self._first, done.loss)
        self._line(f"{start} {done.loss:>9.4f}  {spent}  {self._bar(done.loss)}".rstrip())

    def _bar(self, loss: float) -> str:
        if self._first is None or self._first <= self._target:
            return ""
        share = min(1.0, max(0.0, (self._first - loss) / (self._first - self._target)))
        return "#" * round(share * _BAR)

    def _head(self) -> None:
        if not self._headed:
            self._headed = True
            heads = f"epoch  {'functions':<16} samples {'loss':>9}  {'time':>12}  {'spent':>9} {'left':>10}"
            self._line(f"{heads}  to the target")

    def _show(self, text: str) -> None:
        self._stream.write(f"\r{text:<{_WIDTH - 1}}")
        self._stream.flush()
        self._transient = True

    def _line(self, text: str) -> None:
        if self._transient:
            self._stream.write("\r" + " " * (_WIDTH - 1) + "\r")
            self._transient = False
        self._stream.write(text + "\n")
        self._stream.flush()
