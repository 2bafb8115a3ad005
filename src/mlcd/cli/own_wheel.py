"""A wheel of the mlcd that runs now, for images that are built where no index has it."""

import base64
import hashlib
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from mlcd.cli.output import place_in
from mlcd.errors import BadInput
from mlcd.version import __version__

WHEEL_NAME = f"mlcd-{__version__}-py3-none-any.whl"
_PACKAGE = Path(__file__).resolve().parents[1]
_INFO = f"mlcd-{__version__}.dist-info"
_TAGS = "Wheel-Version: 1.0\nGenerator: mlcd\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_SCRIPTS = "[console_scripts]\nmlcd = mlcd.cli.main:main\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest of a zip file: the same package gives the same bytes


def write_wheel(folder: Path) -> Path:
    """Write the wheel into `folder` and return its path. Raises BadInput, OSError."""
    contents = {f"mlcd/{file.relative_to(_PACKAGE).as_posix()}": file.read_bytes() for file in _files()}
    contents[f"{_INFO}/METADATA"] = _metadata().encode()
    contents[f"{_INFO}/WHEEL"] = _TAGS.encode()
    contents[f"{_INFO}/entry_points.txt"] = _SCRIPTS.encode()
    record = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in contents.items()]
    contents[f"{_INFO}/RECORD"] = "\n".join([*record, f"{_INFO}/RECORD,,", ""]).encode()
    path = place_in(folder, WHEEL_NAME)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def _files() -> list[Path]:
    found = (file for file in _PACKAGE.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return sorted(file for file in found if "__pycache__" not in file.parts)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _metadata() -> str:
    """Name, version and requirements: of the clone that mlcd runs from, else as it was installed."""
    project = _PACKAGE.parents[1] / "pyproject.toml"
    if project.is_file():
        stated = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        extras = stated["optional-dependencies"]
        lines = [f"Requires-Dist: {each}" for each in stated["dependencies"]]
        lines += [line for name, needs in extras.items() for line in _extra(name, needs)]
        python = f"Requires-Python: {stated['requires-python']}"
        return "\n".join(["Metadata-Version: 2.1", "Name: mlcd", f"Version: {__version__}", python, *lines, ""])
    try:
        text = metadata.distribution("mlcd").read_text("METADATA")
    except metadata.PackageNotFoundError:
        text = None
    if text is None:
        raise BadInput("--write: this mlcd has no metadata to build an image from; install it with pip first")
    return text


def _extra(name: str, needs: list[str]) -> list[str]:
    return [f"Provides-Extra: {name}", *(f'Requires-Dist: {each} ; extra == "{name}"' for each in needs)]
