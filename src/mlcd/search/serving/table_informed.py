"""The base class of strategies that know how other models were served."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcd.known.match import matching_rows
from mlcd.known.tables import Known, TargetModel
from mlcd.problem import Problem
from mlcd.search.strategy import MeasuredStrategy, at_least
from mlcd.space import Space
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import FailureKind, History

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Ranks = NDArray[np.intp]
Need = Literal["known", "target"]
Frozen = TypeVar("Frozen")

MORE_MEMORY = ("batch", "replicas")
"""Knobs whose larger values need more memory, all else equal."""
LESS_MEMORY = ("share", "gpu_share", "GPU_SHARE", "sms", "memory", "memory_gib", "gpu_memory")
"""Knobs whose smaller values leave less memory, all else equal."""


@dataclass(frozen=True, kw_only=True)
class TableInformedStrategy(MeasuredStrategy):
    """A strategy that is given tables of other models, and perhaps the operators of the model to serve.

    `known` and `target` are not options: the caller passes them (`registry.strategy(text, known=, target=)`). `needs`
    names those that the strategy requires; `needs_operators` means that the tables must include operators, or, with
    `takes_sizes`, the sizes of language models. Makes at most `steps` trials; 0 uses the problem's limit.
    """

    given: ClassVar[tuple[Need, ...]] = ("known", "target")
    needs: ClassVar[frozenset[Need]] = frozenset({"known"})
    needs_operators: ClassVar[bool] = False
    takes_sizes: ClassVar[bool] = False

    known: Known | None = None
    target: TargetModel | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)

    @cached_property
    def tables(self) -> Known:
        """The tables. Raises ValueError if the strategy was created without them."""
        if self.known is None:
            raise ValueError(f"{self.name} was created without tables of other models")
        return self.known

    @cached_property
    def model(self) -> TargetModel:
        """The model to serve. Raises ValueError if the strategy was created without it."""
        if self.target is None:
            raise ValueError(f"{self.name} was created without the model's operators")
        return self.target

    def rows(self, problem: Problem) -> NDArray[np.intp]:
        """(N,) for every configuration of the problem, the matching row of `known.configs`."""
        return known_rows(self.tables, problem.space)

    def trials_left(self, problem: Problem, history: History) -> int:
        """How many more may be made."""
        return (self.steps or problem.max_trials) - len(history.tried)


def open_rows(problem: Problem, history: History, remaining: Remaining) -> Mask:
    """(N,) whether each configuration is allowed by the ledger, untried, and not ruled out by a failure.

    Running out of memory rules out every configuration that needs as much and has no more: MORE_MEMORY knobs at least
    as large, LESS_MEMORY knobs at most as large, and all other knobs equal.
    """
    mask = remaining.allowed.copy()
    for config in history.tried:
        mask[problem.space.index[config]] = False
    exhausted = [f.config for f in history.failures if f.kind is FailureKind.OUT_OF_MEMORY]
    if exhausted:
        more, less, alike = _ranks(ById(problem.space))
        for config in exhausted:
            row = problem.space.index[config]
            hopeless = (more >= more[row]).all(axis=1) & (less <= less[row]).all(axis=1)
            mask &= ~(hopeless & (alike == alike[row]).all(axis=1))
    return mask


class ById(Generic[Frozen]):
    """A large frozen value as a cache key: by identity, since comparing its content would take longer than it saves."""

    __slots__ = ("value",)

    def __init__(self, value: Frozen) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self.value is other.value


@lru_cache(maxsize=8)
def _ranks(space: ById[Space]) -> tuple[Ranks, Ranks, Ranks]:
    """(N, .) each: the ranks of MORE_MEMORY knobs, of LESS_MEMORY knobs, and of all others."""
    columns: tuple[list[list[int]], list[list[int]], list[list[int]]] = ([], [], [])
    for knob in space.value.knobs:
        which = 2 if knob.is_choice else 0 if knob.name in MORE_MEMORY else 1 if knob.name in LESS_MEMORY else 2
        order = list(knob.values) if knob.is_choice else sorted(knob.values, key=float)
        place = {value: at for at, value in enumerate(order)}
        columns[which].append([place[config[knob.name]] for config in space.value.configs])
    size = len(space.value)
    more, less, alike = (np.array(found, dtype=np.intp).reshape(len(found), size).T for found in columns)
    return more, less, alike


def known_rows(known: Known, space: Space) -> NDArray[np.intp]:
    """(N,) for every configuration of the space, the matching row of `known.configs`."""
    return _matching(known, ById(space))


@lru_cache(maxsize=64)
def _matching(known: Known, space: ById[Space]) -> NDArray[np.intp]:
    return matching_rows(known.configs, space.value.configs)
