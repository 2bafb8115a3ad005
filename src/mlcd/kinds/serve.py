"""`mlcd serve`."""

from typing import Any, TextIO

from mlcd.jobs.serve import check_strategy, prepare, stored_spec
from mlcd.kinds.job_kind import JobKind
from mlcd.problem import Problem
from mlcd.report.serving import serving_verdict
from mlcd.report.serving_html import serving_html, serving_tables
from mlcd.report.serving_json import serving_json
from mlcd.report.serving_progress import ServingProgress
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun


def _progress(stream: TextIO, problem: Problem, _: str) -> ServingProgress:
    return ServingProgress(stream, problem.goal, problem=problem)


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
    as_tables=serving_tables,
)
