"""`mlcd train`."""

import os
from typing import TextIO

from mlcd.events import Observer
from mlcd.jobs.train import check_objects, prepare, stored_spec
from mlcd.kinds.job_kind import JobKind
from mlcd.problem import Problem
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.pictures import kinds_of, picture
from mlcd.report.progress import ProgressLines
from mlcd.report.verdict import verdict
from mlcd.run.kind import Kind


def wants_colour(stream: TextIO) -> bool:
    """A terminal, unless NO_COLOR is set or it is a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _progress(stream: TextIO, _: Problem, cloud: str) -> Observer:
    return ProgressLines(stream, wants_colour(stream), replayed=cloud.startswith("replay/"))


ROW = JobKind(
    kind=Kind.TRAIN,
    read=stored_spec,
    prepare=prepare,
    check=check_objects,
    progress=_progress,
    as_text=verdict,
    as_json=record_json,
    as_html=html_report,
    pictures=lambda run: tuple(map(str, kinds_of(run))),
    as_picture=picture,
)
