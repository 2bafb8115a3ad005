"""The files that start a server which is a command, as it was verified: its image, variables, knobs and limits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlcd.report.deploy_files import MEMORY_FACTOR, comments, label_of
from mlcd.report.service_files import CONTAINER_PORT, WRITERS, Model, Rented, Service
from mlcd.run.findings import DayPlan
from mlcd.space import Config

SHELL = "/bin/sh"
MODELS = "/models"
WITHOUT_IMAGE = ("skyserve",)
"""Kinds that start the command on a machine without a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDeployment:
    """What to start, and how.

    run          the command, for the shell; it finds the knobs, $MODEL, $HOST and $PORT in its environment
    knobs        of the command, with the values that were chosen
    image        in which it runs; "": none is known
    model        $MODEL; where `model_is_here`, a folder or file of this machine
    ready        the path that answers 200 when it is ready
    cpus, gpus   of this machine, all of which it had; gpu: their name
    promise      what it sustained, in words: a comment in each file
    rate         requests a second that it holds; start_seconds: how long it took to become ready
    day          replicas by the hour; None: `servers` all the time
    rented       nodes of SkyPilot's that it was measured on; None: other ones
    setup        for the shell of such a node, before the command
    """

    name: str
    run: str
    config: Config
    knobs: Mapping[str, str]
    model: str
    ready: str
    rate: float
    image: str = ""
    model_is_here: bool = False
    cpus: int | None = None
    gpus: int = 0
    gpu: str = ""
    memory_gib: float | None = None
    promise: str = ""
    start_seconds: float = 0.0
    day: DayPlan | None = None
    servers: int = 1
    rented: Rented | None = None
    setup: str = ""


def command_files(kind: str, deployment: CommandDeployment) -> dict[str, str]:
    """Relative path -> text of the files of one kind. Raises KeyError for an unknown kind."""
    return WRITERS[kind](_service(deployment))


def _service(deployment: CommandDeployment) -> Service:
    name = deployment.model.rstrip("/").rpartition("/")[2]
    mounted = Model(here=deployment.model, there=f"{MODELS}/{name}") if deployment.model_is_here else None
    given = {"MODEL": mounted.there if mounted else deployment.model, "HOST": "0.0.0.0", "PORT": str(CONTAINER_PORT)}  # noqa: S104 - within its container
    memory = None
    if deployment.memory_gib is not None:
        memory = math.ceil(deployment.memory_gib * 1024 * MEMORY_FACTOR / 64) * 64
    return Service(
        label=label_of(deployment.name),
        comments=tuple(comments(deployment.name, deployment.config, deployment.promise)),
        image=deployment.image,
        command=(SHELL, "-c", deployment.run),
        run=deployment.run,
        ready=deployment.ready,
        live=deployment.ready,
        rate=deployment.rate,
        envs={**deployment.knobs, **given},
        cpus=deployment.cpus,
        gpus=deployment.gpus,
        gpu=deployment.gpu,
        memory_mib=memory,
        model=mounted,
        start_seconds=deployment.start_seconds,
        day=deployment.day,
        servers=deployment.servers,
        rented=deployment.rented,
        setup=deployment.setup,
    )
