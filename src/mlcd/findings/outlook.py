"""What was known of configurations that were not tried: refused by the ledger, ruled out, or predicted by the model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcd.deciders.search import MODEL_TRIALS
from mlcd.ledger import Ledger
from mlcd.models.speed import speed_model
from mlcd.problem import Problem
from mlcd.run.findings import Z95, Receipt, Untried, UntriedState
from mlcd.run.grid import map_configs
from mlcd.run.run import SearchRun
from mlcd.search.candidates import open_rows, rising_rows
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.space import Config
from mlcd.trial.plan import Plan, Remaining
from mlcd.trial.trial import FailureKind, Measurement
from mlcd.units import MOST_SECONDS, Usd, format_seconds

MOST_SKIPPED = 4
"""Types that are named when trials of many no longer fit."""
MOST_PREDICTED = 3_000
"""Configurations of a space up to which the model is asked: a page must not wait for it."""


def untried(run: SearchRun, remaining: Problem, paid: Receipt, *, guarded: bool) -> tuple[Untried, ...]:
    """An entry for each of at most 240 untried configurations, those of tried types first.

    remaining  the problem with the work that remains after the trials
    guarded    whether every trial left room for training on the incumbent
    """
    history = run.history
    chosen = run.choice.config if run.choice else None
    wanted = [c for c in map_configs(run) if c not in history.tried and c != chosen]
    if not wanted:
        return ()
    ledger = Ledger(problem=remaining, history=history, spent=paid.sunk_usd, elapsed_seconds=paid.sunk_seconds)
    allowed = ledger.remaining().allowed if guarded else np.ones(len(remaining.space), dtype=bool)
    ruled_out = _ruled_out(run, remaining)
    predicted = _predicted(run, remaining)
    found = []
    for config in wanted:
        row = remaining.space.index[config]
        expected = predicted.get(config)
        seconds, usd = (None, None) if expected is None else (expected.seconds, expected.usd)
        if not allowed[row]:
            state, text = UntriedState.REFUSED, refusal_text(ledger, row)
        elif row in ruled_out:
            state, text = UntriedState.RULED_OUT, ruled_out[row]
        elif seconds is not None and usd is not None:
            over = _over(paid, seconds, usd)
            state = UntriedState.OVER_LIMIT if over else UntriedState.PREDICTED
            text = f"not tried; the model expects {expected}{over}"
        else:
            state, text = UntriedState.NOT_TRIED, "not tried" if run.status.is_final else "not tried yet"
        found.append(
            Untried(
                config=config,
                state=state,
                text=text,
                seconds=seconds,
                usd=usd,
                samples_per_second=None if expected is None else expected.samples_per_second,
                deviation=None if expected is None else expected.deviation,
            )
        )
    return tuple(found)


def refusal_text(ledger: Ledger, row: int) -> str:
    """`its trial costs up to $7.96, and $5.10 is free besides $40 kept to train on ...`: the limits that refuse."""
    problem, reserve = ledger.problem, ledger.incumbent()
    usd, seconds = Usd(int(problem.worst_trial_micros[row])), float(problem.worst_trial_seconds[row])
    free_usd, free_seconds = ledger.usd_left, ledger.seconds_left
    if reserve is not None:
        free_usd = None if free_usd is None else free_usd - reserve.worst_usd
        free_seconds = None if free_seconds is None else free_seconds - reserve.worst_seconds
    parts = []
    if free_usd is not None and usd > free_usd:
        free = max(free_usd, Usd(0))
        than = f"{usd - free} more than is free" if str(usd) == str(free) else f"and {free} is free"
        kept = kept_text(problem, reserve, lambda plan: str(plan.worst_usd))
        parts.append(f"its {problem.trial_noun} costs up to {usd}, {than}{kept}")
    if free_seconds is not None and seconds > free_seconds:
        left = format_seconds(max(free_seconds, 0.0))
        kept = kept_text(problem, reserve, lambda plan: format_seconds(plan.worst_seconds))
        parts.append(f"its {problem.trial_noun} takes up to {format_seconds(seconds)}, and {left} is free{kept}")
    return "; ".join(parts) or f"its {problem.trial_noun} does not fit the limits"


def kept_text(problem: Problem, reserve: Plan | None, amount: Callable[[Plan], str]) -> str:
    """` besides $42.70 kept to train on 9 x g4dn.xlarge`; "" while nothing is kept."""
    use = "train on" if problem.verify_seconds is None else "verify"
    return "" if reserve is None else f" besides {amount(reserve)} kept to {use} {reserve.config}"


def broken_limits(paid: Receipt, seconds: float, usd: Usd) -> tuple[str, ...]:
    """Which limits what is predicted does not fit, of "budget" and "deadline", by what is left for the run."""
    over = paid.run_cap_usd is not None and usd > paid.run_cap_usd
    late = paid.run_cap_seconds is not None and seconds > paid.run_cap_seconds
    return (*(["budget"] if over else []), *(["deadline"] if late else []))


def _over(paid: Receipt, seconds: float, usd: Usd) -> str:
    """`, over the $55.81 left`, `, later than the 7 h left`, or both; "" if what is predicted fits what is left."""
    broken, parts = broken_limits(paid, seconds, usd), []
    if "budget" in broken and paid.run_cap_usd is not None:
        parts.append(f"over the {max(paid.run_cap_usd, Usd(0))} left")
    if "deadline" in broken and paid.run_cap_seconds is not None:
        parts.append(f"later than the {format_seconds(max(paid.run_cap_seconds, 0.0))} left")
    return f", {' and '.join(parts)}" if parts else ""


def skipped_texts(ledger: Ledger, refused: NDArray[np.bool_]) -> tuple[str, ...]:
    """`12 x p3.2xlarge and 30 more of its type, whose trials cost no less: its trial ...`: of each type.

    Each names the configuration with the cheapest trial; of many types, MOST_SKIPPED and how many more.
    """
    problem, tried = ledger.problem, ledger.history.tried
    types: dict[object, list[int]] = {}
    for row in np.flatnonzero(refused).tolist():
        config = problem.space.configs[row]
        if config not in tried:
            types.setdefault(config.as_dict().get("instance"), []).append(row)
    texts = []
    for rows in list(types.values())[:MOST_SKIPPED]:
        cheapest = min(rows, key=lambda row: int(problem.worst_trial_micros[row]))
        more = more_text(len(rows) - 1)
        texts.append(f"{problem.space.configs[cheapest]}{more}: {refusal_text(ledger, cheapest)}")
    if len(types) > MOST_SKIPPED:
        texts.append(f"{len(types) - MOST_SKIPPED} more types for the same reason")
    return tuple(texts)


def more_text(count: int) -> str:
    """What follows the configuration with the cheapest trial, where `count` others of its type are meant too."""
    return f" and {count} more of its type, whose trials cost no less" if count else ""


def _ruled_out(run: SearchRun, problem: Problem) -> Mapping[int, str]:
    """Rows that a failed trial rules out, or a speed that falls with the nodes, and which trial that was."""
    everything = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    found: dict[int, str] = {}
    failed = [step for step in run.trials if not isinstance(step.trial, Measurement)]
    last = {FailureKind.OUT_OF_MEMORY: "ran out of memory", FailureKind.CAPACITY: "found no capacity"}
    if failed:
        closed = ~open_rows(problem, run.history, everything, memory="off")
        for row in np.flatnonzero(closed).tolist():
            config = problem.space.configs[row]
            kind_of = config.as_dict().get("instance")
            why = next((s for s in reversed(failed) if s.config.as_dict().get("instance") == kind_of), failed[-1])
            kind = getattr(why.trial, "kind", FailureKind.ERROR)
            found[row] = f"ruled out: trial {why.number}, {why.trial.config}, {last.get(kind, 'failed')}"
    if run.strategy.split(":")[0] == "heterbo":
        for row in np.flatnonzero(~rising_rows(problem, run.history, HeterBOSettings())).tolist():
            found.setdefault(row, "ruled out: fewer nodes of this type were already past its peak")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """What the model says of the whole training on a configuration; `deviation` is of the speed's logarithm."""

    seconds: float
    usd: Usd
    samples_per_second: float
    deviation: float

    def __str__(self) -> str:
        factor = math.exp(Z95 * self.deviation)
        low, high = format_seconds(self.seconds / factor), format_seconds(self.seconds * factor)
        return f"{format_seconds(self.seconds)} (95%: {low} to {high}) and {self.usd}"


def _predicted(run: SearchRun, problem: Problem) -> Mapping[Config, _Expected]:
    """What is expected of the whole training on each configuration, if the model can be asked."""
    if (
        problem.verify_seconds is not None
        or not problem.work_known
        or len(problem.space) > MOST_PREDICTED
        or len(run.history.measured) > MODEL_TRIALS
    ):
        return {}
    try:
        with np.errstate(all="ignore"):  # speeds may be of any size: what is not a number is left out below
            model = speed_model(problem, run.history)
    except (ArithmeticError, ValueError):  # no posterior exists, as of speeds beyond what floats can hold
        return {}
    if model is None:
        return {}
    found = {}
    for row, config in enumerate(problem.space):
        seconds = float(math.exp(min(model.log_seconds[row], 60.0)))
        deviation = math.sqrt(max(float(model.variance[row]), 0.0))
        if not seconds * math.exp(min(Z95 * deviation, 60.0)) < MOST_SECONDS:
            continue
        found[config] = _Expected(
            seconds=seconds,
            usd=problem.price(config).for_seconds(seconds) + problem.move_to(config).usd,
            samples_per_second=math.exp(min(float(model.log_speed[row]), 60.0)),
            deviation=deviation,
        )
    return found
