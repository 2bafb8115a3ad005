"""The results of runs: `Result` of training, `ServeResult` of serving, `ServerlessResult` of functions."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from mlcd.errors import BadInput
from mlcd.extras import require
from mlcd.findings import shown
from mlcd.findings.serving_what_if import ServingWhatIf, limits_of, serving_what_if
from mlcd.home import write_text
from mlcd.jobs.arguments import check_path
from mlcd.kinds import JobKind, kind_of
from mlcd.report.pictures import picture_among
from mlcd.report.wording import plural
from mlcd.run.findings import Receipt, ServingChoice
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.run.step import Step
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG picture. Notebooks display it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file and returns its path. Raises OSError."""
        return _written(path, self.svg)


class _Shown:
    """What all results share: name, status, and the ways to show them."""

    record: Run[Any]
    rows_key: ClassVar[str] = "trials"
    """The key of the JSON result that has a row for each step."""

    @property
    def run_id(self) -> str:
        """The name of the run, for `resume` and `mlcd show`."""
        return self.record.run_id

    @property
    def status(self) -> Status:
        """How the run ended. If nothing fits or the target was not reached, that is a status, not an exception."""
        return self.record.status

    @property
    def _kind(self) -> JobKind:
        return kind_of(self.record.kind)

    def explain(self) -> str:
        """The answer in words: the choice, the receipt, why the others were rejected."""
        return self._kind.text(self.record)

    def to_json(self) -> str:
        """The same JSON text as `mlcd show RUN -o json`; docs/output.md has its fields."""
        return json.dumps(self._kind.json(self.record), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self) -> "pd.DataFrame":
        """A row per trial (per epoch on functions), a column per field of the JSON result. Needs pandas.

        Raises MissingExtra, with the command that installs it, if pandas is not installed.
        """
        require("frame", "to_frame()")
        import pandas as pd  # noqa: PLC0415 - an optional dependency, imported where it is used

        rows = cast(list[Mapping[str, object]], self._kind.json(self.record)[self.rows_key])
        return pd.json_normalize(cast(Any, rows))

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the HTML report and returns its path. Raises OSError."""
        return _written(path, self._kind.html(self.record))

    def plot(self, kind: str | None = None) -> Picture:
        """A picture of the run by name; by default the first of its kind.

        All kinds: the `map` of what could be chosen, `money` and `timeline`. Training: `speed` over nodes with the
        search path, the time-money `tradeoff`; if the batch was chosen also `batches`, a curve per batch over the
        nodes, and `batches-repriced`, the same under the other price policy. Serving: `latency`, `operators`; of
        language models `tokens` and `rates`; with a profile of the traffic `day`. Functions: `epochs`.

        Raises BadInput for an unknown picture.
        """
        pictures = self._kind.pictures(self.record)
        found = pictures[0] if kind is None else picture_among(pictures, str(kind), where="there is")
        return Picture(found.svg)

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return self._kind.fragment(self.record)


@dataclass(frozen=True, repr=False)
class Result(_Shown):
    """A stored training run. Printing it gives the verdict."""

    record: SearchRun

    @property
    def best(self) -> Plan | None:
        """The chosen deployment with its expected and worst-case time and cost; None if nothing fits."""
        return self.record.choice

    @property
    def trials(self) -> tuple[Step, ...]:
        """Every trial in order, including failed ones."""
        return self.record.trials

    @property
    def receipt(self) -> Receipt:
        """What search and training took, the limits, what remains, what was saved."""
        return shown(self.record).train_findings.receipt

    def pareto(self) -> tuple[Plan, ...]:
        """The measured deployments that no other beats in both time and money, fastest first."""
        return shown(self.record).train_findings.pareto

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best.config}"
        return f"<Result {self.run_id}: {self.status}, {best} after {len(self.trials)} trials>"


@dataclass(frozen=True, repr=False)
class ServeResult(_Shown):
    """A stored serving run. Printing it gives the answer in words."""

    record: SearchRun

    @property
    def best(self) -> ServingChoice | None:
        """The recommended configuration with its verified rate; None if none meets the goal."""
        return shown(self.record).serve_findings.choice

    @property
    def trials(self) -> tuple[Step, ...]:
        """Every load test in order, including failed ones."""
        return self.record.trials

    def what_if(self, *, rate: float | None = None, limits: Mapping[str, float] | None = None) -> ServingWhatIf:
        """What would be chosen for another rate or other latency limits, from the load tests. Spends nothing.

        rate    requests per second to hold; None: as many as it can
        limits  those of the job's own that hold, in seconds, by name: {"p99": 0.05}; None: as the job has them

        Raises BadInput.
        """
        goal = self.record.problem.goal
        if rate is not None and not _is_number(rate):
            raise BadInput(f"rate: must be a number of requests per second (got {rate!r})")
        if limits is None:
            limits = {name: limit.seconds for name, limit in limits_of(goal).items()}
        if not isinstance(limits, Mapping) or not all(_is_number(seconds) for seconds in limits.values()):
            raise BadInput(f"limits: must be seconds by name, such as {{'p99': 0.05}} (got {limits!r})")
        return serving_what_if(shown(self.record), rate=rate, limits=limits)

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best.config}"
        return f"<ServeResult {self.run_id}: {self.status}, {best} after {plural(len(self.trials), 'load test')}>"


@dataclass(frozen=True, repr=False)
class ServerlessResult(_Shown):
    """A stored training on functions. Printing it gives the answer in words."""

    record: EpochRun
    rows_key: ClassVar[str] = "epochs"

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The completed epochs with functions, loss, time and money; see also `record.failed_epochs`."""
        return self.record.epochs

    @property
    def model(self) -> Path | None:
        """The trained model: its parameters as one float32 vector, for numpy.load. None if nothing was really trained.

        PyTorch: torch.nn.utils.vector_to_parameters(torch.from_numpy(numpy.load(path)), module.parameters())
        """
        return Path(self.record.model_file) if self.record.model_file else None

    def __repr__(self) -> str:
        loss = f", loss {self.epochs[-1].loss:.4g}" if self.epochs else ""
        return f"<ServerlessResult {self.run_id}: {self.status} after {plural(len(self.epochs), 'epoch')}{loss}>"


_RESULTS: Mapping[Kind, type[Result] | type[ServeResult] | type[ServerlessResult]] = {
    Kind.TRAIN: Result,
    Kind.SERVE: ServeResult,
    Kind.SERVERLESS: ServerlessResult,
}


def result_of(run: Run[Any]) -> Result | ServeResult | ServerlessResult:
    """The result class of the run's kind, made from the run."""
    return _RESULTS[run.kind](run)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(path: str | os.PathLike[str], text: str) -> Path:
    file = Path(check_path("path", path))
    write_text(file, text)
    return file
