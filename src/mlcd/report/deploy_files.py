"""The files that serve a recommended configuration elsewhere: Docker Compose, Kubernetes, Triton. Text only."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from mlcd.server.limits import Limits
from mlcd.space import Config
from mlcd.version import __version__

CONTAINER_PORT = 8000
MEMORY_FACTOR = 1.5
"""Requested memory / peak memory in the load test: a server that reaches its limit is killed."""
IN_FLIGHT_FACTOR = 2.0
"""Memory / bytes of requests in flight: a batch is a copy of its requests."""
_QUEUE_DELAY_SECONDS = 0.001  # the default of our server, so that Triton waits as long for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What to serve, and how.

    name        of the job
    model_file  the model's file name in the folder that is written
    weights     files beside it that hold its weights
    wheel       the wheel of mlcd in that folder: the image is built from it, because no index need have this mlcd
    cpus        processors that the configuration uses
    sizes       of open axes of the model
    promise     what it sustained, in words: a comment in each file
    limits      on what clients may take of the server
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

    @property
    def label(self) -> str:
        """The name in the form of Kubernetes and Compose: at most 63 lower-case letters, digits and -."""
        label = re.sub(r"[^a-z0-9-]+", "-", self.name.lower()).strip("-")[:63].strip("-")
        return label or "model"

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


def _compose(deployment: Deployment) -> dict[str, str]:
    service: dict[str, Any] = {
        "build": ".",
        "image": f"{deployment.label}:latest",
        "restart": "unless-stopped",
        "ports": [f"{CONTAINER_PORT}:{CONTAINER_PORT}"],
        "cpus": deployment.cpus,
        "ulimits": {"nofile": deployment.limits.descriptors},
        "healthcheck": {
            "test": ["CMD", "python", "-c", _probe()],
            "interval": "10s",
            "timeout": "5s",
            "start_period": "60s",
        },
    }
    if deployment.memory_mib is not None:
        service["mem_limit"] = f"{deployment.memory_mib}m"
    return {
        "compose.yaml": _yaml(deployment, {"services": {deployment.label: service}}),
        "Dockerfile": _dockerfile(deployment),
    }


def _kubernetes(deployment: Deployment) -> dict[str, str]:
    labels = {"app": deployment.label}
    limits: dict[str, str] = {"cpu": str(deployment.cpus)}
    if deployment.memory_mib is not None:
        limits["memory"] = f"{deployment.memory_mib}Mi"
    container = {
        "name": "server",
        "image": f"{deployment.label}:latest",
        "ports": [{"containerPort": CONTAINER_PORT}],
        "resources": {"requests": limits, "limits": limits},
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": CONTAINER_PORT}, "periodSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/v2/health/live", "port": CONTAINER_PORT},
            "initialDelaySeconds": 60,
            "periodSeconds": 10,
        },
    }
    parts = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": deployment.label, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": deployment.label, "labels": labels},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": CONTAINER_PORT}]},
        },
    ]
    return {"kubernetes.yaml": _yaml(deployment, *parts), "Dockerfile": _dockerfile(deployment)}


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
        f"COPY {json.dumps([deployment.model_file, *deployment.weights, '/models/'])}",
        f"EXPOSE {CONTAINER_PORT}",
        f"CMD {json.dumps([*deployment.command, f'--port={CONTAINER_PORT}'])}",
    ]
    return "\n".join(lines) + "\n"


def _probe() -> str:
    return f"import urllib.request as r; r.urlopen('http://127.0.0.1:{CONTAINER_PORT}/v2/health/ready', timeout=4)"


def _yaml(deployment: Deployment, *documents: Mapping[str, Any]) -> str:
    """YAML documents; PyYAML quotes what needs quotes."""
    text = yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return "\n".join([*_comments(deployment), text])


def _comments(deployment: Deployment) -> list[str]:
    words = f"{deployment.name}: {deployment.config}" + (f"; {deployment.promise}" if deployment.promise else "")
    return [f"# Written by mlcd {__version__}.", f"# {' '.join(words.split())}"]


_WRITERS: dict[str, Callable[[Deployment], dict[str, str]]] = {
    "compose": _compose,
    "kubernetes": _kubernetes,
    "triton": _triton,
}
KINDS = tuple(_WRITERS)
