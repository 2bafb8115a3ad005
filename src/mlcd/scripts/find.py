"""Find the script that trains."""

import ast
from collections.abc import Iterator
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.scripts.libraries import library_script
from mlcd.scripts.pytorch import pytorch_script
from mlcd.scripts.reading import Source
from mlcd.scripts.script import TrainingScript
from mlcd.untrusted import Malformed, read_named

MOST_BYTES = 2**20
"""A larger file is no script that somebody wrote."""
MOST_FILES = 500
"""Scripts that are read in one folder."""
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
    seen = 0
    waiting = [(folder, depth)]
    while waiting:
        here, left = waiting.pop(0)
        try:
            entries = sorted(here.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink() or entry.name in SKIPPED:
                continue
            if entry.is_dir() and left and not (entry / "pyvenv.cfg").exists():
                waiting.append((entry, left - 1))
            elif entry.suffix == ".py" and entry.is_file() and not entry.name.startswith("test_"):
                seen += 1
                if seen > MOST_FILES:
                    return
                yield entry


def _read(path: Path) -> TrainingScript | None:
    try:
        text = read_named(path, most_bytes=MOST_BYTES).decode("utf-8-sig")
        tree = ast.parse(text)
    except OSError as error:
        raise BadInput(f"--script: {path}: {error.strerror or error}") from error
    except Malformed as error:
        raise BadInput(f"--script: {path} {error.problem}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"--script: {path} is not a Python script in UTF-8") from error
    except SyntaxError as error:
        raise BadInput(f"--script: {path}:{error.lineno}: is not Python: {error.msg}") from error
    source = Source(text, tree)
    return library_script(path, source) or pytorch_script(path, source)
