"""What a training on functions reads: the samples of a folder, or generated ones; the user's own module as text."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import nearest
from mlcd.spec.serverless import ServerlessSpec
from mlcd.untrusted import Malformed, read_named
from mlcd.workloads.data import Samples, shuffled
from mlcd.workloads.made import MADE
from mlcd.workloads.model import BUILT_IN

MOST_MODULE_BYTES = 1024 * 1024


def samples(spec: ServerlessSpec) -> Samples:
    """x.npy and y.npy of `workload.data`, shuffled; generated for a built-in model without data. Raises SpecError."""
    name, folder = spec.workload.model, spec.workload.data
    if not folder:
        if name not in MADE:
            problem = "is missing: only built-in models come with data"
            raise spec.error("workload.data", problem, allowed="a folder with x.npy and y.npy")
        return shuffled(*MADE[name]())
    path = _from_job_folder(spec, spec.path("workload.data", folder))
    if not path.is_dir():
        problem = "there is no such folder"
        raise spec.error("workload.data", problem, value=folder, allowed="a folder with x.npy and y.npy")
    x, y = _array(spec, path / "x.npy"), _array(spec, path / "y.npy")
    if len(x) != len(y):
        problem = f"x.npy has {len(x):,} rows and y.npy has {len(y):,}"
        raise spec.error("workload.data", problem, value=folder)
    if len(x) < max(2, spec.functions[-1]):
        problem = f"has {len(x):,} rows, fewer than functions"
        raise spec.error(
            "workload.data", problem, value=folder, allowed="a row for each function, and some for testing"
        )
    return shuffled(x, y)


def module(spec: ServerlessSpec) -> bytes:
    """The text of the user's own module; b"" for a built-in model. It is not imported here. Raises SpecError."""
    name = spec.workload.model
    if name in BUILT_IN:
        return b""
    stem, colon, _ = name.partition(":")
    if not colon:
        raise spec.error(
            "workload.model",
            "there is no such model",
            value=name,
            allowed=", ".join((*BUILT_IN, "MODULE:FUNCTION of your own")),
            nearest=nearest(name, list(BUILT_IN)),
        )
    path = _from_job_folder(spec, spec.path("workload.model", f"{stem}.py"))
    if not path.is_file():
        problem = f"there is no {stem}.py in the folder of the job file"
        raise spec.error("workload.model", problem, value=name, allowed="MODULE:FUNCTION of a file in that folder")
    try:
        return read_named(path, most_bytes=MOST_MODULE_BYTES)
    except Malformed as error:
        raise spec.error("workload.model", str(error), allowed="a file of at most 1 MiB") from error
    except OSError as error:
        raise spec.error("workload.model", f"{path} cannot be read: {error.strerror or error}") from error


def _from_job_folder(spec: ServerlessSpec, path: Path) -> Path:
    """A path relative to the job file, else to the current folder."""
    own = Path(spec.file).parent / path if spec.file else path
    return own if own.exists() or not path.exists() else path


def _array(spec: ServerlessSpec, path: Path) -> NDArray[Any]:
    if not path.is_file():  # a FIFO would block
        raise spec.error("workload.data", f"has no {path.name}", value=spec.workload.data)
    try:
        array: NDArray[Any] | object = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError, OverflowError, TypeError) as error:  # whatever its header says
        raise spec.error("workload.data", f"{path} cannot be read: {error}", value=spec.workload.data) from error
    if not isinstance(array, np.ndarray) or array.ndim < 1 or array.dtype.hasobject:  # an archive is no array
        raise spec.error("workload.data", f"{path} is not an array of rows", value=spec.workload.data)
    return array
