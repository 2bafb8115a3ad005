"""A lease as a SkyPilot task: the nodes, what is copied to them, and the one command each of them runs."""

import hashlib
import math
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcd.clouds.nodes import PREFIX, NodeOrder
from mlcd.clouds.skypilot.credentials import cloud_of
from mlcd.errors import BadInput

AGENT = ".mlcd-agent"
LEASES = ".mlcd-leases"
"""Folders in a node's home."""
NAME_LENGTH = 50
"""SkyPilot shortens longer names itself on some clouds; below this it only adds the user's hash."""
KILL_SECONDS = 30
ALL_CLOUDS = "skypilot"
"""An infra that stands for every cloud SkyPilot has something on: for `mlcd down`."""
NO_AUTOSTOP = ("slurm",)
"""Clouds on which SkyPilot cannot end idle nodes; there the job's own limits end it, and Slurm gives the nodes back."""
HOME_REGIONS = {"aws": "us-east-1", "gcp": "us-central1", "azure": "eastus"}
"""Where mlcd's prices are from. A bare `aws` means this region, so that SkyPilot does not go on to a dearer one."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkySettings:
    """What a job file says about nodes from SkyPilot. Raises BadInput for what cannot be meant.

    infra         `aws`, `aws/us-east-1`, `gcp/REGION/ZONE`, `k8s/CONTEXT`, `sky/slurm/CLUSTER`, `ssh/POOL`
    secrets       variables of the job that are written nowhere by mlcd; they reach the nodes through SkyPilot
    file_mounts   path on the nodes -> local path or bucket, besides the job's own folder
    live          files of the working folder that are read while the job runs
    outputs       files of the working folder that are brought home at the end; None for all that the job changed
    idle_minutes  after which nodes without a job are taken down by themselves
    """

    infra: str
    use_spot: bool = False
    image_id: str | None = None
    disk_gib: int | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    live: tuple[str, ...] = ()
    outputs: tuple[str, ...] | None = None
    idle_minutes: int = 5

    def __post_init__(self) -> None:
        if not self.cloud or any(not part for part in self.infra.split("/")):
            raise BadInput(f"resources.infra: {self.infra!r} is not CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE")
        if self.idle_minutes < 1:
            raise BadInput("nodes without a job can be taken down after 1 minute at the soonest")
        for name in self.secrets:
            if not _VARIABLE.fullmatch(name):
                raise BadInput(f"secrets: {name!r} is not the name of a variable")

    @property
    def cloud(self) -> str:
        """As SkyPilot calls it."""
        return cloud_of(self.infra)

    @property
    def region(self) -> str | None:
        """The one that was named, else the one mlcd's prices are from."""
        parts = self.infra.removeprefix("sky/").split("/")
        return parts[1] if len(parts) > 1 else HOME_REGIONS.get(self.cloud)

    @property
    def sky_infra(self) -> str:
        """For SkyPilot: with the region always."""
        given = self.infra.removeprefix("sky/")
        return given if "/" in given or self.region is None else f"{given}/{self.region}"

    @property
    def autostop_minutes(self) -> int | None:
        """None where SkyPilot cannot do it."""
        return None if self.cloud in NO_AUTOSTOP else self.idle_minutes


def cluster_name(lease_id: str) -> str:
    """The lease's name as SkyPilot and every cloud accept it: small letters, digits, dashes, and not too long."""
    if not lease_id.startswith(PREFIX):
        raise ValueError(f"a lease's name begins with {PREFIX}")
    plain = re.sub(r"[^a-z0-9]+", "-", lease_id.lower()).strip("-")
    if plain == lease_id and len(plain) <= NAME_LENGTH:
        return plain
    mark = hashlib.sha256(lease_id.encode()).hexdigest()[:8]  # two leases never share a name by being shortened
    return f"{plain[: NAME_LENGTH - 9].rstrip('-')}-{mark}"


def lease_folder(cluster: str) -> str:
    """On the node, from its home."""
    return f"{LEASES}/{cluster}"


def make_task(order: NodeOrder, settings: SkySettings, *, agent: Path) -> dict[str, Any]:
    """The task for `order`, as SkyPilot's YAML would say it; `agent` is what `shipping.ship` made.

    The job itself (setup, run, envs) is in the lease's folder, in job.json, where the agent reads it.
    """
    cluster = cluster_name(order.lease_id)
    resources: dict[str, Any] = {"infra": settings.sky_infra, "instance_type": order.instance}
    if settings.use_spot:
        resources["use_spot"] = True
    if settings.image_id is not None:
        resources["image_id"] = settings.image_id
    if settings.disk_gib is not None:
        resources["disk_size"] = settings.disk_gib
    if settings.cloud in ("aws", "gcp", "azure", "kubernetes"):
        resources["labels"] = {"mlcd": cluster}
    own = {f"~/{AGENT}": str(agent), f"~/{lease_folder(cluster)}": str(order.folder)}
    if taken := set(own) & set(settings.file_mounts):
        raise BadInput(f"file_mounts: {', '.join(sorted(taken))} is mlcd's own folder on the nodes")
    task: dict[str, Any] = {
        "name": cluster,
        "num_nodes": order.count,
        "resources": resources,
        "file_mounts": {**settings.file_mounts, **own},
        "run": run_command(cluster, order.seconds, ordered_at=time.time()),
    }
    if settings.secrets:
        task["secrets"] = dict(settings.secrets)
    return task


def run_command(cluster: str, seconds: float, *, ordered_at: float) -> str:
    """What each node runs: the agent, ended when `seconds` after the order are over even should it hang.

    ordered_at  seconds since 1970; what the launch took is not given to the job on top
    """
    folder = f'"$HOME"/{shlex.quote(lease_folder(cluster))}'
    lines = [
        f'export PYTHONPATH="$HOME"/{AGENT}${{PYTHONPATH:+:$PYTHONPATH}}',
        f'rm -f {folder}/node-"$SKYPILOT_NODE_RANK"/exit.json',  # of the run before, where nodes were resumed
    ]
    limit = ""
    if not math.isinf(seconds):
        most = math.ceil(seconds)
        lines += [
            f"left=$(( {math.ceil(ordered_at + seconds)} - $(date +%s) ))",
            f'[ "$left" -lt {most} ] || left={most}',  # a node whose clock is behind gets no more either
            '[ "$left" -gt 0 ] || { echo "mlcd: the nodes came when their time was over"; exit 124; }',
        ]
        limit = f'timeout --kill-after={KILL_SECONDS} "$left" '
    place = '--rank="$SKYPILOT_NODE_RANK" --addresses="$(echo "$SKYPILOT_NODE_IPS" | paste -sd, -)"'
    lines.append(f"exec {limit}python3 -m mlcd.platforms.agent {folder} --lifeline=none {place}")
    return "\n".join(lines)
