"""A finite space: every configuration that may be chosen, and its numeric encoding for models."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.space.config import UNSET, Config, Value

Floats = NDArray[np.float64]

RISES, FALLS = "rises", "falls"
MEMORY = (RISES, FALLS)
"""How the memory that a worker needs may change along a setting's values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """What a node trains with: `count` accelerators with `memory_gib` each, or the node itself as one worker.

    accelerator  its name; "" where the node's processors train
    tflops       peak of one worker by its data sheet; 0 if that is not known
    network_gbps of the node; 0 if that is not known
    """

    count: int = 1
    memory_gib: float
    accelerator: str = ""
    tflops: float = 0.0
    network_gbps: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.memory_gib < math.inf:
            raise ValueError("a node needs at least one worker, and a worker more than 0 GiB")
        if not (0 <= self.tflops < math.inf and 0 <= self.network_gbps < math.inf):
            raise ValueError("a worker's peak and its node's network must not be negative")


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One thing that can be chosen.

    A *choice* has options described by feature vectors of equal length (possibly empty). A *count* has numbers, and
    models use their logarithm. `log2_sizes` of a choice is the logarithm of a quantity that adds up over the counts,
    such as a node's memory. `kinds` groups the options of one kind, such as all with the same accelerator. `workers`
    says what a node of each option trains with, where that is known.

    A *setting* is a choice of the program that runs, not of the machine: models expect its effect on every machine.
    `memory` says how the memory that a worker needs changes along a setting's values, where that is known: `rises` or
    `falls`. Numbers and flags are in their own order, other values in the order of `values`.

    A knob with `same_speed` changes what a machine costs, never how fast it is: models do not see it.
    """

    name: str
    values: tuple[Value, ...]
    features: Mapping[Any, tuple[float, ...]] | None = None
    log2_sizes: Mapping[Any, float] | None = None
    kinds: Mapping[Any, str] | None = None
    workers: Mapping[Any, Workers] | None = None
    is_setting: bool = False
    memory: str = ""
    same_speed: bool = False

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"knob {self.name!r} has no values")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"knob {self.name!r} has a duplicate value")
        if self.features is None:
            if not all(isinstance(v, int | float) and v > 0 for v in self.values):
                raise ValueError(f"knob {self.name!r}: a count needs positive numbers")
        elif len({len(self.features[v]) for v in self.values}) != 1:
            raise ValueError(f"knob {self.name!r}: feature vectors differ in length")
        if self.is_setting and self.features is None:
            raise ValueError(f"knob {self.name!r}: a setting needs features")
        if self.memory not in ("", *MEMORY):
            raise ValueError(f"knob {self.name!r}: memory must be {' or '.join(MEMORY)}")

    def memory_rank(self, value: Value) -> float | None:
        """A number that is larger where a worker needs more memory; None where the knob does not say."""
        if not self.memory or value == UNSET:
            return None
        plain = [each for each in self.values if each != UNSET]
        is_number = not any(isinstance(each, str) for each in plain)
        rank = float(value) if is_number else float(plain.index(value))
        return rank if self.memory == RISES else -rank

    @property
    def is_size(self) -> bool:
        """Whether it is a setting of positive numbers along which memory rises, such as a micro-batch."""
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in self.values)
        return self.is_setting and self.memory == RISES and numbers

    @property
    def is_choice(self) -> bool:
        """Whether options are distinguished by name and features, not by size."""
        return self.features is not None


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The space as numbers, one row per configuration.

    identity (N,)   the row's combination of choices: rows of equal identity are on one curve over the counts
    machine  (N,)   its combination of choices without the settings; `identity` where there are none
    features (N, d) the machine's features, each column scaled to mean 0 and deviation 1, constant columns dropped
    settings (N, s) the settings' features, likewise; s = 0 where there are none
    counts   (N, c) log2 of each count, unscaled: one unit is a doubling
    totals   (N, t) log2 of the total over all nodes (memory), a column for each choice that states its size
    kind     (N,) the row's kind of machine; 0 if there are no kinds
    """

    identity: NDArray[np.intp]
    machine: NDArray[np.intp]
    features: Floats
    settings: Floats
    counts: Floats
    totals: Floats
    kind: NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The workers of each configuration, one row per configuration.

    count        (N,) workers of all nodes together
    gib          (N,) memory of each worker
    accelerated  (N,) whether accelerators train, and not the nodes' processors
    split        (N,) the share of a step's samples that a worker holds: 1 / workers; where the batch is a knob, times
                 the batch over the smallest one; with settings that are positive numbers and raise the memory (a
                 micro-batch), times each over its smallest value
    needs        (N, m) settings: larger where a worker needs more memory, a column for each setting that says so
    others       (N,) the row's combination of the settings of which nothing is known
    group        (N,) the row's combination of the settings that `split` does not count
    """

    count: Floats
    gib: Floats
    accelerated: NDArray[np.bool_]
    split: Floats
    needs: Floats
    others: NDArray[np.intp]
    group: NDArray[np.intp]


@dataclass(frozen=True)
class Space:
    """The configurations in a fixed order. The space need not be a full product: counts may differ by instance type."""

    knobs: tuple[Knob, ...]
    configs: tuple[Config, ...]
    index: Mapping[Config, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.configs:
            raise ValueError("the space is empty")
        index = {config: i for i, config in enumerate(self.configs)}
        if len(index) != len(self.configs):
            raise ValueError("the space has a duplicate configuration")
        names = tuple(knob.name for knob in self.knobs)
        allowed = {knob.name: set(knob.values) for knob in self.knobs}
        for config in self.configs:
            if tuple(name for name, _ in config.values) != names:
                raise ValueError(f"{config} does not name the knobs {', '.join(names)} in order")
            if any(value not in allowed[name] for name, value in config.values):
                raise ValueError(f"{config} has a value that its knob does not offer")
        object.__setattr__(self, "index", index)

    def __len__(self) -> int:
        return len(self.configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self.configs)

    def __contains__(self, config: object) -> bool:
        return config in self.index

    @cached_property
    def encoding(self) -> Encoding:
        """Computed once; see Encoding."""
        choices = [knob for knob in self.knobs if knob.is_choice and not knob.same_speed]
        counts = [knob for knob in self.knobs if not knob.is_choice]
        machine = [knob for knob in choices if not knob.is_setting]
        sizes = np.array([[float(c[k.name]) for k in counts] for c in self.configs], dtype=float)
        log_counts = np.log2(sizes.reshape(len(self.configs), len(counts)))
        totals = [
            np.array([knob.log2_sizes[c[knob.name]] for c in self.configs]) + log_counts.sum(axis=1)
            for knob in choices
            if knob.log2_sizes is not None
        ]
        return Encoding(
            identity=self._combinations(choices),
            machine=self._combinations(machine),
            features=self._features(machine),
            settings=self._features([knob for knob in choices if knob.is_setting]),
            counts=log_counts,
            totals=np.stack(totals, axis=1) if totals else np.zeros((len(self.configs), 0)),
            kind=self._kind(choices),
        )

    @property
    def settings(self) -> tuple[Knob, ...]:
        """The knobs that are settings of the program."""
        return tuple(knob for knob in self.knobs if knob.is_setting)

    def _combinations(self, knobs: Sequence[Knob]) -> NDArray[np.intp]:
        """(N,) a number for each combination of these knobs' values, in the order in which they occur."""
        keys: dict[tuple[Value, ...], int] = {}
        rows = [tuple(config[knob.name] for knob in knobs) for config in self.configs]
        return np.array([keys.setdefault(row, len(keys)) for row in rows], dtype=np.intp)

    def _features(self, knobs: Sequence[Knob]) -> Floats:
        """(N, d) the features of these knobs, scaled, without columns that do not vary."""
        blocks = [
            np.array([knob.features[config[knob.name]] for config in self.configs], dtype=float)
            for knob in knobs
            if knob.features is not None
        ]
        raw = np.hstack(blocks) if blocks else np.zeros((len(self.configs), 0))
        spread = raw.std(axis=0)
        varying = spread > 1e-12
        return np.asarray((raw[:, varying] - raw[:, varying].mean(axis=0)) / spread[varying])

    @cached_property
    def worker_memory(self) -> WorkerMemory | None:
        """Computed once; None if the workers of the instance types are not known."""
        rows = self.machines
        if rows is None:
            return None
        count = np.array([float(w.count * c.nodes) for w, c in zip(rows, self.configs, strict=True)])
        has_batch = any(knob.name == "batch" for knob in self.knobs)
        batch = np.array([float(config["batch"]) if has_batch else 1.0 for config in self.configs])
        telling = [knob for knob in self.settings if knob.memory and UNSET not in knob.values]
        needs = [[knob.memory_rank(config[knob.name]) for knob in telling] for config in self.configs]
        sizes = [knob for knob in telling if knob.is_size]
        size = np.ones(len(self.configs))
        for knob in sizes:
            values = np.array([float(config[knob.name]) for config in self.configs])
            size *= values / values.min()
        return WorkerMemory(
            needs=np.array(needs, dtype=float).reshape(len(self.configs), len(telling)),
            others=self._combinations([knob for knob in self.settings if knob not in telling]),
            group=self._combinations([knob for knob in self.settings if knob not in sizes]),
            count=count,
            gib=np.array([w.memory_gib for w in rows]),
            accelerated=np.array([w.accelerator != "" for w in rows]),
            split=size * batch / batch.min() / count,
        )

    @cached_property
    def node_tflops(self) -> Floats | None:
        """(N,) peak of one node by its data sheet; None if one is not known, or no node has accelerators.

        Processors alone differ in peak as they do in price, and a training hardly reaches it.
        """
        rows = self.machines
        if rows is None or not all(w.tflops for w in rows) or not any(w.accelerator for w in rows):
            return None
        return np.array([w.count * w.tflops for w in rows])

    @cached_property
    def machines(self) -> list[Workers] | None:
        """The workers of a node of each configuration; None if they are not known."""
        knob = next((knob for knob in self.knobs if knob.workers is not None), None)
        if knob is None or knob.workers is None:
            return None
        return [knob.workers[config[knob.name]] for config in self.configs]

    def _kind(self, choices: list[Knob]) -> NDArray[np.intp]:
        by_kind = [(knob.name, knob.kinds) for knob in choices if knob.kinds is not None]
        seen: dict[tuple[str, ...], int] = {}
        rows = [tuple(kinds[config[name]] for name, kinds in by_kind) for config in self.configs]
        return np.array([seen.setdefault(row, len(seen)) for row in rows], dtype=np.intp)
