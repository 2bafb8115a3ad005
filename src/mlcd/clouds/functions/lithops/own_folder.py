"""A separate temporary folder for the Lithops of this process.

On this machine Lithops copies itself into one folder per user before it starts functions, and overwrites what is there.
With two processes at the same time, one would replace the code that the other's functions run, and their calls would
end without an answer. So each process gets its own folder, and a script that sets this folder starts its functions.
"""

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

_NAME = re.compile(r"mlcd-lithops-([0-9]+)-.*")


@cache
def own_python() -> str:
    """The command that starts a function: this Python, with the folder of this process. Call before importing Lithops.

    Where Lithops has already been imported, its folder is fixed, and this is plain Python.
    """
    if "lithops" in sys.modules:
        return sys.executable
    usual = tempfile.gettempdir()
    _remove_abandoned(Path(usual))
    folder = Path(tempfile.mkdtemp(prefix=f"mlcd-lithops-{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nTMPDIR={shlex.quote(str(folder))} exec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o700)
    tempfile.tempdir = str(folder)
    try:
        import lithops  # noqa: F401, PLC0415 - it reads the folder when it is imported
    finally:
        tempfile.tempdir = usual
    return str(python)


def keep_cache_apart() -> None:
    """Let Lithops keep what it remembers of functions on this machine in this process's folder, not under the home.

    It is a file for every process, because each has a Python of its own, and nothing would remove them.
    """
    import lithops.storage.storage as storage  # noqa: PLC0415, PLR0402 - the module, to set its constant

    storage.CACHE_DIR = str(Path(own_python()).with_name("cache"))


def _remove_abandoned(usual: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in usual.glob("mlcd-lithops-*"):
        match = _NAME.fullmatch(folder.name)
        if match and not Path(f"/proc/{match[1]}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
