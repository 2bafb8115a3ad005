"""A load test of a language model in a separate process."""

import json
from dataclasses import asdict

from mlcd.loadgen.chat.plan import ChatPlan
from mlcd.loadgen.chat.result import ChatResult
from mlcd.loadgen.process import Generator, result_of, run_generator


def measure_chat(plan: ChatPlan, generator: Generator = run_generator) -> ChatResult:
    """Run the plan in a separate process, on this machine or where `generator` does.

    Raises BadInput for an invalid plan or a server that is none, MlcdError.
    """
    most_seconds = 3 * plan.seconds + plan.timeout_seconds + 60
    output = generator("mlcd.loadgen.chat", json.dumps(asdict(plan)), most_seconds=most_seconds)
    return result_of(output, ChatResult.from_json)
