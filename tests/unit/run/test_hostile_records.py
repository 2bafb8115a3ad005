"""Records that no mlcd wrote, and that fit each other: they are shown or named as damaged, never a bug."""

import json
import math
from dataclasses import replace

import pytest
from tests.unit.store.test_store import FUNCTIONS, header, measured, nodes_problem, step

from mlcd.errors import StoreError
from mlcd.jobs.earlier_runs import _is_of
from mlcd.kinds import kind_of
from mlcd.report.clock_axis import end_of
from mlcd.report.serverless import headline
from mlcd.run.coherent import check_coherent
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.run.step import Step
from mlcd.spec import parse_train
from mlcd.trial.outcome import Status
from mlcd.units import MOST_SECONDS
from mlcd.web.comparison import _money


def authorised(seconds: float) -> Step:
    begun = step(1)
    return replace(begun, authorisation=replace(begun.authorisation, seconds=seconds))


@pytest.mark.parametrize("seconds", [math.nan, -1.0, -math.inf])
def test_an_authorisation_for_no_time_is_damage(seconds: float) -> None:
    run = Run(header=header("r"), problem=nodes_problem(), steps=(authorised(seconds),))
    with pytest.raises(ValueError, match="step 1 was authorised for"):
        check_coherent(run)


def test_an_authorisation_without_end_is_shown_as_the_longest_that_is_planned() -> None:
    begun = authorised(math.inf)
    assert end_of(begun) == begun.started_seconds + MOST_SECONDS
    run = Run(header=header("r"), problem=nodes_problem(), steps=(begun.ended(measured()),))
    check_coherent(run)
    assert json.dumps(kind_of(Kind.TRAIN).json(run), allow_nan=False)


@pytest.mark.parametrize("status", Status)
def test_every_status_of_a_training_on_functions_has_a_headline(status: Status) -> None:
    assert headline(Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS, status=status))


def test_every_amount_can_be_compared() -> None:
    assert _money(0.1) == "$0.1000"
    assert _money(1.7e308).startswith("$")


DAMAGED: tuple[dict[str, object], ...] = (
    {"source": "", "file": "job.yaml", "overrides": {}, "now": "]]><b>"},
    {"source": "", "file": "job.yaml", "overrides": {}, "now": None},
    {"source": "", "file": "job.yaml", "overrides": {}},
    {"source": 7, "file": "job.yaml", "overrides": [], "now": "2026-01-01"},
)


@pytest.mark.parametrize("stored", DAMAGED)
@pytest.mark.parametrize("kind", Kind)
def test_a_damaged_record_of_a_job_is_named(kind: Kind, stored: dict[str, object]) -> None:
    run = Run(header=header("r", kind), problem=nodes_problem())
    with pytest.raises(StoreError, match="run r: the record of its job is damaged"):
        kind_of(kind).prepare_again(run, stored, None)


@pytest.mark.parametrize("stored", DAMAGED[:3])
def test_a_damaged_record_is_no_earlier_run_of_a_job(stored: dict[str, object]) -> None:
    job = "name: t\nresources: {infra: sim/aws, instance_type: c5.xlarge}\njob: {model: resnet50, samples: 1e6}\n"
    assert not _is_of(stored, parse_train(job + "goal: {minimize: time}\n"))
