"""Files in which PyTorch keeps Python objects: read as tensors and plain values, whatever else they hold."""

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile

from mlcd.untrusted.values import Malformed

_FORCE, _FORCE_NOT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""PyTorch's own variables, which it reads whenever it loads: the first overrules what its callers ask for."""

_RAISED = (RuntimeError, ValueError, TypeError, KeyError, OSError, EOFError, AttributeError, AssertionError, BadZipFile)
"""What PyTorch raises about a file that it cannot read."""


@contextmanager
def only_weights(path: Path, how: str) -> Iterator[None]:
    """While this lasts, nothing that PyTorch unpickles runs code: an object that would is an error.

    `torch.export.load` unpickles everything where reading weights alone fails: a file could run any command. It also
    loads compiled libraries that come with the file. Raises Malformed for both, and for whatever PyTorch raises about a
    file that it cannot read by `how`.
    """
    before = {name: os.environ.get(name) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    os.environ.pop(_FORCE_NOT, None)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(_is_native(name) for name in archive.namelist()):
                    raise UnpicklingError
        yield
    except UnpicklingError as error:
        problem = "holds Python objects besides tensors or compiled libraries, which may be any code: not read"
        raise Malformed(str(path), problem) from error
    except _RAISED as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise Malformed(str(path), f"not a file that {how} reads: {first}") from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_native(name: str) -> bool:
    return "aotinductor/" in name or name.endswith((".so", ".dylib", ".dll", ".pyd", ".o"))
