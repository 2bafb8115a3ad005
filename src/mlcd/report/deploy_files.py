"""The files that serve a recommended configuration elsewhere: Compose, Kubernetes, KServe, SkyServe, Triton."""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from mlcd.report.service_files import CONTAINER_PORT, Rented, Service, compose, kserve, kubernetes, skyserve
from mlcd.run.findings import DayPlan
from mlcd.server.limits import Limits
from mlcd.space import Config
from mlcd.version import __version__

MEMORY_FACTOR = 1.5
"""Requested memory / peak memory in the load test: a server that reaches its limit is killed."""
IN_FLIGHT_FACTOR = 2.0
"""Memory / bytes of requests in flight: a batch is a copy of its requests."""
_NODE_ENVIRONMENT = '"$HOME/.mlcd-server"'
"""On SkyPilot's nodes, whose own Python is older than mlcd needs."""
_QUEUE_DELAY_SECONDS = 0.001  # the default of our server, so that Triton waits as long for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What to serve, and how.

    name        of the job
    model_file  the model's file name in the folder that is written
    weights     files that hold its weights, relative to the same folder
    wheel       the wheel of mlcd in that folder: the image is built from it, because no index need have this mlcd
    cpus        processors that the configuration uses
    sizes       of open axes of the model
    promise     what it sustained, in words: a comment in each file
    limits      on what clients may take of the server
    rate        requests a second that it holds; start_seconds: how long it took to become ready
    day         replicas by the hour; None: `servers` all the time
    rented      nodes of SkyPilot's that it was measured on; None: other ones
    """

    name: str
    model_file: str
    wheel: str
    config: Config
    cpus: int
    memory_gib: float | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    promise: str = ""
    limits: Limits = field(default_factory=Limits)
    rate: float = 1.0
    start_seconds: float = 0.0
    day: DayPlan | None = None
    servers: int = 1
    rented: Rented | None = None

    @property
    def label(self) -> str:
        """See `label_of`."""
        return label_of(self.name)

    @property
    def memory_mib(self) -> int | None:
        """Requested memory, with room for all requests that clients may have in flight, rounded up to 64 MiB.

        None if the server's own is unknown.
        """
        if self.memory_gib is None:
            return None
        in_flight = self.limits.in_flight_bytes * IN_FLIGHT_FACTOR / 2**20
        return math.ceil((self.memory_gib * 1024 * MEMORY_FACTOR + in_flight) / 64) * 64

    @property
    def command(self) -> list[str]:
        """The server's command line in its container."""
        given = [f"--{knob}={self.config[knob]}" for knob in ("batch", "threads", "replicas")]
        # If the choice is int8, the written model is already quantised.
        sizes = [part for axis, size in self.sizes.items() for part in ("--size", f"{axis}={size}")]
        model = f"/models/{self.model_file}"
        options = [*given, *sizes, *self.limits.arguments()]
        return ["python", "-m", "mlcd.server", model, "--name", self.name, *options, "--host=0.0.0.0"]


def label_of(name: str) -> str:
    """The name in the form of Kubernetes and Compose: at most 63 lower-case letters, digits and -."""
    label = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63].strip("-")
    return label or "model"


def deploy_files(kind: str, deployment: Deployment) -> dict[str, str]:
    """Relative path -> text of the files of one kind; the model itself goes where `model_path` says.

    Raises KeyError for an unknown kind.
    """
    return _WRITERS[kind](deployment)


def model_path(kind: str, deployment: Deployment) -> PurePosixPath:
    """Where the model's file belongs among the files of a kind."""
    if kind == "triton":
        return PurePosixPath(deployment.label, "1", "model.onnx")
    return PurePosixPath(deployment.model_file)


def _service(deployment: Deployment) -> Service:
    """The container that the Dockerfile builds."""
    server = (*deployment.command, f"--port={CONTAINER_PORT}")
    model = shlex.quote(f"./{deployment.model_file}")
    here = tuple(word for word in server if word != f"/models/{deployment.model_file}")
    wheel = shlex.quote(f"./{deployment.wheel}[serve]")
    return Service(
        label=deployment.label,
        comments=tuple(_comments(deployment)),
        image=f"{deployment.label}:latest",
        is_built=True,
        command=server,
        setup=f'export PATH="$HOME/.local/bin:$PATH"\n'  # where SkyPilot puts uv
        f"uv venv --quiet --python '>=3.11' {_NODE_ENVIRONMENT}\n"
        f"uv pip install --quiet --python {_NODE_ENVIRONMENT}/bin/python {wheel}",
        run=f"{_NODE_ENVIRONMENT}/bin/python {shlex.join(here[1:3])} {model} {shlex.join(here[3:])}",
        probe=("python", "-c", _probe()),
        ready="/v2/health/ready",
        live="/v2/health/live",
        rate=deployment.rate,
        cpus=deployment.cpus,
        memory_mib=deployment.memory_mib,
        descriptors=deployment.limits.descriptors,
        start_seconds=deployment.start_seconds,
        day=deployment.day,
        servers=deployment.servers,
        rented=deployment.rented,
    )


def _with_image(write: Callable[[Service], dict[str, str]]) -> Callable[[Deployment], dict[str, str]]:
    return lambda deployment: {**write(_service(deployment)), "Dockerfile": _dockerfile(deployment)}


def _triton(deployment: Deployment) -> dict[str, str]:
    config = deployment.config
    batch = int(config["batch"])
    lines = [
        *_comments(deployment),
        f"name: {json.dumps(deployment.label)}",
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {batch}",
        f"instance_group [ {{ count: {int(config['replicas'])}, kind: KIND_CPU }} ]",
        f'parameters {{ key: "intra_op_thread_count", value: {{ string_value: "{int(config["threads"])}" }} }}',
    ]
    if batch > 1:
        delay = round(_QUEUE_DELAY_SECONDS * 1e6)
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {delay} }}")
    return {f"{deployment.label}/config.pbtxt": "\n".join(lines) + "\n"}


def _dockerfile(deployment: Deployment) -> str:
    lines = [
        *_comments(deployment),
        "FROM python:3.12-slim",
        f"COPY {json.dumps([deployment.wheel, '/wheels/'])}",
        f'RUN pip install --no-cache-dir "/wheels/{deployment.wheel}[serve]"',
        *_copies([deployment.model_file, *deployment.weights]),
        f"EXPOSE {CONTAINER_PORT}",
        f"CMD {json.dumps([*deployment.command, f'--port={CONTAINER_PORT}'])}",
    ]
    return "\n".join(lines) + "\n"


def _copies(files: Sequence[str]) -> list[str]:
    """One line for each folder: COPY puts all files that a line names into the same one."""
    folders: dict[PurePosixPath, list[str]] = {}
    for name in files:
        folders.setdefault(PurePosixPath("/models", name).parent, []).append(name)
    return [f"COPY {json.dumps([*names, f'{folder}/'])}" for folder, names in folders.items()]


def _probe() -> str:
    return f"import urllib.request as r; r.urlopen('http://127.0.0.1:{CONTAINER_PORT}/v2/health/ready', timeout=4)"


def _comments(deployment: Deployment) -> list[str]:
    return comments(deployment.name, deployment.config, deployment.promise)


def comments(name: str, config: Config, promise: str) -> list[str]:
    """The lines that each file begins with."""
    words = f"{name}: {config}" + (f"; {promise}" if promise else "")
    return [f"# Written by mlcd {__version__}.", f"# {' '.join(words.split())}"]


_WRITERS: dict[str, Callable[[Deployment], dict[str, str]]] = {
    "compose": _with_image(compose),
    "kubernetes": _with_image(kubernetes),
    "kserve": _with_image(kserve),
    "skyserve": lambda deployment: skyserve(_service(deployment)),
    "triton": _triton,
}
KINDS = tuple(_WRITERS)
