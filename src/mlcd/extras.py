"""Optional parts of mlcd: what each is for, whether it is installed, and the command that installs it here."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from mlcd.errors import MissingExtra

_EXTRA_OF = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One optional part.

    modules  what it installs, by import name
    purpose  what needs it
    """

    name: str
    modules: tuple[str, ...]
    purpose: str

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed."""
        return tuple(module for module in self.modules if find_spec(module) is None)


EXTRAS = {
    extra.name: extra
    for extra in (
        Extra(
            name="serve",
            modules=("httptools", "onnx", "onnxruntime", "starlette", "uvicorn"),
            purpose="ONNX Runtime and the server, for `mlcd serve`",
        ),
        Extra(
            name="serve-torch",
            modules=("httptools", "starlette", "torch", "uvicorn"),
            purpose="PyTorch and the server, for `mlcd serve` with files of PyTorch",
        ),
        Extra(name="ui", modules=("httptools", "starlette", "uvicorn"), purpose="the web page of `mlcd ui`"),
        Extra(name="lithops", modules=("lithops",), purpose="Lithops, for `mlcd serverless` on real functions"),
        Extra(name="torch", modules=("torch",), purpose="PyTorch, for jobs that use it on this machine"),
        Extra(name="mlflow", modules=("mlflow",), purpose="MLflow's client, for --track mlflow"),
        Extra(name="wandb", modules=("wandb",), purpose="Weights & Biases, for --track wandb"),
        Extra(name="frame", modules=("pandas",), purpose="pandas, for `to_frame()` of results"),
        Extra(name="png", modules=("resvg_py",), purpose="resvg, for `mlcd report --format png`"),
        Extra(name="bench", modules=("joblib",), purpose="joblib, for `mlcd bench` in several processes"),
        Extra(name="dask", modules=("distributed", "joblib"), purpose="Dask, for `mlcd bench --cluster dask:...`"),
        Extra(name="ray", modules=("joblib", "ray"), purpose="Ray, for `mlcd bench --cluster ray:...`"),
        Extra(name="compare", modules=("sklearn",), purpose="scikit-learn, the comparison in `mlcd bench suggest`"),
        Extra(
            name="siren",
            modules=("gymnasium", "stable_baselines3"),
            purpose="Gymnasium, to retrain the policy of `siren`",
        ),
        Extra(name="postgres", modules=("psycopg",), purpose="psycopg, for a team's store on PostgreSQL"),
        Extra(name="testing", modules=("pytest",), purpose="pytest, for the contract tests of plug-ins"),
    )
}
"""The extras of pyproject.toml that a user may need. SkyPilot has an environment of its own: see `mlcd check`."""


def require(name: str, what: str) -> None:
    """Raises MissingExtra unless all of the extra `name` is installed. `what` needs it."""
    if EXTRAS[name].missing:
        raise MissingExtra(missing_text(name, what))


def missing_text(name: str, what: str) -> str:
    """That `what` needs the extra, and how to install it here."""
    return f"{what} needs the extra {name!r} ({', '.join(EXTRAS[name].missing)} not installed): {install_line(name)}"


def extra_of(module: str) -> str:
    """The extra that installs a module; "" if it belongs to none."""
    top = module.partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in extra.modules), "")


def install_line(name: str) -> str:
    """The command that installs an extra into the environment in which this mlcd runs.

    It names the packages themselves: they install whether mlcd came from an index, a wheel or a clone, and by pip, pipx
    or uv. Without mlcd's metadata (it runs from a clone that was never installed) it installs the clone.
    """
    clone = Path(__file__).parents[2]
    packages = tuple(_requirements(name))
    if packages:
        wanted = [shlex.quote(package) for package in packages]
    elif (clone / "pyproject.toml").is_file():
        wanted = ["-e", shlex.quote(f"{clone}[{name}]")]
    else:
        wanted = [shlex.quote(f"mlcd[{name}]")]
    return " ".join([*_installer(), *wanted])


def _requirements(name: str) -> Iterator[str]:
    """The packages of an extra with their versions, by mlcd's metadata."""
    try:
        stated = metadata.requires("mlcd") or []
    except metadata.PackageNotFoundError:
        return
    for line in stated:
        requirement, _, marker = line.partition(";")
        found = _EXTRA_OF.search(marker)
        if found and found[1] == name:
            yield requirement.strip()


def _installer() -> list[str]:
    """The start of the command that installs packages beside this mlcd."""
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return ["pipx", "inject", "mlcd"]
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None and (shutil.which("uv") or (prefix / "uv-receipt.toml").is_file()):
        return ["uv", "pip", "install", "--python", python]
    here = shutil.which("pip")
    is_on_path = here is not None and Path(here).parent == Path(os.path.abspath(sys.executable)).parent  # noqa: PTH100
    return ["pip", "install"] if is_on_path else [python, "-m", "pip", "install"]
