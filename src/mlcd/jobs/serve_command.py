"""A server that is a command: its space, its prices, and how it is loaded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcd.clouds.gpu_share import WHOLE
from mlcd.clouds.gpu_types import GPU_PRICE
from mlcd.clouds.local import USD_PER_CPU_HOUR, usable_cpus
from mlcd.clouds.serving import CommandServing
from mlcd.clouds.serving.command import GPU_SHARE_VARIABLE
from mlcd.gpus import Gpu, can_share, find_gpus
from mlcd.jobs.choice import check_size
from mlcd.jobs.gpu_space import gpu_share_price, gpu_usd_per_hour
from mlcd.jobs.knobs import check_applies, never_chosen
from mlcd.jobs.load_files import requests_of, with_requests
from mlcd.jobs.real import workdir
from mlcd.jobs.serve_nodes import Leasable, node_space
from mlcd.loadgen import LoadInput
from mlcd.problem import TrialPolicy
from mlcd.profiler.chat import ChatTest
from mlcd.profiler.load import LoadTest, ServerTest
from mlcd.space import Config, Space, Value
from mlcd.spec.serve import Api, ServerCommand, ServeSpec
from mlcd.units import Usd

COMMAND_TRIAL = TrialPolicy(
    seconds=60.0, extra_seconds_per_3_nodes=0.0, extension=0.5, watchdog_seconds=120.0, precision=0.15
)
"""A language model's server loads for tens of seconds, and a request takes seconds."""
DEFAULT_NOISE = 0.05
"""Relative deviation of two load tests of one server: what guides of such servers report. Unmeasured here."""
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class CommandJob:
    """A server that is a command, resolved against this machine or the nodes that are leased for it.

    spec   the job, with what its files say of lengths and rates
    notes  on values of knobs that are never chosen
    """

    spec: ServeSpec
    space: Space
    prices: tuple[Usd, ...]
    cloud: CommandServing
    test: ServerTest
    noise: float
    notes: tuple[str, ...] = ()


def command_job(
    spec: ServeSpec, server: ServerCommand, *, seed: int, folder: Path, nodes: Leasable | None = None
) -> CommandJob:
    """The job's space, prices, servers and load. Raises SpecError."""
    per_node = [knob.name for knob in spec.declared_knobs.knobs if knob.per_node]
    spec = replace(spec, declared_knobs=spec.declared_knobs.on_each_node(server.nodes))
    check_size(spec, "knobs", spec.declared_knobs.combinations, narrow="knobs")
    gpu = _gpu(spec) if nodes is None else None
    rows = _rows(spec, [LOCAL] if nodes is None else [instance.name for instance in nodes.instances])
    every = [row for found in rows.values() for row in found]
    knobs, notes = spec.declared_knobs.server_knobs(every), tuple(never_chosen(spec.declared_knobs, every))
    if server.nodes > 1:
        notes = (*notes, f"each server has {server.nodes} nodes: nodes / {server.nodes} is the number of servers")
    if nodes is None:
        names = spec.declared_knobs.names
        space = Space(knobs, tuple(Config(tuple(zip(names, row, strict=True))) for row in rows[LOCAL]))
        prices = _prices(spec, space, gpu)
    else:
        space, prices = node_space(spec, nodes, knobs, lambda instance: rows[instance.name])
    noise = DEFAULT_NOISE if spec.search.noise is None else spec.search.noise
    here = (Path(spec.file).parent if spec.file else Path()).absolute()
    cloud = CommandServing(
        server.run,
        home=folder,
        noise=noise,
        folder=here,
        model=_model(spec, here),
        served_name=server.served_name,
        ready=server.ready,
        gpu=gpu,
        setup=spec.setup,
        workdir=workdir(spec),
        nodes=server.nodes,
        per_node=per_node,
    )
    if server.api is not Api.OPENAI:
        test = _plain_test(spec, server, seed)
        return CommandJob(spec=spec, space=space, prices=prices, cloud=cloud, test=test, noise=noise, notes=notes)
    requests = requests_of(spec, seed=seed)
    spec = with_requests(spec, requests)
    load = spec.load
    chat = ChatTest(
        exchanges=requests.exchanges,
        trace=requests.trace,
        is_open=load.is_open,
        concurrency=load.concurrency,
        limits=spec.goal.token_limits,
        path=server.path,
        shared_tokens=load.shared_tokens,
        extra=server.body,
        folder=Path(cloud.model) if cloud.model and Path(cloud.model).is_dir() else None,
        headroom=load.headroom,
        verify_seconds=load.verify_seconds,
        seed=seed,
    )
    return CommandJob(spec=spec, space=space, prices=prices, cloud=cloud, test=chat, noise=noise, notes=notes)


def _rows(spec: ServeSpec, machines: Sequence[str]) -> dict[str, list[tuple[Value, ...]]]:
    """The combinations of knobs that may be chosen, by machine. Raises SpecError where there are none."""
    found = {name: spec.declared_knobs.rows(name, 1) for name in machines}
    every = [row for rows in found.values() for row in rows]
    if not every:
        raise spec.error("knobs.exclude", "excludes every combination", allowed="fewer exclusions")
    check_applies(spec, spec.declared_knobs, every)
    return found


def _plain_test(spec: ServeSpec, server: ServerCommand, seed: int) -> LoadTest:
    """How a server is loaded that does not stream tokens."""
    load = spec.load
    return LoadTest(
        inputs=tuple(
            LoadInput(name=each.name, datatype=each.datatype, shape=(1, *each.shape[1:])) for each in spec.inputs
        ),
        scenario=spec.scenario,
        slo=spec.goal.slo,
        rate=spec.goal.rate,
        headroom=load.headroom,
        verify_seconds=load.verify_seconds,
        seed=seed,
        in_flight=load.concurrency,
        path=server.path if server.api is Api.HTTP else "",
        body=json.dumps(server.body) if server.api is Api.HTTP else "",
        is_foreign=True,
    )


def _model(spec: ServeSpec, here: Path) -> str:
    """$MODEL: an absolute path where it names a file or folder here, else as written. Raises SpecError."""
    if not spec.model:
        return ""
    path = here / spec.path("model", spec.model)
    if path.exists():
        return str(path)
    if spec.model.startswith((".", "/", "~")):
        raise spec.error("model", "there is no such file or folder", value=spec.model)
    return spec.model


def _gpu(spec: ServeSpec) -> Gpu | None:
    """The GPU that shares are of; None where the job has no such knob. Raises SpecError where there is none."""
    shares = spec.declared_knobs.values.get(GPU_SHARE_VARIABLE)
    if shares is None:
        return None
    found = find_gpus()
    if not found:
        problem = "this machine has no NVIDIA GPU that its driver tells"
        raise spec.error(f"knobs.{GPU_SHARE_VARIABLE}", problem, allowed=f"no {GPU_SHARE_VARIABLE}")
    if set(shares) != {WHOLE} and not can_share():
        problem = "shares of a GPU need nvidia-cuda-mps-control, which is not installed"
        raise spec.error(f"knobs.{GPU_SHARE_VARIABLE}", problem, allowed=f"[{WHOLE}]")
    return found[0]


def _prices(spec: ServeSpec, space: Space, gpu: Gpu | None) -> tuple[Usd, ...]:
    """USD per hour: of this machine, by the user or nominal for its processors; and of the share of its GPU."""
    prices = spec.resources.prices
    for name in prices:
        if name not in ((LOCAL, GPU_PRICE) if gpu is not None else (LOCAL,)):
            problem = "a server that is a command has all of the machine"
            raise spec.error(f"resources.prices.{name}", problem, allowed=f"{{{LOCAL}: 2.50 USD}}")
    host = prices.get(LOCAL) or Usd.of(str(round(USD_PER_CPU_HOUR * len(usable_cpus()), 6)))
    if gpu is None:
        return (host,) * len(space)
    whole, _ = gpu_usd_per_hour(spec, gpu)
    return tuple(gpu_share_price(whole, int(config[GPU_SHARE_VARIABLE]), host) for config in space.configs)
