"""What all tests share: the repository root on the path (for `tests.synthetic`), and `pytest --cloud NAME`."""

import os
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of 30 rows: threads would only wait for each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the tests in its background has it so,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and every program that they start would inherit it
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cloud", metavar="NAME", help="run only the cloud contract, on the cloud of this name")


NODES = (
    "local", "minicloud", "slurm", "slurm_search", "skypilot", "skypilot_slurm", "chaos", "real_clouds",
    "platform_examples", "serve_job", "elastic",
)  # fmt: skip
"""Files test_X.py whose tests use this machine's processors as nodes: marked, and run with nothing beside them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem.removeprefix("test_") in NODES:
            item.add_marker(pytest.mark.nodes)
    wanted = config.getoption("--cloud")
    if wanted is None:
        return
    clouds = {item: getattr(getattr(item, "cls", None), "cloud_name", None) for item in items}
    known = sorted({name for name in clouds.values() if name})
    if wanted not in known:
        raise pytest.UsageError(f"--cloud: no contract for {wanted!r} among what was collected; there are {known}")
    kept = [item for item in items if clouds[item] == wanted]
    config.hook.pytest_deselected(items=[item for item in items if clouds[item] != wanted])
    items[:] = kept
