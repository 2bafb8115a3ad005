"""Errors of each mode's forecast against the truth, and the medians over models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial as partial_
from statistics import fmean, median

from mlcd.bench.scavenger.descriptions import DESCRIPTIONS
from mlcd.bench.scavenger.truth import ClusterChoice, ScavengerTruth, usd
from mlcd.errors import BadInput, nearest
from mlcd.models.tradeoff import depth, knee
from papers.scavenger_models.forecast import Forecast, full, goodput, known_job, partial, without_run
from papers.scavenger_models.observed import Observed, observe_all, observe_full, observe_nothing, observe_partial
from papers.scavenger_models.planner import RESTART_SECONDS, money_worth, receding_horizon, time_worth

MODES = ("full", "partial", "universal", "goodput")
EXTRA_MODES = ("universal-blind",)
TRIAL_STEPS = 30
"""Steps of a brief run; they count as training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model and mode. Errors are means of |predicted/true - 1| over untried configurations."""

    model: str
    mode: str
    step_mape: float
    iterations_mape: float
    time_mape: float
    cost_mape: float
    regret_time: float
    regret_cost: float
    regret_knee: float
    overhead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Medians over models."""

    mode: str
    median_time_mape: float
    median_cost_mape: float
    median_regret_time: float
    median_regret_cost: float
    median_overhead: float


def score(
    truths: Mapping[str, ScavengerTruth], *, models: Sequence[str] = (), modes: Sequence[str] = MODES
) -> list[Row]:
    """One row per model and mode; `models` limits the rows, while all models inform the universal mode."""
    for wanted, known, what in ((models, truths, "model"), (modes, (*MODES, *EXTRA_MODES), "mode")):
        for name in wanted:
            if name not in known:
                hint = nearest(name, list(known))
                raise BadInput(
                    f"no {what} {name!r}; there are {', '.join(known)}" + (f"; did you mean {hint}?" if hint else "")
                )
    lent = (
        {name: known_job(observe_all(t), DESCRIPTIONS.get(name)) for name, t in truths.items()}
        if any(mode.startswith("universal") for mode in modes)
        else {}
    )
    rows = []
    for name in models or truths:
        truth = truths[name]
        others = [job for other, job in lent.items() if other != name]
        for mode in modes:
            if mode in ("universal", "universal-blind"):
                described = DESCRIPTIONS.get(name) if mode == "universal" else None
                rows.append(
                    _row(
                        truth, mode, observe_nothing(truth), partial_(without_run, known=others, description=described)
                    )
                )
            elif mode == "goodput":
                rows.append(_row(truth, mode, observe_partial(truth), goodput))
            else:
                see, model = (observe_full, full) if mode == "full" else (observe_partial, partial)
                rows.append(_row(truth, mode, see(truth), model))
    return rows


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Medians over models, one line per mode."""
    found = []
    for mode in dict.fromkeys(row.mode for row in rows):
        of = [row for row in rows if row.mode == mode]
        found.append(
            Summary(
                mode=mode,
                median_time_mape=median(r.time_mape for r in of),
                median_cost_mape=median(r.cost_mape for r in of),
                median_regret_time=median(r.regret_time for r in of),
                median_regret_cost=median(r.regret_cost for r in of),
                median_overhead=median(r.overhead for r in of),
            )
        )
    return found


def as_json(rows: Sequence[Row]) -> dict[str, object]:
    """Rows and summary, as `mlcd bench scavenger -o json` prints them."""
    return {"rows": [asdict(row) for row in rows], "summary": [asdict(line) for line in summarise(rows)]}


def _row(truth: ScavengerTruth, mode: str, seen: Observed, model: Callable[[Observed], Forecast]) -> Row:
    forecast = model(seen)
    open_choices = [choice for choice in truth.choices if choice not in seen.tried]
    errors = [_errors(truth, forecast, choice) for choice in open_choices]
    quickest = min(truth.choices, key=truth.seconds)
    cheapest = min(truth.choices, key=truth.usd)
    if mode == "goodput":
        by_time = receding_horizon(truth, seen, model, time_worth)
        by_money = receding_horizon(truth, seen, model, money_worth)
        seconds, dollars = by_time.worth, by_money.worth
        restarts = by_time.restarts_worth
    else:
        seconds = truth.seconds(min(truth.choices, key=forecast.seconds))
        dollars = truth.usd(min(truth.choices, key=lambda c: usd(c, forecast.seconds(c))))
        restarts = 0.0
    return Row(
        model=truth.name,
        mode=mode,
        step_mape=fmean(step for step, _, _ in errors),
        iterations_mape=fmean(iterations for _, iterations, _ in errors),
        time_mape=fmean(time for _, _, time in errors),
        cost_mape=fmean(time for _, _, time in errors),  # the price is hourly: the same relative error
        regret_time=_whole(seconds / truth.seconds(quickest) - 1),
        regret_cost=_whole(dollars / truth.usd(cheapest) - 1),
        regret_knee=_whole(_knee_regret(truth, forecast)),
        overhead=(_trial_loss(truth, seen.tried, seconds) + restarts) / seconds,
    )


def _whole(regret: float) -> float:
    """Rounded: the best choice has a regret of 0, not of -2e-16."""
    return round(regret, 9) + 0.0


def _errors(truth: ScavengerTruth, forecast: Forecast, choice: ClusterChoice) -> tuple[float, float, float]:
    return (
        abs(forecast.step_seconds[choice] / truth.step_seconds(choice) - 1),
        abs(forecast.iterations[choice.batch] / truth.iterations[choice.batch] - 1),
        abs(forecast.seconds(choice) / truth.seconds(choice) - 1),
    )


def _knee_regret(truth: ScavengerTruth, forecast: Forecast) -> float:
    """How much less deep below the chord the predicted knee is than the true one, as a share of the latter's depth."""
    points = [(truth.seconds(c), truth.usd(c)) for c in truth.choices]
    guessed = [(forecast.seconds(c), usd(c, forecast.seconds(c))) for c in truth.choices]
    depths = depth(points)
    best = depths[knee(points)]
    return (best - depths[knee(guessed)]) / best if best > 0 else 0.0


def _trial_loss(truth: ScavengerTruth, tried: Sequence[ClusterChoice], seconds: float) -> float:
    """Seconds of the brief runs beyond the time of their steps in the chosen training of `seconds`."""
    lost = 0.0
    for choice in tried:
        share = TRIAL_STEPS / truth.iterations[choice.batch]
        lost += RESTART_SECONDS + TRIAL_STEPS * truth.step_seconds(choice) - share * seconds
    return lost
