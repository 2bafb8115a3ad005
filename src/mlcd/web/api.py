"""The JSON API: what each operation answers."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlcd.catalog import load_catalog
from mlcd.catalog.listing import catalog_json
from mlcd.errors import BadInput
from mlcd.kinds import kind_of
from mlcd.report.pictures import picture_among
from mlcd.report.result_types import Json
from mlcd.run.kind import Kind
from mlcd.run.logs import StepLogs, log_bytes
from mlcd.run.run import Run
from mlcd.spec.template import TEMPLATES, template
from mlcd.store.summary import RunFilter
from mlcd.trial.outcome import Status
from mlcd.untrusted import Malformed, Tail, printable
from mlcd.web import job_check
from mlcd.web.api_types import (
    BegunJson,
    BenchesJson,
    CheckJson,
    LogJson,
    LogLinesJson,
    LogsJson,
    RunNowJson,
    RunsJson,
    ServingWhatIfJson,
    TemplateJson,
    TemplatesJson,
    WhatIfJson,
    WhyNotJson,
)
from mlcd.web.openapi import Document, Operation, Parameter
from mlcd.web.processes import Processes
from mlcd.web.records import NoSuchRun, Records
from mlcd.web.serving_what_if import limits_in, serving_what_if_json
from mlcd.web.what_if import what_if_json
from mlcd.web.why_not import answer, subjects

MOST_LISTED = 200
MOST_LINES = 2_000
LINE_CHARACTERS = 2_000
RUN = Parameter(name="run_id", what="the whole name of a run", in_path=True)
_JOB = {
    "type": "object",
    "required": ["job"],
    "additionalProperties": False,
    "properties": {
        "job": {"type": "string", "maxLength": 262_144, "description": "the text of a job file"},
        "seed": {"type": "integer", "minimum": 0, "maximum": 4_294_967_295, "default": 0},
    },
}


class Api:
    """The operations on the runs of one home."""

    def __init__(self, records: Records, processes: Processes, benches: BenchesJson) -> None:
        self.records, self.processes, self.benches = records, processes, benches

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The table that the routes and the document are made from."""
        return (
            Operation(
                name="listRuns",
                method="GET",
                path="/api/runs",
                what="Runs, the newest first",
                answer=RunsJson,
                parameters=(
                    Parameter(name="search", what="words in the name, the cloud or the strategy", default=""),
                    Parameter(name="kind", what="only runs of this kind", choices=tuple(map(str, Kind))),
                    Parameter(name="status", what="only runs with this status", choices=tuple(map(str, Status))),
                    Parameter(name="limit", what="the most that are listed", least=1, most=MOST_LISTED, default=50),
                    Parameter(name="offset", what="runs to leave out first", least=0, most=10**9, default=0),
                ),
                call=self.list_runs,
            ),
            Operation(
                name="getRun",
                method="GET",
                path="/api/runs/{run_id}",
                what="A run, as `mlcd show RUN -o json` prints it",
                answer={"oneOf": [_schema_of(name) for name in ("result", "serving", "serverless")]},
                parameters=(RUN,),
                call=self.get_run,
            ),
            Operation(
                name="getRunNow",
                method="GET",
                path="/api/runs/{run_id}/now",
                what="Where a run stands",
                answer=RunNowJson,
                parameters=(RUN,),
                call=self.records.now,
            ),
            Operation(
                name="watchRun",
                method="GET",
                path="/api/runs/{run_id}/events",
                what="Server-sent events: `now` with the same as /now, after every change",
                answer="text/event-stream",
                parameters=(RUN,),
            ),
            Operation(
                name="getPicture",
                method="GET",
                path="/api/runs/{run_id}/pictures/{picture}",
                what="A picture of a run as SVG; the same as `mlcd report RUN --picture NAME`",
                answer="image/svg+xml",
                parameters=(RUN, Parameter(name="picture", what="its name", in_path=True)),
            ),
            Operation(
                name="listLogs",
                method="GET",
                path="/api/runs/{run_id}/logs",
                what="The logs of a run's nodes; none where the cloud is simulated",
                answer=LogsJson,
                parameters=(RUN,),
                call=self.list_logs,
            ),
            Operation(
                name="readLog",
                method="GET",
                path="/api/runs/{run_id}/logs/{number}",
                what="Lines of a log; ask again from next_offset to follow it",
                answer=LogLinesJson,
                parameters=(
                    RUN,
                    Parameter(name="number", what="of the log", in_path=True, least=0, most=10**6),
                    Parameter(name="offset", what="bytes to leave out first", least=0, most=10**15, default=0),
                ),
                call=self.read_log,
            ),
            Operation(
                name="whatIf",
                method="GET",
                path="/api/runs/{run_id}/what-if",
                what="What would be decided under other limits, from what was measured; spends nothing",
                answer=WhatIfJson,
                parameters=(
                    RUN,
                    Parameter(name="budget_usd", what="none without it", least=0, most=10**12, whole=False),
                    Parameter(name="deadline_seconds", what="none without it", least=0, most=10**9, whole=False),
                    Parameter(
                        name="time_weight",
                        what="of time against money; without it the goal's own rule decides",
                        least=0,
                        most=1,
                        whole=False,
                    ),
                    Parameter(
                        name="next_trial",
                        what="whether to say what one more trial would be worth, which takes longer",
                        choices=("yes", "no"),
                        default="yes",
                    ),
                ),
                call=self.what_if,
            ),
            Operation(
                name="servingWhatIf",
                method="GET",
                path="/api/runs/{run_id}/serving-what-if",
                what="Which server would be chosen for another rate or under other limits; spends nothing",
                answer=ServingWhatIfJson,
                parameters=(
                    RUN,
                    Parameter(
                        name="rate", what="to hold; as many as it can without it", least=0, most=10**9, whole=False
                    ),
                    Parameter(
                        name="limits",
                        what="the job's latency limits that hold, in seconds: `ttft_p99:0.5,tpot_p99:0.05`",
                        default="",
                    ),
                ),
                call=self.serving_what_if,
            ),
            Operation(
                name="whyNot",
                method="GET",
                path="/api/runs/{run_id}/why-not",
                what="Why an instance type, a server's configuration, or a size or number of functions was not chosen",
                answer=WhyNotJson,
                parameters=(
                    RUN,
                    Parameter(name="of", what="one of the answer's subjects; without it, only those are listed"),
                ),
                call=self.why_not,
            ),
            Operation(
                name="getCatalog",
                method="GET",
                path="/api/catalog",
                what="Instance types and prices, as `mlcd catalog -o json` prints them",
                answer={"type": "object", "required": ["date", "age_days", "sources", "sets", "instances"]},
                call=catalog,
            ),
            Operation(
                name="listBenches",
                method="GET",
                path="/api/bench",
                what="The results of `mlcd bench train` that the page was started with",
                answer=BenchesJson,
                call=lambda: self.benches,
            ),
            Operation(
                name="listTemplates",
                method="GET",
                path="/api/templates",
                what="Job files to begin with, as `mlcd init` writes them",
                answer=TemplatesJson,
                call=templates,
            ),
            Operation(
                name="dryRun",
                method="POST",
                path="/api/dry-run",
                what="What a run would do and may cost, as `mlcd COMMAND - --dry-run -o json` prints it",
                answer={"type": "object"},
                body=_JOB,
                call=self.dry_run,
            ),
            Operation(
                name="checkJob",
                method="POST",
                path="/api/check",
                what="Check a job file, as the commands do; nothing is started or written",
                answer=CheckJson,
                body=_JOB,
                call=self.check_job,
            ),
            Operation(
                name="startRun",
                method="POST",
                path="/api/runs",
                what="Start a run of a job file",
                answer=BegunJson,
                body=_JOB,
                call=self.start_run,
                status=201,
            ),
            Operation(
                name="stopRun",
                method="POST",
                path="/api/runs/{run_id}/stop",
                what="End a run as Ctrl-C does; it can be resumed",
                answer=BegunJson,
                parameters=(RUN,),
                call=self.stop_run,
                status=202,
            ),
            Operation(
                name="resumeRun",
                method="POST",
                path="/api/runs/{run_id}/resume",
                what="Continue a run",
                answer=BegunJson,
                parameters=(RUN,),
                call=self.resume_run,
                status=202,
            ),
        )

    @property
    def document(self) -> Json:
        """The OpenAPI document."""
        return Document(operations=self.operations).as_json()

    # ---- reading

    def list_runs(self, *, search: str, kind: str | None, status: str | None, limit: int, offset: int) -> RunsJson:
        """See the table."""
        wanted = RunFilter(
            words=tuple(search.split()[:10]),
            kind=Kind(kind) if kind else None,
            status=Status(status) if status else None,
        )
        return self.records.list(wanted, limit=limit, offset=offset)

    def get_run(self, run_id: str) -> Json:
        """See the table."""
        return self.records.made(run_id, "json", lambda run: dict(kind_of(run.kind).json(run)))

    def picture(self, run_id: str, name: str) -> str:
        """The SVG. Raises NoSuchRun where the run has no picture of this name."""
        try:
            return self.records.made(run_id, f"picture {name}", lambda run: _picture(run, name))
        except BadInput as error:
            raise NoSuchRun(str(error)) from error

    def what_if(
        self,
        run_id: str,
        *,
        budget_usd: float | None,
        deadline_seconds: float | None,
        time_weight: float | None,
        next_trial: str,
    ) -> WhatIfJson:
        """See the table."""
        return what_if_json(
            self.records,
            run_id,
            budget_usd=budget_usd,
            deadline_seconds=deadline_seconds,
            time_weight=time_weight,
            next_trial=next_trial == "yes",
        )

    def serving_what_if(self, run_id: str, *, rate: float | None, limits: str) -> ServingWhatIfJson:
        """See the table."""
        return serving_what_if_json(self.records, run_id, rate=rate, limits=limits_in(limits))

    def why_not(self, run_id: str, *, of: str | None) -> WhyNotJson:
        """See the table."""
        run = self.records.run(run_id)
        found = answer(run, of or "")
        return WhyNotJson(run_id=run_id, of=of or "", answers=found.short, more=found.more, subjects=subjects(run))

    def list_logs(self, run_id: str) -> LogsJson:
        """See the table."""
        return LogsJson(run_id=run_id, logs=tuple(log for log, _ in self._logs(run_id)))

    def read_log(self, run_id: str, number: int, offset: int) -> LogLinesJson:
        """See the table. The number, and no path, says which log."""
        found = self._logs(run_id)
        if number >= len(found):
            raise NoSuchRun(f"{run_id} has no log {number}")
        with self.records.store() as store:
            live = store.is_live(run_id)
        tail = Tail(found[number][1], may_start_again=True)
        tail.offset = offset
        try:
            lines = tail.lines()
        except (Malformed, OSError):  # what a job put in the place of its log is not read
            lines = []
        shown = tuple(printable(line, most_characters=LINE_CHARACTERS) for line in lines[:MOST_LINES])
        return LogLinesJson(lines=shown, next_offset=tail.offset, live=live)

    def _logs(self, run_id: str) -> list[tuple[LogJson, Path]]:
        self.records.rows(run_id)  # raises NoSuchRun
        with self.records.store() as store:
            found = [(each, log) for each in store.logs(run_id) for log in each.nodes]
        return [
            (
                LogJson(
                    number=at,
                    step=None if each.step is None else each.step.number,
                    title=_title(each),
                    node=log.node,
                    bytes=log_bytes(log.path),
                ),
                log.path,
            )
            for at, (each, log) in enumerate(found)
        ]

    # ---- starting and stopping

    def check_job(self, body: Mapping[str, Any]) -> CheckJson:
        """See the table."""
        return job_check.checked(body["job"])

    def dry_run(self, body: Mapping[str, Any]) -> Json:
        """See the table."""
        found = job_check.checked(body["job"])
        if found.error is not None or found.kind is None:
            raise BadInput(found.error or "this is no job file")
        return self.processes.dry_run(Kind(found.kind), body["job"], seed=body.get("seed", 0))

    def start_run(self, body: Mapping[str, Any]) -> BegunJson:
        """See the table."""
        found = job_check.checked(body["job"])
        if found.error is not None or found.kind is None or found.name is None or found.infra is None:
            raise BadInput(found.error or "this is no job file")
        self.processes.check_cloud(found.infra)
        run_id = self.processes.start(Kind(found.kind), found.name, body["job"], seed=body.get("seed", 0))
        return BegunJson(run_id=run_id)

    def stop_run(self, run_id: str) -> BegunJson:
        """See the table."""
        self.records.rows(run_id)
        self.processes.stop(run_id)
        return BegunJson(run_id=run_id)

    def resume_run(self, run_id: str) -> BegunJson:
        """See the table."""
        run = self.records.run(run_id)
        self.processes.check_cloud(run.cloud)
        self.processes.resume(run_id)
        return BegunJson(run_id=run_id)


def templates() -> TemplatesJson:
    """The job files that a new run may begin with."""
    return TemplatesJson(
        templates=tuple(
            TemplateJson(name=name, command=each.command, what=each.what, text=template(kind=name))
            for name, each in TEMPLATES.items()
        )
    )


def catalog() -> Json:
    """The catalog of this installation."""
    loaded = load_catalog()
    return catalog_json(loaded, loaded.instances, loaded.age_days(datetime.now(UTC).date()))


def checked_body(schema: Json, value: object) -> dict[str, Any]:
    """The body of a request, checked against the few rules that our schemas have. Raises BadInput."""
    if not isinstance(value, dict):
        raise BadInput("the body must be a JSON object")
    properties = schema["properties"]
    for name in schema["required"]:
        if name not in value:
            raise BadInput(f"{name}: is missing")
    for name, given in value.items():
        rule = properties.get(name)
        if rule is None:
            raise BadInput(f"{printable(name, most_characters=60)}: unknown field; allowed: {', '.join(properties)}")
        if rule["type"] == "string" and not (isinstance(given, str) and len(given) <= rule["maxLength"]):
            raise BadInput(f"{name}: must be a text of at most {rule['maxLength']:,} characters")
        if rule["type"] == "integer" and not (
            isinstance(given, int) and not isinstance(given, bool) and rule["minimum"] <= given <= rule["maximum"]
        ):
            raise BadInput(f"{name}: must be a whole number from {rule['minimum']} to {rule['maximum']}")
    return value


def _picture(run: Run[Any], name: str) -> str:
    shown = printable(name, most_characters=60)
    return picture_among(kind_of(run.kind).pictures(run), shown, where=f"{run.run_id} has").svg


def _title(logs: StepLogs) -> str:
    step = logs.step
    return "server" if step is None else f"step {step.number}, {step.role} on {step.config}"


def _schema_of(name: str) -> Json:
    found: Json = json.loads((files("mlcd.report") / f"{name}.schema.json").read_text(encoding="utf-8"))
    return found
