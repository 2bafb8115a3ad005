"""What a trial's result is shown as: speed in samples/s, or the job's time where the whole job is one sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcd.report.origin import is_replayed
from mlcd.report.ticks import Scale, Tick, number_ticks, time_ticks
from mlcd.report.wording import speed_text
from mlcd.run.run import AnyRun
from mlcd.trial.trial import Measurement
from mlcd.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """A trial's result as one number with its text.

    name, unit    of the axis, and after a number ("" if the text has it)
    title         what it is, in a sentence
    of_speed      the number of a speed in samples/s
    """

    name: str
    unit: str
    title: str
    of_speed: Callable[[float], float]
    text: Callable[[float], str]
    ticks: Callable[[Scale, int], Sequence[Tick]]

    def value(self, trial: Measurement) -> float:
        """The number of a trial."""
        return self.of_speed(trial.samples_per_second)

    def interval(self, trial: Measurement) -> tuple[float, float]:
        """(low, high) at 95%."""
        middle, factor = self.value(trial), trial.speed_interval()[1] / trial.samples_per_second
        return middle / factor, middle * factor

    def result(self, trial: Measurement) -> str:
        """`452 samples/s`, `11 h 16 min`."""
        return f"{self.text(self.value(trial))} {self.unit}".strip()

    def spread(self, trial: Measurement) -> str:
        """`441 to 463`; empty if both ends read the same."""
        low, high = (self.text(end) for end in self.interval(trial))
        return "" if low == high else f"{low} to {high}"


_SPEED = Yardstick(
    name="samples/s",
    unit="samples/s",
    title="speed",
    of_speed=lambda samples_per_second: samples_per_second,
    text=speed_text,
    ticks=number_ticks,
)
_JOB_TIME = Yardstick(
    name="job time",
    unit="",
    title="job time",
    of_speed=lambda samples_per_second: 1 / samples_per_second,
    text=format_seconds,
    ticks=time_ticks,
)


def yardstick(record: AnyRun) -> Yardstick:
    """The job's time for a replayed table, else the speed."""
    return _JOB_TIME if is_replayed(record) else _SPEED
