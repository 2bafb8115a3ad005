"""What the fields of a job of `mlcd serve` must agree on."""

import re
from dataclasses import replace
from pathlib import Path

from mlcd.goal import Objective
from mlcd.loadgen.plan import Scenario
from mlcd.server.options import Engine, engine_of
from mlcd.space.settings import of_node
from mlcd.spec.serve import Api, ServerCommand, ServeSpec

LOCAL = "local"
SERVER_STRATEGY = "heterbo"
"""The default for PyTorch's files and on nodes: nothing is known of other models there."""
COMMAND_STRATEGY = "auto"
"""The default for a server that is a command."""
OIP_READY = "/v2/health/ready"
"""Where the Open Inference Protocol says that a server is ready."""
MOST_NODES = 80
"""Of all servers that are spread over several nodes: each node and each server has a port, of those of a lease."""
GIVEN_TO_NODES = ("NODES", "NODE_RANK", "HEAD", "HEAD_PORT", "ADDRESSES")
"""What the command of a server over several nodes finds besides."""
GPU_SHARE = "GPU_SHARE"
"""The knob of a server as a command that mlcd carries out itself: the command need not use it."""


def checked(spec: ServeSpec) -> ServeSpec:
    """The job, after the checks that involve several fields. Raises SpecError."""
    goal, load = spec.goal, spec.load
    if load.rate is not None:
        if goal.rate is not None and goal.rate != load.rate:
            problem = f"differs from goal.rate, which is {goal.rate:g}/s"
            raise spec.error("load.rate", problem, value=load.rate, allowed="one of the two, or equal rates")
        if goal.minimize is Objective.TIME:
            problem = "conflicts with goal.maximize: rate, which looks for the highest rate"
            raise spec.error("load.rate", problem, value=load.rate, allowed="no load.rate")
        spec = replace(spec, goal=replace(goal, rate=load.rate))
    if "search.strategy" not in spec.places and (spec.server is not None or spec.resources.infra != LOCAL):
        usual = SERVER_STRATEGY if spec.server is None else COMMAND_STRATEGY
        spec = replace(spec, search=replace(spec.search, strategy=usual))
    if spec.resources.infra == LOCAL:
        _check_local(spec)
    if "goal.minimize" in spec.places and spec.goal.rate is None and not (load.trace or load.profile):
        form = "goal.rate such as 500/s, or load.profile" + (", or load.trace" if spec.server is not None else "")
        raise spec.error("goal", "minimize: cost needs the rate to hold", allowed=form)
    if spec.server is not None:
        spec = _checked_server(spec)
        if spec.server is None or spec.server.api is Api.OPENAI:
            return spec
    elif engine_of(Path(spec.model)) is Engine.PYTORCH and "search.strategy" not in spec.places:
        spec = replace(spec, search=replace(spec.search, strategy=SERVER_STRATEGY))
    if load.scenario is Scenario.SERVER and goal.slo is None:
        problem = "looks for the highest rate within a latency limit, but the goal has none"
        raise spec.error("load.scenario", problem, value="server", allowed="goal.slo, such as {p99: 50ms}, or offline")
    return spec


def _check_local(spec: ServeSpec) -> None:
    """Raises SpecError for what only leased nodes have."""
    for name in ("instance_type", "accelerators", "replicas"):
        if f"resources.{name}" in spec.places:
            problem = "is for leased nodes, and local is the one machine that mlcd runs on"
            raise spec.error(f"resources.{name}", problem, allowed="resources.infra: minicloud, slurm or aws")
    if spec.load.from_node:
        problem = "is for leased nodes, and local is the one machine that mlcd runs on"
        raise spec.error("load.from", problem, value="node", allowed="here, or resources.infra: minicloud or slurm")


def _checked_server(spec: ServeSpec) -> ServeSpec:
    """The job of a server that is a command, after the checks that involve several fields. Raises SpecError."""
    server = spec.server
    assert server is not None  # noqa: S101 - the caller has looked
    if wrong := [value for value in spec.declared_knobs.values.get(GPU_SHARE, ()) if value not in range(1, 101)]:
        raise spec.error(f"knobs.{GPU_SHARE}", "is percent of a GPU", value=wrong[0], allowed="whole numbers up to 100")
    for name in (*(name for name in spec.declared_knobs.names if name != GPU_SHARE), "PORT"):
        if not re.search(rf"\$(\{{{name}\b|{name}\b)", server.run):
            problem = (
                "is not used in server.run" if name != "PORT" else "must listen on $PORT, which it does not mention"
            )
            field = f"knobs.{name}" if name != "PORT" else "server.run"
            raise spec.error(field, problem, allowed=f"${name} in the command")
    for knob in spec.declared_knobs.knobs:
        if knob.name == GPU_SHARE and knob.when is not None:
            raise spec.error(f"knobs.{GPU_SHARE}", "cannot have a condition", allowed="values alone, or exclude")
        guarded = rf"\$\{{{knob.name}:?[-+](?:[^{{}}]|\$\{{[^{{}}]*\}})*\}}"
        if knob.when is not None and re.search(rf"\$({knob.name}\b|\{{{knob.name}\b)", re.sub(guarded, "", server.run)):
            problem = f"is not set where its condition ({knob.when}) does not hold, and the command needs it"
            form = f"${{{knob.name}:+--option ${knob.name}}} or ${{{knob.name}:-DEFAULT}} in server.run"
            raise spec.error(f"knobs.{knob.name}", problem, allowed=form)
    _check_nodes(spec, server)
    if spec.resources.infra == LOCAL and spec.declared_knobs.depends_on_machine:
        problem = "name instance_type, and local is the one machine that mlcd runs on"
        raise spec.error("knobs", problem, allowed="conditions of knobs, or resources.infra: minicloud, slurm or aws")
    if "$MODEL" in server.run.replace("{", "") and not spec.model:
        raise spec.error("model", "is missing: server.run uses $MODEL", allowed="a folder, a file or a name")
    if not (server.served_name or spec.model) and server.api is not Api.HTTP:
        raise spec.error("server.name", "is missing: requests need the model's name", allowed="model, or server.name")
    if server.api is Api.OPENAI:
        _check_token_load(spec)
        return spec
    _check_plain_requests(spec, server)
    if server.api is Api.OIP and "server.ready" not in spec.places:
        return replace(spec, server=replace(server, ready=OIP_READY))
    return spec


def _check_nodes(spec: ServeSpec, server: ServerCommand) -> None:
    """Raises SpecError for what does not go with the number of nodes of one server."""
    knobs = spec.declared_knobs
    own = [knob.name for knob in knobs.knobs if knob.per_node]
    if server.nodes == 1:
        if own:
            problem = "has a value for each node of a server, and server.nodes is 1"
            raise spec.error(f"knobs.{own[0]}", problem, allowed="server.nodes: 2, or no per: node")
        return
    if spec.resources.infra == LOCAL:
        problem = "is for leased nodes, and local is the one machine that mlcd runs on"
        raise spec.error(
            "server.nodes", problem, value=server.nodes, allowed="resources.infra: minicloud, slurm or aws"
        )
    if not re.search(r"\$(\{NODE_RANK\b|NODE_RANK\b)", server.run):
        problem = f"must tell the {server.nodes} nodes of a server apart, and does not mention $NODE_RANK"
        raise spec.error("server.run", problem, allowed="such as --node-rank $NODE_RANK")
    if most := [n for n in spec.resources.replicas if n * server.nodes > MOST_NODES]:
        problem = f"of {server.nodes} nodes each are {most[0] * server.nodes} nodes"
        raise spec.error("resources.replicas", problem, value=most[0], allowed=f"at most {MOST_NODES} nodes")
    if spec.load.profile:
        raise spec.error("load.profile", "is for servers of one node in this version", allowed="no load.profile")
    names = {*knobs.names, *(of_node(name, rank) for name in own for rank in range(server.nodes))}
    if taken := [knob.name for knob in knobs.knobs if knob.name in GIVEN_TO_NODES]:
        problem = "is set by mlcd for a server over several nodes"
        raise spec.error(f"knobs.{taken[0]}", problem, allowed=f"a name other than {', '.join(GIVEN_TO_NODES)}")
    if len(names) < len(knobs.names) + len(own) * server.nodes:
        problem = "has a value for each node, and there is a knob with the name of one of these"
        raise spec.error(f"knobs.{own[0]}", problem, allowed=f"no knob such as {of_node(own[0], 0)}")
    conditions = [*knobs.exclude, *(knob.when for knob in knobs.knobs if knob.when is not None)]
    for name in own:
        if any(name in condition.names for condition in conditions):
            problem = "has a value for each node: no condition can name it"
            raise spec.error(f"knobs.{name}", problem, allowed="conditions of other knobs, or no per: node")


def _check_plain_requests(spec: ServeSpec, server: ServerCommand) -> None:
    """Raises SpecError where a request of `oip` or `http` cannot be made from what is given."""
    if server.api is Api.OIP:
        if not spec.inputs:
            problem = "are missing: requests with server.api: oip need the model's inputs"
            raise spec.error("inputs", problem, allowed="inputs: {image: FP32:3x224x224}, the sizes of one item")
        for name in ("path", "body"):
            if f"server.{name}" in spec.places:
                problem = "is not used with server.api: oip, which has its own paths and requests"
                raise spec.error(f"server.{name}", problem, allowed=f"no server.{name}, or api: http")
        return
    if spec.inputs:
        raise spec.error("inputs", "are not used with server.api: http", allowed="server.body, or api: oip")
    for name, form in (("path", "/predict"), ("body", "{text: hello}")):
        if f"server.{name}" not in spec.places and not any(p.startswith(f"server.{name}.") for p in spec.places):
            problem = "is missing: requests with server.api: http need it"
            raise spec.error(f"server.{name}", problem, allowed=f"server.{name} such as {form}")


def _check_token_load(spec: ServeSpec) -> None:
    """Raises SpecError for lengths and arrivals that contradict each other."""
    load = spec.load
    for name, given in (("input_tokens", load.input_lengths), ("output_tokens", load.output_lengths)):
        if load.trace and given is not None:
            problem = "conflicts with load.trace, which has the lengths of every request"
            raise spec.error(f"load.{name}", problem, allowed=f"load.trace or load.{name}")
    if load.trace and load.is_open:
        raise spec.error(
            "load.arrivals", "conflicts with load.trace, which has its own arrivals", allowed="one of them"
        )
    varies = load.input_lengths is not None and (load.input_lengths.file or load.input_lengths.std)
    if not load.trace and not varies and load.shared_tokens > load.input_tokens:
        raise spec.error("load.shared_tokens", "is more than load.input_tokens", value=load.shared_tokens)
