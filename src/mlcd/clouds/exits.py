"""How a node ended, as its agent wrote it into the lease's folder; the job can write there too."""

from dataclasses import dataclass
from pathlib import Path

from mlcd.untrusted import Fields, printable, read_json

MOST_CPU_SECONDS = 1e12
"""Thirty years of a thousand processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExit:
    """The content of node-R/exit.json.

    code         0 where the job succeeded
    kind         see mlcd.platforms.agent: "out-of-memory", "killed", "ended", "job-failed", ""
    cpu_seconds  that its processes used; None where they were not measured
    """

    rank: int
    code: int
    kind: str = ""
    message: str = ""
    cpu_seconds: float | None = None


def exit_file(folder: Path, rank: int) -> Path:
    """The file in a lease's folder."""
    return folder / f"node-{rank}" / "exit.json"


def read_exit(folder: Path, rank: int, *, below: Path | None = None) -> NodeExit | None:
    """How a node ended; None while the file does not exist. Raises Malformed (NotJson: maybe half of it), OSError.

    below  a folder above the lease's that is ours: no link may be on the way from there
    """
    path = exit_file(folder, rank)
    try:
        fields = Fields(read_json(path, below=below or folder), str(path))
    except FileNotFoundError:
        return None
    return NodeExit(
        rank=rank,
        code=fields.whole("code", least=-(2**31), most=2**31),
        kind=fields.text("kind", most_characters=100) if "kind" in fields else "",
        message=printable(fields.text("message")) if "message" in fields else "",
        cpu_seconds=fields.number("cpu_seconds", least=0, most=MOST_CPU_SECONDS) if "cpu_seconds" in fields else None,
    )
