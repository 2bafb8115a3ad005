"""Mistakes in the job file of a language model's server, and in outputs: each is refused with its field and the fix."""

import pytest

from mlcd.errors import SpecError
from mlcd.spec.serving import parse_serve

JOB = """\
name: m
model: some/model
server:
  run: exec serve $MODEL --port $PORT --n $N
knobs: {N: [1, 2]}
load: {input_tokens: 16, output_tokens: 8, concurrency: 4, verify: 10s}
goal: {maximize: tokens per dollar, slo: {ttft_p99: 1s}}
search: {max_trials: 2, trial: {seconds: 10s}}
"""
RUN = "  run: exec serve $MODEL --port $PORT --n $N"
BAD = {
    "server is text": ("server:\n" + RUN, "server: vllm serve $PORT $N", "server: must be a mapping"),
    "no command": (RUN, "  ready: /health", "server.run: is missing; allowed: the server's command"),
    "command as a list": (RUN, "  run: [vllm, serve]", "server.run: must be text"),
    "command under another name": ("  run:", "  command:", "server.command: unknown field", "did you mean 'run'?"),
    "ready is an address": ("  run:", "  ready: http://x/health\n  run:", "server.ready: is not a path"),
    "path without slash": ("  run:", "  path: v1/chat\n  run:", "server.path: is not a path", "/v1/chat/completions"),
    "body is a list": ("  run:", "  body: [a]\n  run:", "server.body: must be a mapping"),
    "another API": ("  run:", "  api: anthropic\n  run:", "server.api: is not one of the choices", "allowed: openai"),
    "a port": ("  run:", "  port: 8000\n  run:", "server.port: not supported yet; mlcd chooses it", "$PORT"),
    "no port in the command": ("--port $PORT ", "", "server.run: must listen on $PORT"),
    "no knobs": ("knobs: {N: [1, 2]}\n", "", "knobs: is missing; allowed: {MAX_SEQS: [16, 64]}"),
    "knobs are a list": ("{N: [1, 2]}", "[1, 2]", "knobs: must be a mapping"),
    "a knob that the command does not use": ("{N:", "{M:", "knobs.M: is not used in server.run"),
    "a knob called PORT": ("{N:", "{PORT:", "knobs.PORT: is set by mlcd"),
    "a knob without values": ("[1, 2]", "[]", "knobs.N: must not be empty"),
    "a nested knob": ("[1, 2]", "[[1], 2]", "knobs.N[0]: must be a number, text, true or false (got [1])"),
    "a knob's value twice": ("[1, 2]", "[1, '1']", "knobs.N: has the value 1 twice"),
    "an empty range": ("[1, 2]", "4..1", "knobs.N: is an empty range", "did you mean '1..4'?"),
    "a long range": ("[1, 2]", "1..6400", "knobs.N: has too many values"),
    "a range in a list": ("[1, 2]", "[1..2, 2]", "knobs.N: has the value 2 twice"),
    "a knob's name with a dash": ("{N:", "{max-seqs:", "knobs.max-seqs: is not a variable's name"),
    "a knob called batch": ("{N:", "{batch:", "knobs.batch: is a word for what mlcd chooses itself", "'BATCH'"),
    "a knob that changes learning": ("[1, 2]", "{values: [1, 2], changes: learning}", "knobs.N.changes", "trainings"),
    "a knob's memory": ("[1, 2]", "{values: [1, 2], memory: rises}", "knobs.N.memory", "is remembered"),
    "a condition without values": ("[1, 2]", "{when: {instance_type: a}}", "knobs.N.values: is missing"),
    "a condition of no knob": ("[1, 2]}", "[1, 2], exclude: [{M: 1}]}", "knobs.exclude[0].M: there is no such knob"),
    "a condition on nodes": ("[1, 2]}", "[1, 2], exclude: [{num_nodes: 1}]}", "allowed: N, instance_type"),
    "a condition on types here": ("[1, 2]}", "[1, 2], exclude: [{instance_type: x}]}", "local is the one machine"),
    "a knob that may not apply": (
        "$N\nknobs: {N: [1, 2]}",
        "$N --m $M\nknobs: {M: [1], N: {values: [1, 2], when: {M: 1}}}",
        "knobs.N: is not set where its condition (M: 1) does not hold",
        "${N:+--option $N} or ${N:-DEFAULT} in server.run",
    ),
    "a share under a condition": (
        "{N: [1, 2]}",
        "{N: [1], GPU_SHARE: {values: [50], when: {N: 1}}}",
        "knobs.GPU_SHARE: cannot have a condition",
    ),
    "a limit of ONNX models": ("ttft_p99: 1s", "p99: 1s", "goal.slo.p99: is not a limit", "did you mean 'e2e_p99'?"),
    "a limit without percentile": ("ttft_p99", "ttft", "goal.slo.ttft: is not a limit", "did you mean 'ttft_p99'?"),
    "another percentile": ("ttft_p99", "ttft_p90", "goal.slo.ttft_p90: is not a limit"),
    "inter-token latency": ("ttft_p99", "itl_p99", "goal.slo.itl_p99: is not a limit", "did you mean 'tpot_p99'?"),
    "latency": ("ttft_p99", "latency_p95", "did you mean 'e2e_p95'?"),
    "a limit without unit": ("ttft_p99: 1s", "ttft_p99: 1", "goal.slo.ttft_p99: a latency needs a unit"),
    "a limit of 0": ("ttft_p99: 1s", "ttft_p99: 0s", "goal.slo.ttft_p99: is out of range"),
    "limits in words": ("{ttft_p99: 1s}}", "fast}", "goal.slo: must be a mapping"),
    "throughput": ("tokens per dollar", "throughput", "goal.maximize: is not one of the choices", "'rate'"),
    "tokens/dollar": ("tokens per dollar", "tokens/dollar", "did you mean 'tokens per dollar'?"),
    "cost without a rate": ("maximize: tokens per dollar", "minimize: cost", "minimize: cost needs the rate"),
    "a rate of tokens": (
        "maximize: tokens per dollar",
        "minimize: cost, rate: 200 tokens/s",
        "goal.rate: is not a rate",
    ),
    "tokens in words": ("input_tokens: 16", "input_tokens: many", "load.input_tokens"),
    "no tokens": ("input_tokens: 16", "input_tokens: 0", "load.input_tokens: is out of range"),
    "too many in flight": ("concurrency: 4", "concurrency: 10000000", "load.concurrency: is out of range"),
    "more shared than there is": ("input_tokens: 16", "input_tokens: 16, shared_tokens: 32", "load.shared_tokens"),
    "prompt_tokens": ("input_tokens", "prompt_tokens", "load.prompt_tokens: unknown", "did you mean 'input_tokens'?"),
    "max_tokens": ("output_tokens", "max_tokens", "load.max_tokens: unknown field", "did you mean 'output_tokens'?"),
    "a scenario": ("verify: 10s", "scenario: offline", "load.scenario: not supported yet; write arrivals"),
    "arrivals of another kind": ("verify: 10s", "arrivals: poisson", "load.arrivals"),
    "a share as percent": ("verify: 10s", "headroom: 30%", "load.headroom: must be a number"),
    "lengths without a mean": ("input_tokens: 16", "input_tokens: {std: 4}", "load.input_tokens"),
    "no model": ("model: some/model\n", "", "model: is missing: server.run uses $MODEL"),
    "two models": ("model: some/model", "model: [a, b]", "model: must be text"),
    "minutes of a load test": ("trial: {seconds: 10s}", "trial: {minutes: 1}", "search.trial.minutes", "seconds"),
    "seconds in words": ("seconds: 10s", "seconds: ten", "search.trial.seconds: is not a duration"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_named_with_its_field_and_the_fix(name: str) -> None:
    old, new, *says = BAD[name]
    assert JOB.count(old) >= 1
    parse_serve(JOB)
    with pytest.raises(SpecError) as refused:
        parse_serve(JOB.replace(old, new, 1))
    for text in says:
        assert text in str(refused.value)
