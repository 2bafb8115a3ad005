"""Verdicts of trainings and of served models name the log of the newest failure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.report_kind_samples import nothing_serves_run
from tests.report_samples import all_failed_run

from mlcd.kinds import kind_of


@pytest.mark.parametrize("made", [all_failed_run, nothing_serves_run])
def test_the_log_of_a_failure_is_named(made: Callable[[], Any]) -> None:
    run = made()
    kind = kind_of(run.kind)
    line = "Log of the newest failure: /home/work/log.txt"
    assert line in kind.text(replace(run, log="/home/work/log.txt"), width=200)
    assert "Log of the newest failure" not in kind.text(run, width=200)
