"""`mlcd train`."""

from typing import TextIO

from mlcd.jobs.recorded_spec import stored_spec
from mlcd.jobs.train import check_objects, prepare
from mlcd.kinds.job_kind import JobKind
from mlcd.problem import Problem
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report, train_tables
from mlcd.report.progress import ProgressLines
from mlcd.report.verdict import verdict
from mlcd.run.kind import Kind


def _progress(stream: TextIO, problem: Problem, cloud: str) -> ProgressLines:
    return ProgressLines(stream, replayed=cloud.startswith("replay/"), problem=problem)


ROW = JobKind(
    kind=Kind.TRAIN,
    read=stored_spec,
    prepare=prepare,
    check=check_objects,
    progress=_progress,
    as_text=verdict,
    as_json=record_json,
    as_html=html_report,
    as_tables=train_tables,
)
