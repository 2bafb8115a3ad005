"""What the user wants (the paper's Scenario Analyzer): fastest, cheapest or the knee, under a deadline and a budget."""

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import SpecError, nearest
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.units import Usd, duration_text, format_seconds, latency_text

Floats = NDArray[np.float64]


class Objective(StrEnum):
    """What is minimised, over search and run together."""

    TIME = "time"
    COST = "cost"
    KNEE = "knee"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A limit on the latency of served requests: its `percentile` must be at most `seconds`."""

    seconds: float
    percentile: int = 99

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise ValueError("a latency limit must be more than 0 s")
        if self.percentile not in (50, 95, 99):
            raise ValueError("the percentile of a latency limit must be 50, 95 or 99")

    def __str__(self) -> str:
        return f"p{self.percentile} within {self.seconds * 1000:g} ms"


def _objective(minimize: str) -> Objective:
    try:
        return Objective(minimize)
    except ValueError:
        near = nearest(str(minimize), tuple(Objective))
        allowed = ", ".join(Objective)
        problem = "is not one of the choices"
        raise SpecError(problem, field="goal: minimize", value=minimize, allowed=allowed, nearest=near) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An objective and the limits on search plus run.

    Scenario 1 is {minimize: time}; 2 is {minimize: cost, deadline}; 3 is {minimize: time, budget}; both limits may
    be set together. The knee minimises time x cost: the point where the ratio of efficiency to execution time is
    greatest (Eager, Zahorjan and Lazowska 1989).

    For serving, the work is a million requests: cheapest means most requests per dollar, fastest means most requests
    per second. The limits then apply to the search and its verification.

    slo           the latency limit for requests
    token_limits  limits on the answers of a language model, all of which must be kept
    rate          requests per second that must be held; a higher rate has no extra value

    Raises BadInput for values of the wrong type, ValueError for limits that are not above 0.
    """

    minimize: Objective
    deadline_seconds: float | None = None
    budget: Usd | None = None
    slo: Slo | None = None
    rate: float | None = None
    token_limits: tuple[ChatLimit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimize", _objective(self.minimize))  # "time" is accepted for Objective.TIME
        for name, unit in (("deadline_seconds", "seconds"), ("rate", "requests per second")):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, Real | None):
                raise SpecError("must be a number", field=f"goal: {name}", value=number, allowed=unit)
        for name, kind, form in (("budget", Usd, "mlcd.Usd('100')"), ("slo", Slo, "a Slo")):
            given = getattr(self, name)
            if not isinstance(given, kind | None):
                raise SpecError(f"must be a {kind.__name__}", field=f"goal: {name}", value=given, allowed=form)
        limits = self.token_limits
        if not isinstance(limits, tuple) or not all(isinstance(limit, ChatLimit) for limit in limits):
            allowed = "a tuple of mlcd.loadgen.chat.ChatLimit"
            raise SpecError("must be limits", field="goal: token_limits", value=limits, allowed=allowed)
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise ValueError("a deadline must be in the future")
        if self.budget is not None and self.budget.micros <= 0:
            raise ValueError("a budget must be more than $0")
        if self.rate is not None and not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError("a rate to hold must be more than 0 requests/s")

    @property
    def is_limited(self) -> bool:
        """Whether there is a deadline or a budget."""
        return self.deadline_seconds is not None or self.budget is not None

    @property
    def most_spent(self) -> str:
        """The most that may be spent, in words, for asking the user to confirm."""
        return f"at most {self.budget}" if self.budget is not None else "an amount that no budget limits"

    @property
    def unit(self) -> str:
        """The unit of `value`."""
        return {Objective.TIME: "s", Objective.COST: "USD", Objective.KNEE: "sqrt(s USD)"}[self.minimize]

    def value(self, seconds: float, usd: float) -> float:
        """How good an outcome is, smaller is better: seconds, dollars, or their geometric mean."""
        if self.minimize is Objective.TIME:
            return seconds
        if self.minimize is Objective.COST:
            return usd
        return float(np.sqrt(seconds * usd))

    def values(self, seconds: Floats, usd: Floats) -> Floats:
        """`value` for arrays of outcomes."""
        if self.minimize is Objective.TIME:
            return seconds
        return usd if self.minimize is Objective.COST else np.sqrt(seconds * usd)

    def scale(self, dollars_per_second: Floats) -> Floats:
        """The factor f with value = f x seconds, for deployments that cost `dollars_per_second`."""
        if self.minimize is Objective.TIME:
            return np.ones_like(dollars_per_second)
        if self.minimize is Objective.COST:
            return dollars_per_second
        return np.sqrt(dollars_per_second)

    def __str__(self) -> str:
        words = {Objective.TIME: "fastest", Objective.COST: "cheapest", Objective.KNEE: "knee of time and cost"}
        limits = []
        if self.slo is not None:
            limits.append(f"with {self.slo}")
        limits += [f"with {limit}" for limit in self.token_limits]
        if self.rate is not None:
            limits.append(f"at {self.rate:g} requests/s")
        if self.deadline_seconds is not None:
            limits.append(f"within {format_seconds(self.deadline_seconds)}")
        if self.budget is not None:
            limits.append(f"for at most {self.budget}")
        return " ".join([words[self.minimize], *limits])

    @property
    def serving_text(self) -> str:
        """`serving_words`, of a language model if there are limits on its answers."""
        return self.serving_words(tokens=bool(self.token_limits))

    def serving_words(self, *, tokens: bool) -> str:
        """For serving, in words: `most requests per dollar with p99 within 50 ms`; `tokens` are counted or requests."""
        unit = "tokens" if tokens else "requests"
        words = f"most {unit} per second" if self.minimize is Objective.TIME else f"most {unit} per dollar"
        if self.rate is not None:
            words = f"cheapest at {self.rate:g} requests/s"
        limits = [f"p{self.slo.percentile} within {latency_text(self.slo.seconds)}"] if self.slo is not None else []
        limits += [f"{x.metric} p{x.percentile} within {latency_text(x.seconds)}" for x in self.token_limits]
        text = f"{words} with {' and '.join(limits)}" if limits else words
        if self.budget is not None:
            text += f", search for at most {self.budget}"
        if self.deadline_seconds is not None:
            text += f", search within {format_seconds(self.deadline_seconds)}"
        return text


def goal_json(goal: Goal, *, text: str | None = None, serving: bool = False) -> dict[str, object]:
    """A goal in the form of every JSON output: budget in dollars, deadline in seconds, None if there is no limit.

    text     the goal in words; None leaves it out
    serving  whether to add the latency limit and the rate, which only serving has
    """
    form: dict[str, object] = {} if text is None else {"text": text}
    form["minimize"] = str(goal.minimize)
    if serving:
        form["slo_percentile"] = None if goal.slo is None else goal.slo.percentile
        form["slo_seconds"] = None if goal.slo is None else goal.slo.seconds
        form["requests_per_second"] = goal.rate
    form["budget_usd"] = None if goal.budget is None else goal.budget.dollars
    form["deadline_seconds"] = goal.deadline_seconds
    return form


def goal_fields(goal: Goal) -> dict[str, object]:
    """A goal in the form of a job file: the `goal` section, without limits that are not set."""
    fields: dict[str, object] = {"minimize": str(goal.minimize)}
    if goal.deadline_seconds is not None:
        fields["deadline"] = duration_text(goal.deadline_seconds)
    if goal.budget is not None:
        fields["budget"] = f"{goal.budget.exact:f} USD"
    if goal.slo is not None:
        fields["slo"] = {f"p{goal.slo.percentile}": duration_text(goal.slo.seconds)}
    if goal.token_limits:
        fields["slo"] = {limit.name: duration_text(limit.seconds) for limit in goal.token_limits}
    if goal.rate is not None:
        fields["rate"] = goal.rate
    return fields
