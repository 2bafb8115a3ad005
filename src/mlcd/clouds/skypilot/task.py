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

from mlcd.catalog.places import HOME_REGIONS
from mlcd.clouds.nodes import PREFIX, NodeOrder
from mlcd.clouds.skypilot.credentials import cloud_of
from mlcd.errors import BadInput

AGENT = ".mlcd-agent"
LEASES = ".mlcd-leases"
"""Folders in a node's home."""
NAME_LENGTH = 50
"""SkyPilot shortens longer names on some clouds; up to this length it only adds the user's hash."""
KILL_AFTER_SECONDS = 30
ALL_CLOUDS = "skypilot"
"""An infra that means every cloud on which SkyPilot has clusters: for `mlcd down`."""
NO_AUTOSTOP = ("slurm",)
"""Clouds where SkyPilot cannot end idle nodes; there the job's own limit ends it, and Slurm frees the nodes."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkySettings:
    """The job file's settings for nodes from SkyPilot. Raises BadInput for invalid ones.

    infra         `aws`, `aws/us-east-1`, `gcp/REGION/ZONE`, `k8s/CONTEXT`, `sky/slurm/CLUSTER`, `ssh/POOL`
    secrets       variables of the job that mlcd never writes to disk; they reach the nodes through SkyPilot
    file_mounts   path on the nodes -> local path or bucket, besides the job's own folder
    live          files of the working folder that are read while the job runs
    outputs       files of the working folder that are fetched at the end; None for all that the job changed
    idle_minutes  after which SkyPilot takes down nodes without a job
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
            raise BadInput(f"idle_minutes: must be at least 1 (got {self.idle_minutes})")
        for name in self.secrets:
            if not _VARIABLE.fullmatch(name):
                raise BadInput(f"secrets: {name!r} is not a variable name")

    @property
    def cloud(self) -> str:
        """The cloud's name in SkyPilot."""
        return cloud_of(self.infra)

    @property
    def region(self) -> str | None:
        """The region in `infra`, else the one of mlcd's prices."""
        parts = self.infra.removeprefix("sky/").split("/")
        return parts[1] if len(parts) > 1 else HOME_REGIONS.get(self.cloud)

    @property
    def sky_infra(self) -> str:
        """`infra` for SkyPilot, always with the region."""
        given = self.infra.removeprefix("sky/")
        return given if "/" in given or self.region is None else f"{given}/{self.region}"

    @property
    def autostop_minutes(self) -> int | None:
        """`idle_minutes`; None where SkyPilot cannot end idle nodes."""
        return None if self.cloud in NO_AUTOSTOP else self.idle_minutes


def cluster_name(lease_id: str) -> str:
    """The lease's name as SkyPilot and every cloud accept it: lowercase letters, digits and dashes, not too long."""
    if not lease_id.startswith(PREFIX):
        raise ValueError(f"lease_id: must begin with {PREFIX} (got {lease_id!r})")
    plain = re.sub(r"[^a-z0-9]+", "-", lease_id.lower()).strip("-")
    if plain == lease_id and len(plain) <= NAME_LENGTH:
        return plain
    mark = hashlib.sha256(lease_id.encode()).hexdigest()[:8]  # shortening never gives two leases the same name
    return f"{plain[: NAME_LENGTH - 9].rstrip('-')}-{mark}"


def lease_folder(cluster: str) -> str:
    """The lease's folder on a node, relative to its home."""
    return f"{LEASES}/{cluster}"


def make_task(order: NodeOrder, settings: SkySettings, *, agent: Path) -> dict[str, Any]:
    """The task for `order`, as in SkyPilot's YAML; `agent` is the folder from `shipping.ship`.

    The job itself (setup, run, envs) is in the lease's folder, in job.json, where the agent reads it.
    """
    cluster = cluster_name(order.lease_id)
    resources: dict[str, Any] = {"infra": settings.sky_infra, "instance_type": order.instance}
    if settings.use_spot or order.spot:
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
    """The command of each node: the agent, killed `seconds` after the order even if it hangs.

    ordered_at  seconds since 1970; the time the launch took counts too
    """
    folder = f'"$HOME"/{shlex.quote(lease_folder(cluster))}'
    lines = [f'export PYTHONPATH="$HOME"/{AGENT}${{PYTHONPATH:+:$PYTHONPATH}}']
    limit = ""
    if not math.isinf(seconds):
        most = math.ceil(seconds)
        lines += [
            f"remaining=$(( {math.ceil(ordered_at + seconds)} - $(date +%s) ))",
            f'[ "$remaining" -lt {most} ] || remaining={most}',  # a node whose clock is behind gets no extra time
            '[ "$remaining" -gt 0 ] || { echo "mlcd: the nodes started after their time was over"; exit 124; }',
        ]
        limit = f'timeout --kill-after={KILL_AFTER_SECONDS} "$remaining" '
    place = '--rank="$SKYPILOT_NODE_RANK" --addresses="$(echo "$SKYPILOT_NODE_IPS" | paste -sd, -)"'
    lines.append(f"exec {limit}python3 -m mlcd.platforms.agent {folder} --lifeline=none {place}")
    return "\n".join(lines)
