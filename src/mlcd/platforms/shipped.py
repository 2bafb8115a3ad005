"""Imported first by the copy of mlcd that nodes and functions get (mlcd.clouds.shipping), and by nothing else.

The copy comes first on the Python path, before an mlcd that may be installed there. It has what a job needs. A module
that it lacks is taken from an installed mlcd of the same version; where there is none, the error says what is missing.
"""

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

if sys.version_info < (3, 10):  # noqa: UP036 - nodes may have any Python; SkyPilot's images have 3.10
    raise ImportError(
        f"mlcd needs Python 3.10 or newer on a node; {sys.executable} is Python {sys.version.split()[0]}: "
        "let `setup` and `run` of the job use a newer one"
    )

COPY = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r"^__version__ = \"(.+)\"$", re.MULTILINE)


class NotShipped:
    """The last finder: asked for a module of mlcd, it finds that of an installed mlcd, or raises with the reason."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface of finders
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """None for what is not of mlcd."""
        if not name.startswith("mlcd."):
            return None
        parents = name.split(".")[1:-1]
        version, others = version_of(COPY), []
        for package in installed_packages():
            other = version_of(package)
            if other == version:
                if found := PathFinder.find_spec(name, [str(package.joinpath(*parents))]):
                    return found
            else:
                others.append(f"mlcd {other} in {package.parent}")
        raise ModuleNotFoundError(_why(name, version, others), name=name)


def installed_packages() -> list[Path]:
    """The folders of other mlcds on the Python path."""
    found = (Path(entry or ".", "mlcd").resolve() for entry in sys.path)
    return [package for package in found if package != COPY and (package / "__init__.py").is_file()]


def version_of(package: Path) -> str:
    """The version of the mlcd in a folder; "?" where it cannot be read."""
    try:
        match = _VERSION.search((package / "version.py").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return "?"
    return match[1] if match else "?"


def _why(name: str, version: str, others: list[str]) -> str:
    text = (
        f"No module named {name!r}: a node gets only the part of mlcd {version} that jobs need ({COPY}), "
        "such as mlcd.steps, mlcd.torch and mlcd.keras"
    )
    if others:
        return f"{text}; not used, because of another version: {', '.join(others)}"
    return f"{text}; if the job needs more, install mlcd {version} in its `setup`"


sys.meta_path.append(NotShipped())
