"""What a node needs of mlcd: the agent with its platforms, and what a training script may import."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHIPPED = ("__init__.py", "version.py", "errors.py", "untrusted", "platforms", "training", "torch", "keras")
"""Parts of the package mlcd; they need only the standard library, plus torch or keras where a job uses them."""


def ship(folder: Path) -> Path:
    """A folder below `folder` with the package `mlcd` as nodes need it; put it on their Python path.

    It is named by a hash of its content and created atomically, so that concurrent launches can share it.
    """
    package = Path(__file__).resolve().parents[2]
    files = sorted(file for name in SHIPPED for file in _files(package / name))
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes() + b"\0")
    target = folder / f"agent-{digest.hexdigest()[:12]}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix="agent-part-", dir=folder))
        for file in files:
            copy = part / "mlcd" / file.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
        try:
            part.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return target


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in path.rglob("*.py") if file.is_file())
    else:
        yield path
