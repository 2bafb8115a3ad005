"""Runs Slurm's commands with a timeout; errors carry Slurm's own message."""

import re
import subprocess

from mlcd.errors import ProviderError
from mlcd.home import job_environment

COMMAND_TIMEOUT_SECONDS = 30.0
"""The timeout of a command; a controller under load answers within seconds."""

_PREFIX = re.compile(r"^\w+: (?:error|fatal): ")
_UNREACHABLE = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection timed out")
_INHERITED = ("SLURM_CONF",)
"""Of mlcd's own SLURM_ variables, those that name the cluster; the others describe an allocation mlcd may run in."""


class SlurmRefused(ProviderError):
    """A Slurm command failed; `sentence` is its error message."""

    def __init__(self, command: str, sentence: str) -> None:
        super().__init__(f"Slurm's {command} failed: {sentence}")
        self.sentence = sentence


class SlurmUnreachable(SlurmRefused):
    """The controller did not answer: whether it carried the command out is unknown."""


def ask(*command: str, seconds: float = COMMAND_TIMEOUT_SECONDS) -> str:
    """The command's output. Raises SlurmRefused, SlurmUnreachable; ProviderError where it is not installed."""
    name = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, no shell; the program is looked up on the user's PATH
            command, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL, env=_env()
        )
    except FileNotFoundError as error:
        raise ProviderError(
            f"Slurm's {name} is not on PATH; run mlcd on a machine from which you submit jobs to the cluster, "
            "or install Slurm's client commands (Debian: slurm-client)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmUnreachable(
            name, f"no answer within {seconds:.0f} s; is the controller up? (scontrol ping)"
        ) from error
    if done.returncode != 0:
        if "configuration source" in done.stderr:
            problem = "finds no cluster here (no slurm.conf); run mlcd where you submit jobs to the cluster"
            raise SlurmRefused(name, f"it {problem}, or set SLURM_CONF to its configuration")
        message = _sentence(done.stderr) or _sentence(done.stdout) or f"no message, exit code {done.returncode}"
        kind = SlurmUnreachable if any(words in done.stderr for words in _UNREACHABLE) else SlurmRefused
        raise kind(name, message)
    return done.stdout


def rows(output: str, fields: int, command: str) -> list[list[str]]:
    """Lines of `|`-separated fields; the last may contain the separator. Raises ProviderError for anything else."""
    found = [line.split("|", fields - 1) for line in output.splitlines() if line.strip()]
    for row in found:
        if len(row) != fields:
            raise ProviderError(f"mlcd cannot read what Slurm's {command} answered: {'|'.join(row)!r}")
    return found


def _sentence(text: str) -> str:
    """The last line, without the program's name and the prefix that all refusals share."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return _PREFIX.sub("", lines[-1].strip()).removeprefix("Batch job submission failed: ")


def _env() -> dict[str, str]:
    """What jobs may know of this process's variables, without those of an allocation or node that mlcd may run in."""
    leak = re.compile(r"SLURM_|MLCD_(?:RANK|ADDRESSES|LEASE)$")
    return {name: value for name, value in job_environment().items() if name in _INHERITED or not leak.match(name)}
