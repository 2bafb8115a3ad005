"""A measured training: step times and convergence at each batch, which give the time and cost of every (K, B).

A model is a folder with two tables, in the form of shared/measured/pollux:

    steps.csv        nodes, gpus, local_batch, step_seconds, sync_seconds: one training step
    convergence.csv  batch, iteration, metric, grad_sqr, grad_var: one row per epoch of a full training

The trainings scaled their learning rate by AdaScale, whose epochs are equal steps of progress and not passes over the
data: at a large batch the first ones take several passes, and fewer as the noise grows. So progress is counted in them.

K is the number of GPUs on g4dn.12xlarge nodes of 4: K = 1, 2, 3 is a share of one node, above 4 every node is full.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mlcd.errors import BadInput
from mlcd.models.parallel import ClusterSetting

GPUS_PER_NODE = 4
USD_PER_NODE_HOUR = 3.912
"""g4dn.12xlarge, us-east-1, on demand; the price that the tables' description states."""
TARGET_SHARE = 0.02
"""The target falls short of the worst batch's best metric by this share, so that all batches may reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A measured step of one placement."""

    local_batch: float
    step_seconds: float
    sync_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEpoch:
    """A row of convergence.csv: |G|^2, and the variance of a gradient of the smallest batch."""

    iteration: float
    metric: float
    grad_sqr: float
    grad_var: float


@dataclass(frozen=True, order=True, slots=True, kw_only=True)
class ClusterChoice:
    """A configuration: K GPUs and the global batch B."""

    workers: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class ScavengerTruth:
    """One model's tables and everything derived from them."""

    name: str
    steps: Mapping[int, tuple[StepRow, ...]]
    epochs: Mapping[int, tuple[MeasuredEpoch, ...]]

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """The global batches that reach the target, smallest first; others have no time to target."""
        return tuple(sorted(self.iterations))

    @cached_property
    def higher_is_better(self) -> bool:
        """Whether the metric rises during training, on average over batches."""
        return sum(rows[-1].metric - rows[0].metric for rows in self.epochs.values()) > 0

    @cached_property
    def target(self) -> float:
        """98% of the best metric of the worst batch; 102% where lower is better."""
        sign = 1 if self.higher_is_better else -1
        worst = min(self.epochs.values(), key=lambda rows: sign * rows[-1].metric)
        return (1 - sign * TARGET_SHARE) * max((row.metric for row in worst), key=lambda metric: sign * metric)

    @cached_property
    def choices(self) -> tuple[ClusterChoice, ...]:
        """Every (K, B) whose local batch is at least the smallest measured; below it there is no truth."""
        return tuple(
            ClusterChoice(workers=workers, batch=batch)
            for workers in sorted(self.steps)
            for batch in self.batches
            if batch / workers >= self.steps[workers][0].local_batch
        )

    @cached_property
    def iterations(self) -> Mapping[int, float]:
        """Steps to the target at each batch that reaches it."""
        found = {batch: self._crossing(rows) for batch, rows in self.epochs.items()}
        return {batch: steps for batch, steps in found.items() if steps is not None}

    @cached_property
    def epochs_needed(self) -> Mapping[int, float]:
        """Epochs to the target at each batch that reaches it."""
        return {batch: self._epoch_at(batch, steps) for batch, steps in self.iterations.items()}

    def iterations_at(self, batch: int, progress: float) -> float:
        """Steps of a training at `batch` until `progress`, from 0 to 1 at the target in equal steps an epoch."""
        ends = self._ends(batch)
        return float(np.interp(progress * self.epochs_needed[batch], range(len(ends)), ends))

    def progress_at(self, batch: int, iterations: float) -> float:
        """The progress of a training at `batch` after so many steps; the inverse of `iterations_at`."""
        return self._epoch_at(batch, iterations) / self.epochs_needed[batch]

    def seconds_left(self, choice: ClusterChoice, progress: float) -> float:
        """Seconds from `progress` to the target."""
        left = self.iterations[choice.batch] - self.iterations_at(choice.batch, progress)
        return left * self.step_seconds(choice)

    def noise_at(self, batch: int, iterations: float) -> float | None:
        """The noise scale in the epoch of this step, in samples; None where the table has none."""
        rows = self.epochs[batch]
        now = next((row for row in rows if row.iteration >= iterations), rows[-1])
        known = now.grad_sqr > 0 and now.grad_var >= 0
        return self.batches[0] * now.grad_var / now.grad_sqr if known else None

    def setting(self, choice: ClusterChoice) -> ClusterSetting:
        """The choice with its number of accumulation pieces: the fewest that fit the largest measured local batch."""
        largest = self.steps[choice.workers][-1].local_batch
        pieces = math.ceil(choice.batch / choice.workers / largest - 1e-9)
        return ClusterSetting(workers=choice.workers, batch=choice.batch, pieces=pieces)

    def step_seconds(self, choice: ClusterChoice) -> float:
        """Seconds of one step, interpolated in the local batch; only the last piece is synchronised."""
        setting, rows = self.setting(choice), self.steps[choice.workers]
        piece = setting.local_batch / setting.pieces
        if len(rows) == 1 or piece <= rows[0].local_batch:
            step, sync = rows[0].step_seconds, rows[0].sync_seconds
        else:
            above = next((at for at, row in enumerate(rows) if row.local_batch >= piece - 1e-9), len(rows) - 1)
            low, high = rows[above - 1], rows[above]
            share = (piece - low.local_batch) / (high.local_batch - low.local_batch)
            step = low.step_seconds + share * (high.step_seconds - low.step_seconds)
            sync = low.sync_seconds + share * (high.sync_seconds - low.sync_seconds)
        return step + (setting.pieces - 1) * (step - sync)

    def seconds(self, choice: ClusterChoice) -> float:
        """Seconds of the training to the target."""
        return self.iterations[choice.batch] * self.step_seconds(choice)

    def usd(self, choice: ClusterChoice) -> float:
        """Dollars of the training to the target."""
        return usd(choice, self.seconds(choice))

    def _ends(self, batch: int) -> list[float]:
        return [0.0, *(row.iteration for row in self.epochs[batch])]

    def _epoch_at(self, batch: int, iterations: float) -> float:
        ends = self._ends(batch)
        return float(np.interp(iterations, ends, range(len(ends))))

    def _crossing(self, rows: tuple[MeasuredEpoch, ...]) -> float | None:
        """The iteration at which the metric first reaches the target, interpolated between epochs.

        The first epoch's own iteration if it is reached there; None where it never is.
        """
        before: MeasuredEpoch | None = None
        for row in rows:
            reached = row.metric >= self.target if self.higher_is_better else row.metric <= self.target
            if reached:
                if before is None:
                    return row.iteration
                share = (self.target - before.metric) / (row.metric - before.metric)
                return before.iteration + share * (row.iteration - before.iteration)
            before = row
        return None


def usd(choice: ClusterChoice, seconds: float) -> float:
    """Dollars for `seconds` on `choice`: whole nodes by the hour, a share of one below 4 GPUs."""
    return seconds / 3600 * choice.workers / GPUS_PER_NODE * USD_PER_NODE_HOUR


def load_truths(folder: Path) -> dict[str, ScavengerTruth]:
    """The models of a folder, by name. Raises BadInput where there is none or a table cannot be read."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; --tables needs one with a folder per model")
    found = {path.parent.name: load_truth(path.parent) for path in sorted(folder.glob("*/convergence.csv"))}
    if not found:
        raise BadInput(f"{folder}: has no models; each is a folder with steps.csv and convergence.csv")
    return found


def load_truth(folder: Path) -> ScavengerTruth:
    """One model. Where a placement was measured on several clusters, the first one counts."""
    steps: dict[int, list[StepRow]] = defaultdict(list)
    for line in _rows(folder / "steps.csv", ("nodes", "gpus", "local_batch", "step_seconds", "sync_seconds")):
        nodes, workers = int(line["nodes"]), int(line["gpus"])
        if nodes == 1 or workers == nodes * GPUS_PER_NODE:
            row = StepRow(
                local_batch=line["local_batch"], step_seconds=line["step_seconds"], sync_seconds=line["sync_seconds"]
            )
            if row.local_batch not in {known.local_batch for known in steps[workers]}:
                steps[workers].append(row)
    epochs: dict[int, list[MeasuredEpoch]] = defaultdict(list)
    columns = ("batch", "iteration", "metric", "grad_sqr", "grad_var")
    for line in _rows(folder / "convergence.csv", columns):
        values = {name: line[name] for name in columns[1:]}
        epochs[int(line["batch"])].append(MeasuredEpoch(**values))
    truth = ScavengerTruth(
        name=folder.name,
        steps={k: tuple(sorted(rows, key=lambda r: r.local_batch)) for k, rows in steps.items()},
        epochs={batch: tuple(rows) for batch, rows in epochs.items()},
    )
    if len(epochs) < 4 or len(steps) < 2 or len(truth.batches) < 4:
        reach = len(truth.batches) if epochs else 0
        raise BadInput(
            f"{folder}: needs 4 batches or more that reach the target, and 2 cluster sizes (has {reach}, {len(steps)})"
        )
    return truth


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, float]]:
    """The columns as numbers. Raises BadInput with the line number."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise BadInput(f"{path}: no column {', '.join(missing)}")
            found = []
            for at, line in enumerate(reader, 2):
                try:
                    found.append({name: float(line[name]) for name in columns})
                except (TypeError, ValueError) as error:
                    raise BadInput(f"{path}:{at}: a number is missing or malformed") from error
            return found
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
