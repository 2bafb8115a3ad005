"""Several connections of one process, and who works on a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlcd.errors import RunBusy
from mlcd.store.store import FILE, Store

OPEN_AND_CLOSE = """
import sys
from pathlib import Path
from mlcd.store.store import Store
with Store(Path(sys.argv[1])) as store:
    store.runs()
"""


def test_second_connection_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Where they were lost, another process that closes the store removes its log under the first connection."""
    with Store(tmp_path) as first:
        first.runs()
        with Store(tmp_path, reading=True) as second:
            second.runs()
        subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, str(tmp_path)], check=True)
        assert (tmp_path / f"{FILE}-wal").exists()
        assert first.runs() == ()


def test_owner_of_a_run_is_the_process_that_locked_it(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert store.owner("run-1") is None
        with store.lock("run-1"):
            assert store.is_live("run-1")
            assert store.owner("run-1") == os.getpid()
            with pytest.raises(RunBusy), store.lock("run-1"):
                pass
        assert store.owner("run-1") is None
        assert not list((tmp_path / "locks").glob("*.pid"))


def test_owner_file_of_a_killed_process_is_not_believed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        (tmp_path / "locks").mkdir()
        (tmp_path / "locks" / "run-1.pid").write_text(str(os.getpid()))
        assert store.owner("run-1") is None
