"""What all tests share: the repository root on the path (for `tests.synthetic`), and `pytest --cloud NAME`."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of 30 rows: threads would only wait for each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the tests in its background has it so,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and every program that they start would inherit it
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cloud", metavar="NAME", help="run only the cloud contract, on the cloud of this name")


TOGETHER = {
    **dict.fromkeys(("test_minicloud", "TestMiniCloud"), "the machine's room for nodes"),
    **dict.fromkeys(("test_slurm", "test_slurm_search", "TestSlurm"), "the machine's room for nodes"),
    "test_skypilot": "SkyPilot's server",
    "test_platform_examples": "both processors",
    "test_searches_trains_and_brings_the_model_home": "an undisturbed run",
    "test_trials_are_work_and_not_waste": "an undisturbed run",
}
"""Tests that wait, by their file's, class's or own name, and what they share: these run one after the other."""


class Together(LoadScopeScheduling):  # type: ignore[misc]  # it ships no types
    """For `--dist loadgroup`, whose own marks pytest-xdist 3.8 loses under pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return next((TOGETHER[part] for part in re.split(r"::|/|\.py|\[", nodeid) if part in TOGETHER), nodeid)


@pytest.hookimpl(optionalhook=True)  # of a plugin that may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("waits") is not None:
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
