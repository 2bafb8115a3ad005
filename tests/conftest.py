"""What all tests share: the repository root on the path (for `tests.synthetic`), and `pytest --cloud NAME`."""

import os
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


class Together(LoadScopeScheduling):  # type: ignore[misc]  # it ships no types
    """For `--dist loadgroup`: tests marked `together` with the same text run one after the other on one worker.

    In place of xdist_group, whose marks pytest-xdist 3.8 loses under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.rpartition("@")[2] if "@" in nodeid else nodeid


@pytest.hookimpl(optionalhook=True)  # of a plugin that may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("waits") is not None:
            item.add_marker(pytest.mark.nodes)
        together = item.get_closest_marker("together")
        if together is not None and os.environ.get("PYTEST_XDIST_WORKER"):
            setattr(item, "_nodeid", f"{item.nodeid}@{together.args[0]}")  # noqa: B010 - the scheduler sees names only
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


@pytest.fixture(autouse=True)
def no_terminal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed does not depend on who runs the tests: pytest-xdist, for one, sets COLUMNS."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
