"""What all tests share: the repository root on the path (for `tests.synthetic`), and `pytest --cloud NAME`."""

import ast
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of 30 rows: threads would only wait for each other
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that starts the tests in its background has it so,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and every program that they start would inherit it
settings.register_profile(
    "any machine",
    deadline=None,  # a machine that has much else to do is no failure
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # a change fails for what it does, not for another draw; elsewhere draws differ
    print_blob=True,
)
settings.load_profile("any machine")
ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


from tests.unmeasured import UNMEASURED, make_threads_interruptible  # noqa: E402 - the path to it

if TYPE_CHECKING:
    from tests.postgres_server import Server

make_threads_interruptible()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cloud", metavar="NAME", help="run only the cloud contract, on the cloud of this name")


@cache
def groups(path: str) -> dict[str, str]:
    """What the tests of a file share, from the `together` marks in its source: by class or test, "" for all of it."""
    found: dict[str, str] = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        marks: list[ast.expr] = []
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks, name = [node.value], ""
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            marks, name = node.decorator_list, node.name
        calls = [call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)]
        for call in calls:
            if ast.unparse(call.func) == "pytest.mark.together":
                found[name] = str(ast.literal_eval(call.args[0]))
    return found


class Together(LoadScopeScheduling):  # type: ignore[misc]  # it ships no types
    """For `--dist loadgroup`: tests marked `together` with the same text run one after the other on one worker.

    The controller of pytest-xdist sees names only, and xdist_group's own marks are lost under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, *names = nodeid.partition("[")[0].split("::")
        shared = groups(path)
        return next((shared[name] for name in (*names, "") if name in shared), nodeid)


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


@pytest.fixture(autouse=True)
def no_terminal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed does not depend on who runs the tests: pytest-xdist, for one, sets COLUMNS."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def unmeasured_nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes run copies of mlcd, which are deleted with them: measuring those only slows them down."""
    if request.node.get_closest_marker("waits") is not None:
        for name in UNMEASURED:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Server]":
    """A PostgreSQL server that the tests of this process share. Skips where none can be started."""
    from tests import postgres_server

    if why := postgres_server.missing():
        pytest.skip(why)
    server = postgres_server.Server()
    yield server
    server.remove()


@pytest.fixture
def team(postgres: "Server") -> str:
    """The address of an empty store on that server, for its owner."""
    return postgres.new_store()
