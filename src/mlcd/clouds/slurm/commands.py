"""Slurm's own commands, run with a time limit; what they refuse comes back in Slurm's own words."""

import os
import re
import subprocess

from mlcd.errors import ProviderError

PATIENCE_SECONDS = 30.0
"""How long a command may take; a controller under load answers within seconds."""

_PREFIX = re.compile(r"^\w+: (?:error|fatal): ")
_SILENT = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection timed out")
_INHERITED = ("SLURM_CONF",)
"""Of mlcd's own SLURM_ variables, those that name the cluster; the others describe an allocation mlcd may run in."""


class SlurmRefused(ProviderError):
    """A command of Slurm's failed; `sentence` is what it said."""

    def __init__(self, command: str, sentence: str) -> None:
        super().__init__(f"Slurm's {command} says: {sentence}")
        self.sentence = sentence


class SlurmSilent(SlurmRefused):
    """The controller did not answer: whether it did what it was asked is not known."""


def ask(*command: str, seconds: float = PATIENCE_SECONDS) -> str:
    """The command's output. Raises SlurmRefused, SlurmSilent, and ProviderError where the command is not installed."""
    name = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, no shell; the program is looked up on the user's PATH
            command, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL, env=_env()
        )
    except FileNotFoundError as error:
        raise ProviderError(
            f"Slurm's {name} is not on PATH; run mlcd on a machine of the cluster that you submit jobs from, "
            "or install Slurm's client commands there (Debian: slurm-client)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmSilent(name, f"nothing, for {seconds:.0f} s; is the controller up? (scontrol ping)") from error
    if done.returncode != 0:
        said = _sentence(done.stderr) or _sentence(done.stdout) or f"nothing, with exit code {done.returncode}"
        kind = SlurmSilent if any(words in done.stderr for words in _SILENT) else SlurmRefused
        raise kind(name, said)
    return done.stdout


def rows(output: str, fields: int, command: str) -> list[list[str]]:
    """Lines of `|`-separated fields; the last may hold the separator. Raises ProviderError for anything else."""
    found = [line.split("|", fields - 1) for line in output.splitlines() if line.strip()]
    for row in found:
        if len(row) != fields:
            raise ProviderError(f"mlcd cannot read what Slurm's {command} answered: {'|'.join(row)!r}")
    return found


def _sentence(text: str) -> str:
    """The last thing that was said, without the program's name and what every refusal begins with."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return _PREFIX.sub("", lines[-1].strip()).removeprefix("Batch job submission failed: ")


def _env() -> dict[str, str]:
    """This process's variables, without those of an allocation or of a node that mlcd itself may run in."""
    leak = re.compile(r"SLURM_|MLCD_(?:RANK|ADDRESSES|LEASE)$")
    return {name: value for name, value in os.environ.items() if name in _INHERITED or not leak.match(name)}
