"""A load test in a separate process, so that it shares neither interpreter nor memory with anything else."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from mlcd.errors import BadInput, MlcdError
from mlcd.loadgen.plan import LoadInput, LoadPlan, Scenario
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
) -> LoadResult:
    """Load the server at `address` and return the result. See LoadPlan for the arguments.

    apart  whether the generator has processors of its own (`split_cores`); kept in the result
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
    )
    return replace(run_plan(plan), apart=apart)


def run_plan(plan: LoadPlan) -> LoadResult:
    """Run the plan in a separate process. Raises like measure_load."""
    command = [sys.executable, "-m", "mlcd.loadgen", "--plan", json.dumps(asdict(plan)), "--until-stdin-closes"]
    timeout_seconds = 3 * plan.seconds + 60
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            # communicate() would close standard input, and the generator ends when that closes.
            assert process.stdin is not None  # noqa: S101
            stdin, process.stdin = process.stdin, None
            with stdin:
                output, messages = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise MlcdError(f"the load test did not end within {timeout_seconds:g} s") from None
        except BaseException:
            process.kill()
            raise
    last = messages.strip().splitlines()[-1].removeprefix("mlcd.loadgen: ") if messages.strip() else ""
    if process.returncode == BadInput.exit_code:
        raise BadInput(last)
    if process.returncode != 0:
        raise MlcdError(f"the load generator ended with code {process.returncode}: {last}")
    return LoadResult.from_json(json.loads(output))
