"""Spot nodes that are taken away: how often, what that adds to a training, and how often to save against it.

Interruptions of a configuration are a Poisson process. Its rate is what the catalog or the user says, times a factor
that this run teaches: Gamma(shape, shape) before it, Gamma(shape + seen, shape + expected) after `seen` interruptions
where `expected` were expected. The number of interruptions to come is then negative binomial.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scipy.special import betainc

from mlcd.space import Config
from mlcd.units import HOUR, MOST_SECONDS, Usd

DEFAULT_PER_NODE_HOUR = 0.01
"""Interruptions of one node an hour where neither the catalog nor the user says: an assumption, about one node in five
a day. Clouds publish no rate by type and zone that could be dated here."""
DEFAULT_SHAPE = 1.0
"""How many interruptions the rate before the run counts for: one, so that a few in the run outweigh it."""
DEFAULT_SAVE_SECONDS = 10.0
"""How long a checkpoint takes to save, where the user does not say: an assumption."""
LEAST_INTERVAL_SECONDS = 60.0
MOST_INTERVAL_SECONDS = 3600.0
"""Checkpoints are not saved more often, nor more rarely, than this."""
MOST_INTERRUPTIONS = 10_000
"""A training with more than this at its upper bound does not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What is believed of interruptions, and how the training is saved against them.

    per_node_hour  of one spot node of each instance type, before this run
    shape          how many interruptions that belief counts for
    seen           interruptions in this run
    expected       how many `per_node_hour` had let expect by now
    saves          whether the training continues from a checkpoint; else it starts over
    save_seconds   how long one checkpoint takes to save
    on_demand      USD per hour of one node of each type on demand
    """

    per_node_hour: Mapping[str, float]
    shape: float = DEFAULT_SHAPE
    seen: int = 0
    expected: float = 0.0
    saves: bool = True
    save_seconds: float = DEFAULT_SAVE_SECONDS
    on_demand: Mapping[str, Usd] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(0 <= rate < math.inf for rate in self.per_node_hour.values()):
            raise ValueError("interruptions per hour must not be negative")
        if not (self.shape > 0 and self.save_seconds > 0 and self.seen >= 0 and self.expected >= 0):
            raise ValueError("shape and save_seconds must be more than 0, what was seen not negative")

    def with_seen(self, seen: int, expected: float) -> "Interruptions":
        """The belief after so many interruptions where so many were expected before the run."""
        return replace(self, seen=seen, expected=expected)

    def expected_in(self, config: Config, seconds: float) -> float:
        """How many interruptions the belief before the run expects in so many seconds; 0 on demand."""
        if not config.is_spot:
            return 0.0
        return self.per_node_hour.get(config.instance, DEFAULT_PER_NODE_HOUR) * config.nodes * seconds / HOUR

    def per_second(self, config: Config) -> float:
        """The expected rate of the whole configuration, after what this run has taught."""
        return self.expected_in(config, 1.0) * (self.shape + self.seen) / (self.shape + self.expected)

    def checkpoint_seconds(self, config: Config) -> float | None:
        """Training between two checkpoints: sqrt(2 x save_seconds / rate) (Young 1974); None on demand."""
        rate = self.per_second(config)
        if not self.saves or not config.is_spot:
            return None
        best = math.sqrt(2 * self.save_seconds / rate) if rate > 0 else MOST_INTERVAL_SECONDS
        return min(max(best, LEAST_INTERVAL_SECONDS), MOST_INTERVAL_SECONDS)

    def stretch(self, config: Config, restart_seconds: float, work_seconds: float = math.inf) -> float:
        """Expected time over undisturbed time, at least 1; at most 1e6.

        With exponential times between interruptions, a segment of t seconds with a restart of R takes on average
        exp(rate R) (exp(rate t) - 1) / rate; segments are the work between two checkpoints and the saving (Daly 2006).

        work_seconds  all of the work: one segment where nothing is saved
        """
        rate, interval = self.per_second(config), self.checkpoint_seconds(config)
        if rate <= 0:
            return 1.0 if interval is None else 1 + self.save_seconds / interval
        segment = work_seconds if interval is None else min(interval, work_seconds)
        if not math.isfinite(segment):
            return 1.0
        saving = 0.0 if interval is None or interval >= work_seconds else self.save_seconds
        grown = min(rate * restart_seconds, 50.0) + min(rate * (segment + saving), 50.0)
        if grown > 14:  # exp(14) is over a million
            return 1e6
        took = math.exp(rate * restart_seconds) * math.expm1(rate * (segment + saving)) / rate
        return max(took / max(segment, 1e-9), 1.0)

    def expected_seconds(self, config: Config, startup_seconds: float, work_seconds: float) -> float:
        """Expected time of a training that takes this long without interruptions."""
        return startup_seconds + work_seconds * self.stretch(config, startup_seconds, work_seconds)

    def loss_seconds(self, config: Config, restart_seconds: float, work_seconds: float) -> float:
        """The most that one interruption costs: a restart, and all of the work since the last checkpoint."""
        interval = self.checkpoint_seconds(config)
        return restart_seconds + (work_seconds if interval is None else interval + self.save_seconds)

    def worst_seconds(self, config: Config, startup_seconds: float, work_seconds: float, *, assurance: float) -> float:
        """The time that a training at the bound of its speed does not exceed with the probability `assurance`."""
        return self.worst(config, startup_seconds, work_seconds, assurance=assurance)[0]

    def worst(
        self, config: Config, startup_seconds: float, work_seconds: float, *, assurance: float
    ) -> tuple[float, int]:
        """That time, and its interruptions: the quantile of their number, each at its most."""
        interval = self.checkpoint_seconds(config)
        undisturbed = startup_seconds + work_seconds * (1 if interval is None else 1 + self.save_seconds / interval)
        loss, count = self.loss_seconds(config, startup_seconds, work_seconds), 0
        while True:
            seconds = undisturbed + count * loss
            if count > MOST_INTERRUPTIONS or seconds > 2 * MOST_SECONDS:
                return 2 * MOST_SECONDS, count
            more = self.quantile(config, seconds, assurance)
            if more <= count:
                return seconds, count
            count = more

    def chance_of_at_most(self, config: Config, seconds: float, count: int) -> float:
        """The probability of at most `count` interruptions in so many seconds."""
        if count < 0:
            return 0.0
        mean, events = self.expected_in(config, seconds), self.shape + self.seen
        weight = self.shape + self.expected
        return float(betainc(events, count + 1.0, weight / (weight + mean))) if mean > 0 else 1.0

    def quantile(self, config: Config, seconds: float, assurance: float) -> int:
        """The least number of interruptions that is not exceeded with the probability `assurance`."""
        low, high = -1, 0
        while self.chance_of_at_most(config, seconds, high) < assurance:
            low, high = high, 2 * high + 1
            if high > 2 * MOST_INTERRUPTIONS:
                return high
        while high - low > 1:
            middle = (low + high) // 2
            if self.chance_of_at_most(config, seconds, middle) >= assurance:
                high = middle
            else:
                low = middle
        return high
