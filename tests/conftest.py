"""What all tests share: the repository root on the path (for `tests.synthetic`), and `pytest --cloud NAME`."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of 30 rows: threads would only wait for each other
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cloud", metavar="NAME", help="run only the cloud contract, on the cloud of this name")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
