"""Which known models a model resembles by its operators, and with what confidence."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mlcd.known.tables import Known, OperatorUse, TargetModel

MOST_OPERATORS = 16
"""How many of the longest-running operators are listed."""
NEAREST_MODELS = 3
"""How many of the nearest models are listed."""
SURE_CONFIDENCE, LIKELY_CONFIDENCE = 0.9, 0.6
"""At or above these, a resemblance is called sure or likely; below, it is a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resemblance:
    """What the offline data show about a model before any trial.

    nearest  known models and their similarity: the cosine of the two vectors of operators' time shares, in [0, 1]
    covered  the share of the model's time in operators that were measured
    unseen   names of its operators that were never measured, the longest-running first
    source   description of the offline data
    operators  (name, share of the model's time, whether it was measured before), the longest-running first; at most
             MOST_OPERATORS. Earlier versions stored none
    """

    nearest: tuple[tuple[str, float], ...]
    covered: float
    unseen: tuple[str, ...]
    source: str
    operators: tuple[tuple[str, float, bool], ...] = ()

    @property
    def confidence(self) -> float:
        """In [0, 1]: similarity of the nearest model x share of the model's time in measured operators."""
        return self.covered * max((alike for _, alike in self.nearest), default=0.0)

    @property
    def word(self) -> str:
        """`sure`, `likely` or `a guess`."""
        if self.confidence >= SURE_CONFIDENCE:
            return "sure"
        return "likely" if self.confidence >= LIKELY_CONFIDENCE else "a guess"


def resemblance(known: Known, target: TargetModel) -> Resemblance:
    """What `known` shows about `target`; an entry of `target` itself counts like any other."""
    own = _shares(target.operators)
    seen = {use.operator for model in known.models for use in model.target.operators}
    seen |= {curve.operator for curve in known.curves}
    alike = sorted(
        ((model.name, _cosine(own, _shares(model.target.operators))) for model in known.models),
        key=lambda pair: (-pair[1], pair[0]),
    )
    total = sum(own.values())
    return Resemblance(
        nearest=tuple(alike[:NEAREST_MODELS]),
        covered=sum(share for name, share in own.items() if name in seen) / total if total > 0 else 0.0,
        unseen=tuple(sorted((name for name in own if name not in seen), key=lambda name: (-own[name], name))),
        source=known.source,
        operators=tuple(
            (name, share / total if total > 0 else 0.0, name in seen)
            for name, share in sorted(own.items(), key=lambda item: (-item[1], item[0]))[:MOST_OPERATORS]
        ),
    )


def _shares(operators: Iterable[OperatorUse]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for use in operators:
        shares[use.operator] = shares.get(use.operator, 0.0) + use.share
    return shares


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    lengths = math.hypot(*one.values()) * math.hypot(*other.values())
    return sum(share * other.get(name, 0.0) for name, share in one.items()) / lengths if lengths > 0 else 0.0
