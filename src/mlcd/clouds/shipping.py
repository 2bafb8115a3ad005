"""What nodes and functions get of mlcd: the modules that a job may import there, and everything those import.

The list is read from the package's own import statements, so that it cannot miss a module. Every engine that copies
mlcd uses the folder that `ship` makes: Slurm and SkyPilot put it on the nodes' Python path, Lithops sends it along.
`mlcd.platforms.shipped`, which the copied package imports first, names what was not copied.
"""

import ast
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from mlcd.errors import MlcdError

PACKAGE = Path(__file__).resolve().parents[1]
GUARD = "mlcd.platforms.shipped"
"""Imported by the copied mlcd/__init__.py before anything else."""

NODES: Mapping[str, tuple[str, ...]] = {
    "mlcd.platforms": (),
    "mlcd.training": (),
    "mlcd.torch": ("torch", "lightning", "pytorch_lightning", "transformers"),
    "mlcd.keras": ("keras", "numpy", "tensorflow"),
}
"""What runs on nodes and inside a training script -> the packages that it needs besides the standard library."""
SERVER: Mapping[str, tuple[str, ...]] = {
    **NODES,
    "mlcd.server": ("google", "httptools", "numpy", "onnx", "onnxruntime", "starlette", "torch", "uvicorn"),
}
"""The same for mlcd's own server."""
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    GUARD: (),
    "mlcd.clouds.functions.lithops.worker": ("lithops", "numpy"),
    "mlcd.workloads": ("numpy", "torch"),
}
"""The same for functions."""


class NeedsPackage(MlcdError):
    """A module needs a package that nodes are not known to have."""


def ship(folder: Path, roots: Mapping[str, tuple[str, ...]] = NODES) -> Path:
    """A folder below `folder` with the package `mlcd` as nodes need it: put it first on their Python path.

    It is named by a hash of its content and created atomically, so that concurrent launches can share it; one that was
    damaged since is made again. Raises MlcdError where this installation of mlcd lacks a file.
    """
    contents = {file: _content(PACKAGE / file) for file in _shipped_files(tuple(roots.items()))}
    digest = hashlib.sha256()
    for file, content in contents.items():
        digest.update(f"{file.as_posix()}\0".encode() + content + b"\0")
    target = folder / f"agent-{digest.hexdigest()[:12]}"
    if target.exists() and not _holds(target, contents):
        shutil.rmtree(target)
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix="agent-part-", dir=folder))
        for file, content in contents.items():
            copy = part / "mlcd" / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
        try:
            part.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return target


def closure(root: str, *, needs: Sequence[str] = (), package: Path = PACKAGE) -> set[Path]:
    """The files of `root` (a module, or a package with all its modules) and of all modules of mlcd that it imports.

    Relative to the package; with the __init__.py of every package around them, which Python runs first.
    Imports inside functions count; those under `if TYPE_CHECKING` do not. Raises NeedsPackage where one of the modules
    imports what is neither mlcd, the standard library nor in `needs`, and MlcdError where a module is missing.
    """
    found: set[Path] = set()
    waiting = list(_modules_of(root, package))
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        waiting += [parent for parent in _package_files(file, package) if parent not in found]
        for name, line in _imports(file, package):
            top = name.partition(".")[0]
            if top == "mlcd":
                waiting.append(_file_of(name, package, f"{file}:{line} imports it"))
            elif top not in sys.stdlib_module_names and top not in needs:
                raise NeedsPackage(f"{file}:{line}: needs the package {top}, which {root} may not expect on a node")
    return {file.relative_to(package) for file in found}


@cache
def _shipped_files(roots: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Path, ...]:
    return tuple(sorted({file for root, needs in roots for file in closure(root, needs=needs)}))


def _content(file: Path) -> bytes:
    """A file's bytes; the package's own __init__.py gets a line after its docstring that imports the guard."""
    content = file.read_bytes()
    if file != PACKAGE / "__init__.py":
        return content
    lines = content.decode().splitlines(keepends=True)
    docstring_end = ast.parse(content).body[0].end_lineno or 0
    return "".join([*lines[:docstring_end], f"\nimport {GUARD}\n", *lines[docstring_end:]]).encode()


def _holds(target: Path, contents: Mapping[Path, bytes]) -> bool:
    try:
        return all((target / "mlcd" / file).read_bytes() == content for file, content in contents.items())
    except OSError:
        return False


# ---- reading imports


def _modules_of(root: str, package: Path) -> list[Path]:
    file = _file_of(root, package, "it is to be copied to nodes")
    return sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]


def _file_of(name: str, package: Path, why: str) -> Path:
    """The file of a module of mlcd. Raises MlcdError where it is missing."""
    file = _find(name, package)
    if file is None:
        raise MlcdError(f"this installation of mlcd has no module {name} ({why}); reinstall mlcd")
    return file


def _find(name: str, package: Path) -> Path | None:
    path = package.joinpath(*name.split(".")[1:])
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def _package_files(file: Path, package: Path) -> list[Path]:
    """The __init__.py of every package around a module. Raises MlcdError where one is missing."""
    inits = [folder / "__init__.py" for folder in file.parents if folder.is_relative_to(package)]
    for init in inits:
        if not init.is_file():
            raise MlcdError(f"this installation of mlcd has no file {init}; reinstall mlcd")
    return inits


def _imports(file: Path, package: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of each import statement of a file."""
    tree = ast.parse(file.read_bytes(), filename=str(file))
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file, package)
            yield base, node.lineno
            if base.partition(".")[0] == "mlcd":
                names = (f"{base}.{alias.name}" for alias in node.names)
                yield from ((name, node.lineno) for name in names if _find(name, package) is not None)


def _absolute(node: ast.ImportFrom, file: Path, package: Path) -> str:
    if not node.level:
        return node.module or ""
    around = ("mlcd", *file.relative_to(package).parent.parts)
    return ".".join([*around[: len(around) - node.level + 1], *([node.module] if node.module else [])])


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, except what only type checkers run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            for other in child.orelse:
                yield other
                yield from _nodes(other)
            continue
        yield child
        yield from _nodes(child)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
