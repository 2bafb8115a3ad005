"""mlcd from Python: `train` and `resume` give a `Result`. For those who run the trials themselves: mlcd.asktell."""

import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from mlcd.errors import BadInput, nearest
from mlcd.events import Observer, ignore
from mlcd.jobs.given import GoalLike, Job, check_seed, job_spec
from mlcd.jobs.train import resume as resume_job
from mlcd.jobs.train import train as train_job
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.pareto import pareto
from mlcd.report.pictures import PictureKind, picture
from mlcd.report.progress import ProgressLines
from mlcd.report.receipt import Receipt, receipt
from mlcd.report.verdict import verdict
from mlcd.store.store import Store
from mlcd.store.store import home as default_home
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.units import Usd


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG. A notebook shows it by itself."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file and returns its path. Raises OSError."""
        file = Path(path)
        file.write_text(self.svg, encoding="utf-8")
        return file


@dataclass(frozen=True, repr=False)
class Result:
    """A run as the store has it. Printing it gives the verdict."""

    record: RunRecord

    @property
    def run_id(self) -> str:
        """The name for `resume` and for `mlcd show`."""
        return self.record.run_id

    @property
    def status(self) -> Status:
        """How it ended; "nothing fits" is a status and no exception."""
        return self.record.status

    @property
    def best(self) -> Plan | None:
        """The deployment chosen, with its predicted and worst time and money; None when nothing fits."""
        return self.record.choice

    @property
    def trials(self) -> tuple[TrialRow, ...]:
        """Every trial in order, the failed ones too."""
        return self.record.rows

    @property
    def receipt(self) -> Receipt:
        """What search and training took, the caps, what is left, what was saved."""
        return receipt(self.record)

    def explain(self) -> str:
        """The verdict in words: the choice, the receipt, why not the others, a small plot."""
        return verdict(self.record)

    def pareto(self) -> tuple[Plan, ...]:
        """The measured deployments that no other beats in both time and money, fastest first."""
        return pareto(self.record)

    def plot(self, kind: str = "speed") -> Picture:
        """A picture: `speed` over nodes with the search path, `money` over trials, or the time-money `tradeoff`.

        Where the batch was chosen also `batches`, a curve a batch over the nodes, and `batches-repriced`, the same
        under the other price policy.

        Raises BadInput for another kind.
        """
        kinds = [str(known) for known in PictureKind]
        if kind not in kinds:
            raise BadInput(f"there is no picture {kind!r}; allowed: {', '.join(kinds)}{_meant(kind, kinds)}")
        return Picture(picture(self.record, kind))

    def to_json(self) -> str:
        """The same JSON text as `mlcd show RUN -o json`; docs/output.md has its fields."""
        return json.dumps(record_json(self.record), indent=2, ensure_ascii=False, allow_nan=False)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the HTML report and returns its path. Raises OSError."""
        file = Path(path)
        file.write_text(html_report(self.record), encoding="utf-8")
        return file

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best.config}"
        return f"<Result {self.run_id}: {self.status}, {best} after {len(self.trials)} trials>"

    def __str__(self) -> str:
        return self.explain()


def train(
    job: Job,
    *,
    goal: GoalLike | None = None,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: int | None = None,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Result:
    """Search, choose and train, inside the job's limits; the same as `mlcd train`.

    goal      in place of the job's own; budget and deadline then change that
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error

    Raises BadInput (SpecError, CatalogError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    spec = job_spec(job, goal, on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel)
    check_seed(seed)
    with Store(_home(home)) as store:
        return Result(train_job(spec, store=store, seed=seed, observer=_observer(progress, spec.resources.infra)))


def resume(run_id: str, *, home: str | os.PathLike[str] | None = None, progress: bool = False) -> Result:
    """Go on with a run; no finished trial is run or paid again. A finished run is only read.

    Raises what `train` raises, and RunBusy where another process works on that run.
    """
    with Store(_home(home)) as store:
        return Result(resume_job(run_id, store=store, observer=_observer(progress, store.record(run_id).cloud)))


def _observer(progress: bool, cloud: str) -> Observer:
    if not progress:
        return ignore
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return ProgressLines(sys.stderr, colour, replayed=cloud.startswith("replay/"))


def _home(home: str | os.PathLike[str] | None) -> Path:
    return default_home() if home is None else Path(home).expanduser()


def _meant(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
