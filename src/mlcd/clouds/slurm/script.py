"""The batch job of a lease: the sbatch command, and the script it runs on the first node."""

import math
import shlex
import sys
from pathlib import Path

from mlcd.clouds.nodes import NodeOrder, agent_command
from mlcd.clouds.slurm.partitions import Partition

SCRIPT = "slurm.sh"
OUTPUT = "slurm.out"
"""Files in the lease's folder: the batch script, and Slurm's output. The job's own output is in node-R/log.txt."""

_ADDRESSES = """\
if ! command -v scontrol > /dev/null; then
  echo "mlcd: Slurm's scontrol is not on PATH on node $(hostname)" >&2
  exit 127
fi
addresses=
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  address=$(scontrol --oneliner show node "$node" | tr ' ' '\\n' | sed -n 's/^NodeAddr=//p' | head -n 1)
  address=${address:-$node}
  number=$(getent ahostsv4 "$address" | { read -r first rest; echo "$first"; })
  case "$number" in
    '' | 127.*) ;;
    *) address=$number ;;
  esac
  addresses=${addresses:+$addresses,}$address
done
export MLCD_ADDRESSES="$addresses"
"""
"""Slurm's address of each node, in order of rank, as an IP address, so that nodes find each other whatever their names
are. A name that resolves to loopback (127.0.1.1 in many /etc/hosts) stays a name."""


def submission(order: NodeOrder, partition: Partition) -> list[str]:
    """The sbatch command of a lease.

    Prices are per node, so whole nodes are requested: with `--exclusive` no other job disturbs the measurement, and all
    CPUs, GPUs and memory of the node belong to the job. `--no-requeue`: Slurm does not restart a job that lost a node
    without mlcd's knowledge. `--time` is Slurm's own dead-man's switch.
    """
    folder = str(order.folder)
    command = [
        "sbatch",
        "--parsable",
        f"--job-name={order.lease_id}",
        f"--partition={order.instance}",
        f"--nodes={order.count}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--no-requeue",
        "--export=ALL",
        f"--time={time_limit(order.seconds, partition.max_minutes)}",
        f"--chdir={folder}",
        f"--output={escaped_path(f'{folder}/{OUTPUT}')}",
        "--open-mode=append",
    ]
    if partition.gpus:
        command.append(f"--gres=gpu:{partition.gpus}")
    return [*command, f"{folder}/{SCRIPT}"]


def batch_script(order: NodeOrder, *, agent: Path) -> str:
    """The script for sbatch: sets the nodes' addresses, then runs one agent on each node until all have ended.

    agent  the folder from `shipping.ship`: the agent, and a job with a Python of its own, import mlcd from there
    """
    srun = [
        "srun",
        f"--nodes={order.count}",
        f"--ntasks={order.count}",
        "--ntasks-per-node=1",
        "--distribution=block",
        "--cpu-bind=none",  # the job may use the whole node, not only the agent's CPU
        "--mpi=none",
        "--input=none",
        "--kill-on-bad-exit=0",  # mlcd decides what a failed node means; a server may outlive its workers
        "--wait=0",
    ]
    python, tree = shlex.quote(str(Path(sys.executable).parent)), shlex.quote(str(agent))
    return (
        "#!/bin/sh\n"
        f"# {order.lease_id}: written by mlcd\n"
        f"export MLCD_LEASE={shlex.quote(order.lease_id)}\n"
        f'export PATH={python}:"$PATH"  # `python` is mlcd\'s own unless the job changes PATH\n'
        f"export PYTHONPATH={tree}${{PYTHONPATH:+:$PYTHONPATH}}\n"
        f"{_ADDRESSES}"
        f"exec {shlex.join(srun)} {shlex.join(agent_command(order.folder, lifeline='file'))}\n"
    )


def time_limit(seconds: float, max_minutes: int | None) -> str:
    """Minutes for `--time`: one more than the agents need to end by themselves, at most the partition's limit.

    The seconds are what was authorised, not what the job needs, so on a partition that allows less, its limit is used.
    """
    wanted = math.inf if math.isinf(seconds) else math.ceil(seconds / 60) + 1
    allowed = min(wanted, math.inf if max_minutes is None else max_minutes)
    return "UNLIMITED" if math.isinf(allowed) else str(int(allowed))


def is_limited_by_partition(seconds: float, max_minutes: int | None) -> bool:
    """Whether the partition's limit ends the job before the order's seconds are over."""
    return max_minutes is not None and max_minutes * 60 < seconds


def escaped_path(path: str) -> str:
    """A path for --output, escaped: Slurm would replace %j and the like."""
    return path.replace("%", "%%")
