"""The batch job of a lease: how sbatch is called, and the script it runs on the first node."""

import math
import shlex
import sys
from pathlib import Path

from mlcd.clouds.nodes import NodeOrder, agent_command
from mlcd.clouds.slurm.partitions import Partition

SCRIPT = "slurm.sh"
OUTPUT = "slurm.out"
"""In the lease's folder: the batch job, and what Slurm says about it. The job's own output is in node-R/log.txt."""

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
"""Slurm's own address of each node, in the order of the ranks, as a number: the nodes of a job find each other by it
whatever their names are. A name that stands for the node itself (127.0.1.1 in many /etc/hosts) stays a name."""


def submission(order: NodeOrder, partition: Partition) -> list[str]:
    """The sbatch command of a lease.

    A price is for a whole node, so whole nodes are asked for: with `--exclusive` nobody else's job is measured, and all
    processors, GPUs and memory of the node are the job's. `--no-requeue`: a job that lost a node is not started again
    behind mlcd's back. `--time` is Slurm's own dead-man's switch.
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
        f"--output={pattern(f'{folder}/{OUTPUT}')}",
        "--open-mode=append",
    ]
    if partition.gpus:
        command.append(f"--gres=gpu:{partition.gpus}")
    return [*command, f"{folder}/{SCRIPT}"]


def batch_script(order: NodeOrder) -> str:
    """What sbatch runs: the nodes' addresses, then one agent on each node until all have ended."""
    srun = [
        "srun",
        f"--nodes={order.count}",
        f"--ntasks={order.count}",
        "--ntasks-per-node=1",
        "--distribution=block",
        "--cpu-bind=none",  # the agent's processes are the node's: no one of them is bound to the agent's processor
        "--mpi=none",
        "--input=none",
        "--kill-on-bad-exit=0",  # a node that failed is seen by mlcd, which decides; a server may outlive its workers
        "--wait=0",
    ]
    python = shlex.quote(str(Path(sys.executable).parent))
    return (
        "#!/bin/sh\n"
        f"# {order.lease_id}: written by mlcd\n"
        f"export MLCD_LEASE={shlex.quote(order.lease_id)}\n"
        f'export PATH={python}:"$PATH"  # `python` is mlcd\'s own, as long as the job does not say otherwise\n'
        f"{_ADDRESSES}"
        f"exec {shlex.join(srun)} {shlex.join(agent_command(order.folder, lifeline='file'))}\n"
    )


def time_limit(seconds: float, max_minutes: int | None) -> str:
    """Minutes for `--time`: one more than the agents need to end by themselves, as far as the partition allows.

    The seconds are what was authorised, not what the job needs, so a partition that allows less is asked for all it
    allows.
    """
    wanted = math.inf if math.isinf(seconds) else math.ceil(seconds / 60) + 1
    allowed = min(wanted, math.inf if max_minutes is None else max_minutes)
    return "UNLIMITED" if math.isinf(allowed) else str(int(allowed))


def is_cut(seconds: float, max_minutes: int | None) -> bool:
    """Whether the partition ends the job before the order's seconds are over."""
    return max_minutes is not None and max_minutes * 60 < seconds


def pattern(path: str) -> str:
    """A path for --output, where Slurm replaces %j and the like."""
    return path.replace("%", "%%")
