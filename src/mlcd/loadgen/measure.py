"""A load test in a separate process, so that it shares neither interpreter nor memory with anything else."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from mlcd.loadgen.plan import LoadInput, LoadPlan, Scenario
from mlcd.loadgen.process import Generator, result_of, run_generator
from mlcd.loadgen.result import LoadResult


def measure_load(
    address: str,
    model: str,
    inputs: Sequence[LoadInput],
    *,
    scenario: Scenario = Scenario.SERVER,
    seconds: float = 10.0,
    slo_seconds: float | None = None,
    percentile: int = 99,
    rate: float | None = None,
    concurrency: int = 32,
    together: int = 8,
    cpus: tuple[int, ...] = (),
    apart: bool = False,
    seed: int = 0,
    further: tuple[str, ...] = (),
    path: str = "",
    body: str = "",
    processors: float = 1.0,
    generator: Generator = run_generator,
) -> LoadResult:
    """Load the server at `address` and return the result. See LoadPlan for the arguments.

    apart  whether the generator has processors of its own (`split_cores`); kept in the result
    generator  runs it: on this machine, or elsewhere
    Takes `seconds`, a start of about 0.1 s and the time of the last requests; the process is killed after three times
    that. Raises BadInput for an invalid plan, MlcdError where the generator fails.
    """
    plan = LoadPlan(
        address=address,
        model=model,
        inputs=tuple(inputs),
        scenario=scenario,
        seconds=seconds,
        slo_seconds=slo_seconds,
        percentile=percentile,
        rate=rate,
        concurrency=concurrency,
        together=together,
        cpus=cpus,
        seed=seed,
        further=further,
        path=path,
        body=body,
        processors=processors,
    )
    return replace(run_plan(plan, generator), apart=apart)


def run_plan(plan: LoadPlan, generator: Generator = run_generator) -> LoadResult:
    """Run the plan in a separate process. Raises like measure_load."""
    output = generator("mlcd.loadgen", json.dumps(asdict(plan)), most_seconds=3 * plan.seconds + 60)
    return result_of(output, LoadResult.from_json)
