"""Find the script that trains."""

import ast
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.scripts.edits import option_notes
from mlcd.scripts.libraries import library_script
from mlcd.scripts.pytorch import pytorch_script
from mlcd.scripts.reading import Source
from mlcd.scripts.saves import saves_of
from mlcd.scripts.script import Save, TrainingScript
from mlcd.untrusted import Malformed, read_named

MOST_BYTES = 2**20
"""A larger file is no script that somebody wrote."""
MOST_FILES = 500
"""Scripts that are read in one folder."""
MOST_TOTAL_BYTES = 8 * 2**20
"""Of all of them together: reading 1 MiB of Python takes a second."""
MOST_FOLDERS = 2_000
MOST_ENTRIES = 10_000
"""Of one folder."""
DEPTH = 3
"""Folders below the first that are looked into."""
SKIPPED = frozenset(("node_modules", "site-packages", "build", "dist", "tests", "test", "__pycache__"))
USUAL = ("train", "main", "run", "finetune", "fit")
"""How the names of scripts that train usually begin, the likeliest first."""


def read_script(path: Path) -> TrainingScript:
    """What a script trains with. Raises BadInput for a file that cannot be read or that has no training in it."""
    found = _read(path)
    if found is None:
        raise BadInput(
            f"--script: {path} has no training loop that mlcd recognises: a `for` with a backward pass, a Trainer of"
            " transformers or Lightning, or Keras' fit; docs/progress.md says how any other script reports its progress"
        )
    return found


def read_saves(path: Path) -> tuple[Save, ...]:
    """What a script saves, whether or not mlcd recognises its training; () for a file that cannot be read."""
    try:
        with _refusals(path):
            return saves_of(_parsed(path))
    except BadInput:
        return ()


def find_scripts(folder: Path) -> tuple[TrainingScript, ...]:
    """The scripts of a folder that train, the likeliest first. Files that cannot be read or parsed are skipped."""
    found = []
    for path in _files(folder, DEPTH):
        try:
            script = _read(path)
        except BadInput:
            continue
        if script is not None:
            found.append(script)
    return tuple(sorted(found, key=lambda script: (_rank(script.path), len(script.path.parts), str(script.path))))


def _rank(path: Path) -> int:
    return next((number for number, name in enumerate(USUAL) if path.stem.lower().startswith(name)), len(USUAL))


def _files(folder: Path, depth: int) -> Iterator[Path]:
    seen = size = folders = 0
    waiting = [(folder, depth)]
    while waiting and folders < MOST_FOLDERS:
        here, left = waiting.pop(0)
        folders += 1
        for entry in _entries(here):
            if entry.is_dir(follow_symlinks=False):
                if left and not (here / entry.name / "pyvenv.cfg").exists():
                    waiting.append((here / entry.name, left - 1))
            elif entry.name.endswith(".py") and not entry.name.startswith("test_"):
                seen += 1
                size += entry.stat(follow_symlinks=False).st_size
                if seen > MOST_FILES or size > MOST_TOTAL_BYTES:
                    return
                yield here / entry.name


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    """The folders and plain files that may be looked into, in the order of their names; [] where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            plain = [
                entry
                for entry in islice(found, MOST_ENTRIES)
                if not entry.name.startswith(".") and entry.name not in SKIPPED
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(plain, key=lambda entry: entry.name)


def _read(path: Path) -> TrainingScript | None:
    with _refusals(path):
        source = _parsed(path)
        found = library_script(path, source) or pytorch_script(path, source)
        return found and replace(found, notes=(*found.notes, *option_notes(source)))


def _parsed(path: Path) -> Source:
    text = read_named(path, most_bytes=MOST_BYTES).decode("utf-8-sig")
    return Source(text, ast.parse(text))


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Raises BadInput with the reason why a script cannot be read."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"--script: {path}: {error.strerror or error}") from error
    except Malformed as error:
        raise BadInput(f"--script: {path} {error.problem}") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput(f"--script: {path} is not a Python script in UTF-8") from error
    except (RecursionError, MemoryError) as error:  # the parser's own answer to deep nesting
        raise BadInput(f"--script: {path} is not a script that can be read: it is nested too deep") from error
    except SyntaxError as error:
        line = f":{error.lineno}:" if error.lineno else ""
        raise BadInput(f"--script: {path}{line} is not Python: {error.msg}") from error
