"""What was found in a training script, and the changes that make it a job of mlcd."""

import io
from dataclasses import dataclass
from difflib import unified_diff
from enum import StrEnum
from pathlib import Path, PurePosixPath

NEWLINES = "\r\n"


def python_lines(text: str) -> list[str]:
    """The lines that Python numbers, with their ends; `str.splitlines` also ends lines at form feeds and the like."""
    return list(io.StringIO(text, newline=""))


class Framework(StrEnum):
    """The library whose loop trains; also the name of the template for it."""

    PYTORCH = "pytorch"
    HUGGING_FACE = "huggingface"
    LIGHTNING = "lightning"
    TENSORFLOW = "tensorflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change: lines `line` to `last` (from 1) become `new`; last = line - 1 inserts before `line`.

    why  in a few words, for people
    """

    line: int
    last: int
    new: tuple[str, ...]
    why: str

    def __post_init__(self) -> None:
        if self.line < 1 or self.last < self.line - 1:
            raise ValueError("an edit replaces the lines from `line` to `last`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One call that saves a file.

    path        of the file, or of the folder that it is in; "" where the script does not say it plainly
    expression  then: what the script has for it, cut
    """

    line: int
    path: str = ""
    expression: str = ""

    def __str__(self) -> str:
        return f"saves {self.path}" if self.path else f"saves a file whose name is not plain ({self.expression})"

    @property
    def is_inside(self) -> bool:
        """Whether the path is known and in the script's working folder, so that it can be an output."""
        path = PurePosixPath(self.path)
        outside = path.is_absolute() or ".." in path.parts or self.path.startswith("~") or bool({*"*?"} & {*self.path})
        return bool(self.path) and path.parts != () and not outside


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingScript:
    """A script that trains, and what could be read from it.

    line     where its loop, or the call that trains, begins
    edits    changes that it needs; () if it reports to mlcd already
    notes    what could not be changed, or should be looked at
    batch, epochs, samples  None where the script does not say them plainly
    saves    the calls that save files
    is_ready whether it reports to mlcd already
    """

    path: Path
    source: str
    framework: Framework
    line: int
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()
    batch: int | None = None
    epochs: int | None = None
    samples: int | None = None
    saves: tuple[Save, ...] = ()
    is_ready: bool = False
    keeps_work: bool = False
    several_nodes: bool = False

    @property
    def tells_work(self) -> bool:
        """Whether it numbers its epochs with `mlcd.epochs`, so that it tells how many samples all of them have."""
        return "mlcd.epochs(" in self.edited

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files and folders that it saves in its working folder, as far as their names are in the text."""
        return tuple(save.path for save in self.saves if save.is_inside)

    @property
    def unnamed_saves(self) -> tuple[Save, ...]:
        """The calls whose file is not plain."""
        return tuple(save for save in self.saves if not save.path)

    @property
    def edited(self) -> str:
        """The script with all changes made."""
        lines = python_lines(self.source)
        end = next((end for end in ("\r\n", "\n", "\r") if lines and lines[0].endswith(end)), "\n")
        if lines and not lines[-1].endswith(("\n", "\r")):
            lines[-1] += end
        for edit in sorted(self.edits, key=lambda edit: (edit.line, edit.last), reverse=True):
            lines[edit.line - 1 : edit.last] = [f"{line}{end}" for line in edit.new]
        return "".join(lines)

    def diff(self) -> str:
        """The changes as a unified diff; "" for none."""
        before, after = ([f"{line.rstrip(NEWLINES)}\n" for line in python_lines(t)] for t in (self.source, self.edited))
        return "".join(unified_diff(before, after, str(self.path), str(self.path), n=1))
