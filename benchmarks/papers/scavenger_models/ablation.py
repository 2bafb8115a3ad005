"""What each part of the models is worth: one change at a time, errors over the untried configurations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from mlcd.bench.scavenger.descriptions import DESCRIPTIONS
from mlcd.bench.scavenger.truth import GPUS_PER_NODE, ScavengerTruth
from mlcd.models import convergence, parallel
from mlcd.models.convergence import WorkUnit
from mlcd.models.parallel import Law
from papers.scavenger_models.forecast import Forecast, full, known_job, partial, without_run
from papers.scavenger_models.observed import (
    Observed,
    corners_and_centre,
    observe,
    observe_all,
    observe_full,
    observe_nothing,
    observe_partial,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """The mean error of one model under one change, as a fraction. `of` says of what: step, iterations or time."""

    model: str
    change: str
    of: str
    error: float


def ablations(truths: Mapping[str, ScavengerTruth]) -> list[Ablation]:
    """Every change on every model."""
    found = []
    lent = {name: known_job(observe_all(t), DESCRIPTIONS.get(name)) for name, t in truths.items()}
    for name, truth in truths.items():
        others = [job for other, job in lent.items() if other != name]
        results: list[tuple[str, str, float]] = []
        for law in Law:
            results.append((f"partial, {law}", "step", _step_error(truth, observe_partial(truth), law)))
            results.append((f"full without bending, {law}", "step", _step_error(truth, observe_full(truth), law)))
        for change, model in _LAWS.items():
            results.append((change, "iterations", _iterations_error(truth, observe_full(truth), model)))
        seen = observe_full(truth)
        results.append(("full", "time", _time_error(truth, seen, full(seen))))
        results.append(("full, true iterations", "time", _time_error(truth, seen, _true_iterations(truth, full(seen)))))
        results.append(("full, true step times", "time", _time_error(truth, seen, _true_steps(truth, full(seen)))))
        results.append(("full, every other batch known", "time", _leave_one_out(truth)))
        few = observe_partial(truth)
        results.append(("partial", "time", _time_error(truth, few, partial(few))))
        none = observe_nothing(truth)
        described = without_run(none, others, DESCRIPTIONS.get(name))
        results.append(("universal, described", "time", _time_error(truth, none, described)))
        results.append(("universal, blind", "time", _time_error(truth, none, without_run(none, others, None))))
        centre = observe(truth, corners_and_centre(truth)[-1:])
        results.append(("universal, described, one training known", "time", _scaled_error(truth, centre, described)))
        blind = without_run(none, others, None)
        results.append(("universal, blind, one training known", "time", _scaled_error(truth, centre, blind)))
        found += [Ablation(model=name, change=change, of=of, error=error) for change, of, error in results]
    return found


def _noise_alone(seen: Observed, at: int) -> Callable[[float], float] | None:
    batch = sorted(seen.courses)[at]
    course = seen.courses[batch]
    return convergence.from_noise_course(batch, course).steps if course else None


_LAWS: Mapping[str, Callable[[Observed], Callable[[float], float] | None]] = {
    "p fitted": lambda seen: convergence.fit(seen.reached).steps,
    "p = 1 (McCandlish)": lambda seen: convergence.fit(seen.reached, exponent=1.0).steps,
    "p = 0.5 (Scavenger), in steps": lambda seen: convergence.fit(seen.reached, exponent=0.5).steps,
    "p = 0.5 (Scavenger), in epochs": lambda seen: (
        convergence.fit(seen.reached, exponent=0.5, unit=WorkUnit.EPOCHS).steps
    ),
    "noise of the smallest batch's training alone": lambda seen: _noise_alone(seen, 0),
    "noise of the middle batch's training alone": lambda seen: _noise_alone(seen, 1),
}


def _step_error(truth: ScavengerTruth, seen: Observed, law: Law) -> float:
    model = parallel.fit(seen.runs, law, workers_per_node=GPUS_PER_NODE)
    remaining = [choice for choice in truth.choices if choice not in seen.tried]
    return fmean(abs(model.seconds(truth.setting(c)) / truth.step_seconds(c) - 1) for c in remaining)


def _iterations_error(
    truth: ScavengerTruth, seen: Observed, model: Callable[[Observed], Callable[[float], float] | None]
) -> float:
    """Error over the batches whose convergence was not seen; uses the fitted law where the tables have no noise."""
    steps = model(seen) or convergence.fit(seen.reached).steps
    known = {reached.batch for reached in seen.reached}
    remaining = [batch for batch in truth.batches if batch not in known]
    return fmean(abs(steps(batch) / truth.iterations[batch] - 1) for batch in remaining)


def _time_error(truth: ScavengerTruth, seen: Observed, forecast: Forecast) -> float:
    remaining = [choice for choice in truth.choices if choice not in seen.tried]
    return fmean(abs(forecast.seconds(c) / truth.seconds(c) - 1) for c in remaining)


def _true_iterations(truth: ScavengerTruth, forecast: Forecast) -> Forecast:
    return replace(forecast, iterations=dict(truth.iterations))


def _true_steps(truth: ScavengerTruth, forecast: Forecast) -> Forecast:
    return replace(forecast, step_seconds={c: truth.step_seconds(c) for c in truth.choices})


def _leave_one_out(truth: ScavengerTruth) -> float:
    """Predict each inner batch from all others, with every K timed at those."""
    errors = []
    for batch in truth.batches[1:-1]:
        seen = observe(truth, [choice for choice in truth.choices if choice.batch != batch])
        errors.append(_time_error(truth, seen, full(seen)))
    return fmean(errors)


def _scaled_error(truth: ScavengerTruth, seen: Observed, forecast: Forecast) -> float:
    """Error of the forecast scaled to be exact at the one configuration whose training is known."""
    (choice,) = seen.tried
    factor = truth.seconds(choice) / forecast.seconds(choice)
    scaled = replace(forecast, iterations={b: steps * factor for b, steps in forecast.iterations.items()})
    return _time_error(truth, seen, scaled)
