"""`mlcd serve`."""

from typing import Any, TextIO

from mlcd.jobs.serve import check_strategy, prepare, stored_spec
from mlcd.kinds.job_kind import JobKind
from mlcd.problem import Problem
from mlcd.report.day_picture import DAY_PICTURE, day_picture
from mlcd.report.pace_picture import RATES_PICTURE, TOKENS_PICTURE, has_paces, pace_picture
from mlcd.report.page import WIDE
from mlcd.report.serving import serving_verdict
from mlcd.report.serving_html import serving_html
from mlcd.report.serving_json import serving_json
from mlcd.report.serving_picture import PICTURE, serving_picture
from mlcd.report.serving_progress import ServingProgress
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun


def _progress(stream: TextIO, problem: Problem, _: str) -> ServingProgress:
    return ServingProgress(stream, problem.goal, problem=problem)


def _pictures(run: SearchRun) -> tuple[str, ...]:
    paces = tuple(kind for kind in (TOKENS_PICTURE, RATES_PICTURE) if has_paces(run, kind))
    found = run.findings.serve if run.findings is not None else None
    return PICTURE, *paces, *((DAY_PICTURE,) if found is not None and found.day is not None else ())


def _picture(run: SearchRun, name: str) -> str:
    if name == PICTURE:
        return serving_picture(run, WIDE)
    day = run.serve_findings.day
    return day_picture(run, day, WIDE) if name == DAY_PICTURE and day is not None else pace_picture(run, name, WIDE)


def _text(run: SearchRun, *, plain: bool = False, **look: Any) -> str:  # noqa: ARG001 - it has no plot
    return serving_verdict(run, **look)


ROW = JobKind(
    kind=Kind.SERVE,
    read=stored_spec,
    prepare=prepare,
    check=check_strategy,
    progress=_progress,
    as_text=_text,
    as_json=serving_json,
    as_html=serving_html,
    pictures=_pictures,
    as_picture=_picture,
)
