"""Processes below an agent: ended, as far as that is allowed."""

import os
import signal
import subprocess
import sys

import pytest

from mlcd.platforms import descendants


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes are found and held on Linux only")
def test_what_became_another_user_s_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with subprocess.Popen(words) as own, subprocess.Popen(words) as other:
        real, asked = signal.pidfd_send_signal, 0

        def send(descriptor: int, sign: int) -> None:
            nonlocal asked
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as told:  # noqa: PTH123
                if f"Pid:\t{other.pid}\n" in told.read():
                    asked += 1
                    raise PermissionError
            real(descriptor, sign)

        monkeypatch.setattr(signal, "pidfd_send_signal", send)
        monkeypatch.setattr(descendants, "_with_starts", lambda: _starts(own.pid, other.pid))
        monkeypatch.setattr(descendants, "_reap", lambda: None)
        descendants.end_all([])
        assert own.wait(60) == -signal.SIGTERM
        assert (other.poll(), asked) == (None, 1)
        monkeypatch.undo()
        other.kill()


def _starts(*pids: int) -> dict[int, str]:
    return {pid: start for pid in pids if (start := descendants._start_of(pid))}
