"""`mlcd serverless`."""

from typing import Any, TextIO

from mlcd.functions import FunctionProblem
from mlcd.jobs.serverless import check_scheduler, prepare, stored_spec
from mlcd.kinds.job_kind import JobKind
from mlcd.report.serverless import serverless_verdict
from mlcd.report.serverless_html import serverless_html, serverless_tables
from mlcd.report.serverless_json import serverless_json
from mlcd.report.serverless_progress import EpochProgress
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun


def _progress(stream: TextIO, problem: FunctionProblem, _: str) -> EpochProgress:
    return EpochProgress(stream, problem.target_loss)


def _text(run: EpochRun, *, plain: bool = False, **look: Any) -> str:  # noqa: ARG001 - it has no plot
    return serverless_verdict(run, **look)


ROW = JobKind(
    kind=Kind.SERVERLESS,
    read=stored_spec,
    prepare=prepare,
    check=check_scheduler,
    progress=_progress,
    as_text=_text,
    as_json=serverless_json,
    as_html=serverless_html,
    as_tables=serverless_tables,
)
