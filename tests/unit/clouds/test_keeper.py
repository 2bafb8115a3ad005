"""What keeps a server: it ends with mlcd, and so does all that it started."""

import subprocess
import sys
from pathlib import Path

import pytest

from mlcd.clouds import processes
from mlcd.clouds.serving import keeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the server's own group is ended")

LEFT = """
import os, subprocess, sys, time
words = [sys.executable, "-c", "import time; time.sleep(1000)"]
{start}
print(helper.pid, flush=True)
{then}
"""
"""A server that starts a helper, tells its number, and goes on or ends."""
GOES_ON, ENDS = "time.sleep(1000)", "sys.exit(3)"


@pytest.mark.parametrize("then", [GOES_ON, ENDS])
@pytest.mark.parametrize(
    "start",
    [
        pytest.param("helper = subprocess.Popen(words)", id="of its group"),
        pytest.param("helper = subprocess.Popen(words, process_group=0)", id="of a group of its own"),
        pytest.param("helper = subprocess.Popen(words, start_new_session=True, env={})", id="of its own session"),
    ],
)
def test_nothing_that_a_server_started_stays(start: str, then: str) -> None:
    server = LEFT.format(start=start, then=then)
    kept = subprocess.Popen(
        [sys.executable, "-I", str(Path(keeper.__file__)), "1000", sys.executable, "-c", server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with kept:
        assert kept.stdin is not None
        assert kept.stdout is not None
        helper = int(kept.stdout.readline())
        began = processes.started_at(helper)
        if then == GOES_ON:
            assert began
            kept.stdin.close()
        kept.wait(60)
        assert not processes.is_alive(helper, began)
    assert kept.returncode == (0 if then == GOES_ON else 3)
