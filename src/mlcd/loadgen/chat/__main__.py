"""`python -m mlcd.loadgen.chat ADDRESS`: load a language model's server, print the result as one JSON object."""

import argparse
import re
import sys
from typing import Any

from mlcd.errors import BadInput
from mlcd.loadgen.chat.generator import generate_chat
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric, ChatPlan, Exchange
from mlcd.loadgen.process import FROM_STDIN, plan_from_stdin, run_and_print

_LIMIT = re.compile(r"(ttft|tpot|e2e)_p(50|95|99)=([0-9.]+)ms")


def main() -> int:
    """Run the load test; returns the exit code."""
    if FROM_STDIN in sys.argv:
        return run_and_print(lambda: _from_json(plan_from_stdin()), generate_chat)
    arguments = _parser().parse_args()
    return run_and_print(lambda: _from_arguments(arguments), generate_chat)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mlcd.loadgen.chat", description="Load a server of a language model with OpenAI's API."
    )
    parser.add_argument("address", help="of the server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, help="name of the model in the requests")
    parser.add_argument("--path", default="/v1/chat/completions", help="of the API, such as /v1/completions")
    parser.add_argument("--input-tokens", type=int, default=128, help="length of every prompt")
    parser.add_argument("--output-tokens", type=int, default=64, help="length of every answer")
    parser.add_argument(
        "--shared-tokens", type=int, default=0, help="tokens at the start of all prompts that are alike"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the whole test")
    parser.add_argument("--rate", type=float, help="requests that arrive in a second")
    parser.add_argument("--concurrency", type=int, default=1, help="requests in flight; the most, with --search")
    parser.add_argument("--search", action="store_true", help="find the concurrency with most tokens/s in the limits")
    parser.add_argument("--limit", action="append", default=[], metavar="ttft_p99=500ms", help="may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _from_json(value: dict[str, Any]) -> ChatPlan:
    exchanges = tuple(Exchange(**each) for each in value["exchanges"])
    limits = tuple(ChatLimit(**{**each, "metric": ChatMetric(each["metric"])}) for each in value["limits"])
    lists = {name: tuple(value[name]) for name in ("cpus", "further")}
    return ChatPlan(**{**value, "exchanges": exchanges, "limits": limits, **lists})


def _from_arguments(arguments: argparse.Namespace) -> ChatPlan:
    return ChatPlan(
        address=arguments.address.rstrip("/"),
        model=arguments.model,
        path=arguments.path,
        exchanges=(Exchange(input_tokens=arguments.input_tokens, output_tokens=arguments.output_tokens),),
        shared_tokens=arguments.shared_tokens,
        seconds=arguments.seconds,
        rate=arguments.rate,
        concurrency=arguments.concurrency,
        search=arguments.search,
        limits=tuple(_limit(text) for text in arguments.limit),
        seed=arguments.seed,
    )


def _limit(text: str) -> ChatLimit:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise BadInput(f"--limit {text[:80]}: not a limit; allowed: ttft_p99=500ms, tpot_p95=50ms, e2e_p95=12000ms")
    return ChatLimit(metric=ChatMetric(match[1]), percentile=int(match[2]), seconds=float(match[3]) / 1000)


if __name__ == "__main__":
    sys.exit(main())
