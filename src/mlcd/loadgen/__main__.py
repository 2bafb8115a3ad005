"""`python -m mlcd.loadgen ADDRESS`: load a server, print the result as one JSON object."""

import argparse
import http.client
import math
import sys
import urllib.error
import urllib.request
from typing import Any

from mlcd.errors import BadInput
from mlcd.loadgen.generator import generate
from mlcd.loadgen.plan import LoadInput, LoadPlan, Scenario
from mlcd.loadgen.process import FROM_STDIN, plan_from_stdin, run_and_print
from mlcd.untrusted import Fields, Malformed, parse_json

_DESCRIPTION_BYTES = 2**20
_MOST_NUMBERS = 2**28
"""Of one input: 1 GiB in FP32."""


def main() -> int:
    """Run the load test; returns the exit code."""
    if FROM_STDIN in sys.argv:
        return run_and_print(lambda: _from_json(plan_from_stdin()), generate)
    arguments = _parser().parse_args()
    return run_and_print(lambda: _from_arguments(arguments), generate)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mlcd.loadgen", description="Load an Open Inference Protocol server."
    )
    parser.add_argument("address", nargs="?", default="", help="of the server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="name of the model on the server")
    parser.add_argument("--scenario", choices=[s.value for s in Scenario], default=Scenario.SERVER.value)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of the whole test")
    parser.add_argument("--slo-ms", type=float, help="latency limit; searches for the highest rate that keeps it")
    parser.add_argument("--percentile", type=int, default=99, help="percentile that must keep the limit: 50, 95 or 99")
    parser.add_argument("--rate", type=float, help="requests a second (server)")
    parser.add_argument("--concurrency", type=int, default=32, help="requests at the same time (offline)")
    parser.add_argument("--together", type=int, default=8, help="requests of one query (multi-stream)")
    parser.add_argument("--high", type=int, default=2, help="whole numbers in requests are below this")
    parser.add_argument("--size", type=int, default=1, help="size of dynamic axes other than the batch")
    parser.add_argument("--cpus", default="", help="processors to use, such as 0,1; default: all")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _from_json(value: dict[str, Any]) -> LoadPlan:
    inputs = tuple(LoadInput(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in value["inputs"])
    fields = {**value, "inputs": inputs, "scenario": Scenario(value["scenario"]), "cpus": tuple(value["cpus"])}
    fields["further"] = tuple(value["further"])
    return LoadPlan(**fields)


def _from_arguments(arguments: argparse.Namespace) -> LoadPlan:
    if not arguments.address or not arguments.model:
        raise BadInput("give the address of a server and --model")
    return LoadPlan(
        address=arguments.address.rstrip("/"),
        model=arguments.model,
        inputs=_inputs_of(arguments),
        scenario=Scenario(arguments.scenario),
        seconds=arguments.seconds,
        slo_seconds=None if arguments.slo_ms is None else arguments.slo_ms / 1000,
        percentile=arguments.percentile,
        rate=arguments.rate,
        concurrency=arguments.concurrency,
        together=arguments.together,
        cpus=tuple(int(cpu) for cpu in arguments.cpus.split(",")) if arguments.cpus else (),
        seed=arguments.seed,
    )


def _inputs_of(arguments: argparse.Namespace) -> tuple[LoadInput, ...]:
    """One item of every input, as the server describes them."""
    url = f"{arguments.address.rstrip('/')}/v2/models/{arguments.model}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
            described = Fields(parse_json(answer.read(_DESCRIPTION_BYTES)))
        tensors = [_input_of(Fields(tensor), arguments) for tensor in described.items("inputs")]
    except (urllib.error.URLError, http.client.HTTPException, ValueError, OSError, Malformed) as error:
        raise BadInput(f"{url} does not describe a model: {error}") from error
    return tuple(tensors)


def _input_of(tensor: Fields, arguments: argparse.Namespace) -> LoadInput:
    shape = [Fields({"size": size}).whole("size", least=-1, most=_MOST_NUMBERS) for size in tensor.items("shape")]
    sizes = [arguments.size if size < 0 else size for size in shape]
    if shape and shape[0] < 0:
        sizes[0] = 1
    if math.prod(sizes) > _MOST_NUMBERS:
        raise Malformed(tensor.text("name"), f"has more than {_MOST_NUMBERS:,} numbers; no load is made of that")
    return LoadInput(
        name=tensor.text("name"), datatype=tensor.text("datatype"), shape=tuple(sizes), high=arguments.high
    )


if __name__ == "__main__":
    sys.exit(main())
