"""What the process is given by whoever starts it: standard streams that may be missing, and signals to end it."""

import os
import signal
import sys
from types import FrameType

_ENDING = ("SIGTERM", "SIGHUP")
"""From `kill`, session managers and batch systems, and from a terminal that is closed."""


def complete_streams() -> None:
    """Open /dev/null where standard input, output or error is closed.

    Otherwise the next file that is opened would get that number, and whatever prints would write into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - of a descriptor


def end_as_ctrl_c_does() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: what was paid is recorded, and nodes are given back.

    Further ones are ignored, because several may come at once and the first is being obeyed; Ctrl-C still counts.
    A signal that whoever started this process ignores (nohup) stays ignored.
    """
    main, obeyed = os.getpid(), False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal obeyed
        if os.getpid() != main:  # a process forked from this one: it has nothing to settle
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not obeyed:
            obeyed = True
            raise KeyboardInterrupt

    for name in _ENDING:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
