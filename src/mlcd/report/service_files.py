"""A server in a container, and the files that start it: Docker Compose, Kubernetes, KServe, SkyServe. Text only."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from mlcd.report.autoscaling import follows, on_schedule, serve_policy
from mlcd.run.findings import DayPlan

CONTAINER_PORT = 8000
LEAST_START_SECONDS = 60
START_FACTOR = 3.0
"""Time that a new server is given / time that it took here: an image is pulled and weights are read first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's folder or file on this machine, and where a container finds it."""

    here: str
    there: str

    @property
    def parent(self) -> str:
        """The folder that is mounted: a claim is one volume."""
        return self.there.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """The nodes that a server was measured on, in SkyPilot's words, and what they are given.

    secrets  names of variables; their values are told to `sky serve up --secret`
    """

    infra: str
    instance_type: str
    image_id: str = ""
    workdir: str = ""
    secrets: tuple[str, ...] = ()
    file_mounts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A server in a container.

    label     its name in the form of Kubernetes and Compose
    comments  lines that each file begins with
    image     is built from the Dockerfile beside the files where `is_built`; "": none is known
    command   of the container
    run       the same for the shell, on a machine without containers; `setup` comes first there
    probe     a command that tells whether the server is ready, for Compose; empty: none
    ready, live  paths that answer 200
    envs      variables of the container
    gpus      how many it needs; gpu: their name for SkyPilot
    model     that is mounted; None: it is in the image, or is fetched by the server
    start_seconds  how long it took to become ready
    rate      requests a second that it holds
    day       replicas by the hour; None: `servers` all the time
    rented    nodes of SkyPilot's that it was measured on; None: other ones
    """

    label: str
    comments: tuple[str, ...]
    image: str
    command: tuple[str, ...]
    run: str
    ready: str
    live: str
    rate: float
    is_built: bool = False
    setup: str = ""
    probe: tuple[str, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: int = 0
    gpu: str = ""
    descriptors: int | None = None
    model: Model | None = None
    start_seconds: float = 0.0
    day: DayPlan | None = None
    servers: int = 1
    rented: Rented | None = None

    @property
    def wait_seconds(self) -> int:
        """How long a new server may take to become ready."""
        return max(math.ceil(self.start_seconds * START_FACTOR), LEAST_START_SECONDS)

    @property
    def replicas(self) -> int:
        """How many to begin with."""
        return self.day.replicas[0] if self.day is not None else self.servers


def compose(service: Service) -> dict[str, str]:
    """A Compose file."""
    made: dict[str, Any] = {"build": "."} if service.is_built else {}
    made |= {
        "image": service.image,
        "restart": "unless-stopped",
        "ports": [f"127.0.0.1:{CONTAINER_PORT}:{CONTAINER_PORT}"],  # servers of models ask nobody who they are
    }
    if not service.is_built:
        made["entrypoint"] = [_for_compose(word) for word in service.command]
    if service.envs:
        made["environment"] = {name: _for_compose(value) for name, value in service.envs.items()}
    if service.cpus is not None:
        made["cpus"] = service.cpus
    if service.descriptors is not None:
        made["ulimits"] = {"nofile": service.descriptors}
    if service.probe:
        times = {"interval": "10s", "timeout": "5s", "start_period": f"{service.wait_seconds}s"}
        made["healthcheck"] = {"test": ["CMD", *service.probe], **times}
    if service.memory_mib is not None:
        made["mem_limit"] = f"{service.memory_mib}m"
    if service.model is not None:
        made["volumes"] = [_for_compose(f"{service.model.here}:{service.model.there}:ro")]
    if service.gpus:
        device = {"driver": "nvidia", "count": service.gpus, "capabilities": ["gpu"]}
        made["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"compose.yaml": _yaml(service, {"services": {service.label: made}})}


def kubernetes(service: Service) -> dict[str, str]:
    """A Deployment and its Service; for traffic that changes, also what scales it."""
    labels = {"app": service.label}
    pod = {"containers": [_container(service)], **_volumes(service)}
    parts = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": service.label, "labels": labels},
            "spec": {
                "replicas": service.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service.label, "labels": labels},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": CONTAINER_PORT}]},
        },
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.label}
    return {"kubernetes.yaml": _yaml(service, *parts), **_scaling(service, target)}


def kserve(service: Service) -> dict[str, str]:
    """An InferenceService of KServe, in its RawDeployment mode, with the container as its predictor."""
    low, high = (
        (min(service.day.replicas), max(service.day.replicas)) if service.day is not None else (service.servers,) * 2
    )
    made = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": service.label,
            "annotations": {
                "serving.kserve.io/deploymentMode": "RawDeployment",
                **({"serving.kserve.io/autoscalerClass": "external"} if service.day is not None else {}),
            },
        },
        "spec": {
            "predictor": {
                "minReplicas": low,
                "maxReplicas": high,
                "containers": [{**_container(service), "name": "kserve-container"}],
                **_volumes(service),
            }
        },
    }
    # KServe names the Deployment of a predictor so.
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{service.label}-predictor"}
    return {"inferenceservice.yaml": _yaml(service, made), **_scaling(service, target)}


def skyserve(service: Service) -> dict[str, str]:
    """A service of SkyServe: `sky serve up service.yaml`."""
    probe = {"path": service.ready, "initial_delay_seconds": service.wait_seconds}
    policy: dict[str, Any] = {"replicas": service.servers}
    if service.day is not None:
        policy = {"replica_policy": serve_policy(service.day)}
    rented = service.rented
    made: dict[str, Any] = {
        "name": service.label,
        "service": {"readiness_probe": probe, **policy},
        "resources": {"ports": CONTAINER_PORT, **_sky_resources(service)},
    }
    if service.is_built:
        made["workdir"] = "."
    elif rented is not None and rented.workdir:
        made["workdir"] = rented.workdir
    if service.envs:
        made["envs"] = dict(service.envs)
    if rented is not None and rented.secrets:
        made["secrets"] = dict.fromkeys(rented.secrets)
    mounts = dict(rented.file_mounts) if rented is not None else {}
    if service.model is not None:
        mounts[service.model.there] = service.model.here
    if mounts:
        made["file_mounts"] = mounts
    if service.setup:
        made["setup"] = service.setup
    made["run"] = service.run
    return {"service.yaml": _yaml(service, made)}


def _sky_resources(service: Service) -> dict[str, Any]:
    """The nodes that it was measured on; for a server of other machines, what it needs."""
    found: dict[str, Any] = {}
    image = f"docker:{service.image}" if service.image and not service.is_built else ""
    if service.rented is not None:
        image = service.rented.image_id or image
        found |= {"infra": service.rented.infra, "instance_type": service.rented.instance_type}
    else:
        if service.cpus is not None:
            found["cpus"] = f"{service.cpus}+"
        if service.memory_mib is not None:
            found["memory"] = f"{math.ceil(service.memory_mib / 1024)}+"
        if service.gpus and service.gpu:
            found["accelerators"] = {service.gpu: service.gpus}
    if image:
        found["image_id"] = image
    return found


def _for_compose(text: str) -> str:
    """Compose replaces $NAME itself, in every value; $$ is what the container gets as $."""
    return text.replace("$", "$$")


def _for_kubernetes(text: str) -> str:
    """Kubernetes replaces $(NAME) in commands and variables; $$( is what the container gets as $(."""
    return text.replace("$(", "$$(")


def _container(service: Service) -> dict[str, Any]:
    limits: dict[str, str] = {}
    if service.cpus is not None:
        limits["cpu"] = str(service.cpus)
    if service.memory_mib is not None:
        limits["memory"] = f"{service.memory_mib}Mi"
    if service.gpus:
        limits["nvidia.com/gpu"] = str(service.gpus)
    made: dict[str, Any] = {"name": "server", "image": service.image}
    if not service.is_built:
        made["command"] = [_for_kubernetes(word) for word in service.command]
    if service.envs:
        made["env"] = [{"name": name, "value": _for_kubernetes(value)} for name, value in service.envs.items()]
    made["ports"] = [{"containerPort": CONTAINER_PORT}]
    if limits:
        made["resources"] = {"requests": limits, "limits": limits}
    period = 10
    made |= {
        "startupProbe": {
            "httpGet": {"path": service.ready, "port": CONTAINER_PORT},
            "periodSeconds": period,
            "failureThreshold": math.ceil(service.wait_seconds / period),
        },
        "readinessProbe": {"httpGet": {"path": service.ready, "port": CONTAINER_PORT}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": service.live, "port": CONTAINER_PORT}, "periodSeconds": 10},
    }
    if service.model is not None:
        made["volumeMounts"] = [{"name": "model", "mountPath": service.model.parent, "readOnly": True}]
    return made


def _volumes(service: Service) -> dict[str, Any]:
    if service.model is None:
        return {}
    return {"volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": f"{service.label}-model"}}]}


def _scaling(service: Service, target: Mapping[str, str]) -> dict[str, str]:
    """What scales a Deployment with traffic that changes: one of the two files is to be applied."""
    if service.day is None:
        return {}
    either = f"# Apply keda.yaml or hpa.yaml, not both. {service.label} is started with {service.replicas} replicas."
    made = {"hpa.yaml": follows(service.label, target, service.day)}
    if (scheduled := on_schedule(service.label, target, service.day)) is not None:
        made["keda.yaml"] = scheduled
    return {name: f"{either}\n{_yaml(service, part)}" for name, part in made.items()}


def _yaml(service: Service, *documents: Mapping[str, Any]) -> str:
    """YAML documents; PyYAML quotes what needs quotes."""
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return "\n".join([*service.comments, text])


class _Plain(yaml.SafeDumper):
    """Writes equal parts twice instead of as an anchor and an alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


WRITERS: Mapping[str, Callable[[Service], dict[str, str]]] = {
    "compose": compose,
    "kubernetes": kubernetes,
    "kserve": kserve,
    "skyserve": skyserve,
}
