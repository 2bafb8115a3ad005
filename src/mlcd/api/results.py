"""What a run gives back: a `Result` of training, a `ServeResult` of serving, a `ServerlessResult` of functions."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcd.errors import BadInput, nearest
from mlcd.jobs.arguments import check_path
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.pareto import pareto
from mlcd.report.pictures import PictureKind, picture
from mlcd.report.receipt import Receipt, receipt
from mlcd.report.serverless import serverless_verdict
from mlcd.report.serverless_html import serverless_html
from mlcd.report.serverless_json import serverless_json
from mlcd.report.serverless_picture import serverless_picture
from mlcd.report.serving import serving_verdict
from mlcd.report.serving_facts import Choice, chosen
from mlcd.report.serving_html import serving_html
from mlcd.report.serving_json import serving_json
from mlcd.report.verdict import verdict
from mlcd.report.wording import plural
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.trial.serverless import ServerlessRecord


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG. A notebook shows it by itself."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file and returns its path. Raises OSError."""
        return _written(path, self.svg)


class _Shown(ABC):
    """What every result can: its name, how it ended, and the three ways to look at it."""

    record: RunRecord | ServerlessRecord

    @property
    def run_id(self) -> str:
        """The name for `resume` and for `mlcd show`."""
        return self.record.run_id

    @property
    def status(self) -> Status:
        """How it ended; that nothing fits, or that the target was not reached, is a status and no exception."""
        return self.record.status

    @abstractmethod
    def explain(self) -> str:
        """The answer in words."""

    @abstractmethod
    def _data(self) -> Mapping[str, object]:
        """As JSON has it."""

    @abstractmethod
    def _page(self) -> str:
        """As HTML."""

    def to_json(self) -> str:
        """The same JSON text as `mlcd show RUN -o json`; docs/output.md has its fields."""
        return json.dumps(self._data(), indent=2, ensure_ascii=False, allow_nan=False)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the HTML report and returns its path. Raises OSError."""
        return _written(path, self._page())

    def __str__(self) -> str:
        return self.explain()


@dataclass(frozen=True, repr=False)
class Result(_Shown):
    """A run as the store has it. Printing it gives the verdict."""

    record: RunRecord

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
            raise BadInput(f"there is no picture {kind!r}; allowed: {', '.join(kinds)}{_meant(str(kind), kinds)}")
        return Picture(picture(self.record, kind))

    def _data(self) -> Mapping[str, object]:
        return record_json(self.record)

    def _page(self) -> str:
        return html_report(self.record)

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best.config}"
        return f"<Result {self.run_id}: {self.status}, {best} after {len(self.trials)} trials>"


@dataclass(frozen=True, repr=False)
class ServeResult(_Shown):
    """A serving run as the store has it. Printing it gives the answer in words."""

    record: RunRecord

    @property
    def best(self) -> Choice | None:
        """The configuration that is recommended, with what it was verified to hold; None where none meets the goal."""
        return chosen(self.record)

    @property
    def trials(self) -> tuple[TrialRow, ...]:
        """Every load test in order, the failed ones too."""
        return self.record.rows

    def explain(self) -> str:
        """The answer in words: the choice, what it holds, the receipt, why not the others."""
        return serving_verdict(self.record)

    def _data(self) -> Mapping[str, object]:
        return serving_json(self.record)

    def _page(self) -> str:
        return serving_html(self.record)

    def __repr__(self) -> str:
        best = "nothing" if self.best is None else f"{self.best.config}"
        return f"<ServeResult {self.run_id}: {self.status}, {best} after {plural(len(self.trials), 'load test')}>"


@dataclass(frozen=True, repr=False)
class ServerlessResult(_Shown):
    """A training on functions as the store has it. Printing it gives the answer in words."""

    record: ServerlessRecord

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs that came to their end, with fleet, loss, time and money; `record.failed` are the others."""
        return self.record.epochs

    def explain(self) -> str:
        """The answer in words: how it ended, every epoch, the receipt, what a plain instance would have taken."""
        return serverless_verdict(self.record)

    def plot(self) -> Picture:
        """Functions and memory of each epoch; the loss against time, and against money."""
        return Picture(serverless_picture(self.record))

    def _data(self) -> Mapping[str, object]:
        return serverless_json(self.record)

    def _page(self) -> str:
        return serverless_html(self.record)

    def __repr__(self) -> str:
        loss = f", loss {self.epochs[-1].loss:.4g}" if self.epochs else ""
        return f"<ServerlessResult {self.run_id}: {self.status} after {plural(len(self.epochs), 'epoch')}{loss}>"


def _written(path: str | os.PathLike[str], text: str) -> Path:
    file = Path(check_path("path", path))
    file.write_text(text, encoding="utf-8")
    return file


def _meant(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
