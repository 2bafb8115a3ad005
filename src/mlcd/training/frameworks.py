"""What `mlcd.torch` and `mlcd.keras` say where the job's Python lacks the framework."""

import sys


def without_framework(error: ModuleNotFoundError, *, package: str, module: str) -> ModuleNotFoundError:
    """`error` with the fix, where it is about `package`, which `module` needs; any other error unchanged."""
    if error.name != package:
        return error
    return ModuleNotFoundError(
        f"{module} needs the package {package}, which {sys.executable} does not have; install it in the job's `setup`, "
        "or let `run` use a Python that has it",
        name=package,
    )
