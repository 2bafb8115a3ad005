"""A temporary folder for this process's Lithops alone.

On this machine Lithops copies itself into one folder of the user's before it starts functions, over what lies there.
Of two processes that do so at a time, one would pull its code from under the functions of the other: their calls would
end without an answer. So each process gets a folder of its own, and its functions are started by a script that says
where it is.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

_NAME = re.compile(r"mlcd-lithops-([0-9]+)-.*")


@cache
def own_python() -> str:
    """What starts a function: this Python, in the folder of this process. Must come before Lithops is imported.

    Where somebody else has imported Lithops already, its folder is settled, and this is plain Python.
    """
    if "lithops" in sys.modules:
        return sys.executable
    usual = tempfile.gettempdir()
    _sweep(Path(usual))
    folder = Path(tempfile.mkdtemp(prefix=f"mlcd-lithops-{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = folder / "python"
    python.write_text(f"#!/bin/sh\nTMPDIR='{folder}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    python.chmod(0o700)
    tempfile.tempdir = str(folder)
    try:
        import lithops  # noqa: F401, PLC0415 - it reads the folder when it is imported
    finally:
        tempfile.tempdir = usual
    return str(python)


def _sweep(usual: Path) -> None:
    """Removes the folders of processes that were killed."""
    for folder in usual.glob("mlcd-lithops-*"):
        match = _NAME.fullmatch(folder.name)
        if match and not Path(f"/proc/{match[1]}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
