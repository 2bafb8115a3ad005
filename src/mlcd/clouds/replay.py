"""A cloud that replays a table of real measurements: the known truth for comparing searches.

A folder holds `instances.csv` (what each instance is and costs) and one CSV a workload with the columns `instance`,
`nodes`, `seconds` and optionally `status`. Repeated rows are averaged; a configuration failed if all its rows did.
A table with the columns batch, learning_rate, mode and samples is a family of workloads, one for each
(batch, learning rate, mode), at the largest `samples`.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from mlcd.clouds.provider import JobProgress, Lease, LeaseFailed, Order, Settled
from mlcd.errors import BadInput
from mlcd.space import Config
from mlcd.trial.trial import FailureKind
from mlcd.units import MOST_SECONDS, Usd
from mlcd.untrusted import Malformed, lines_of, read_named

MOST_TABLE_BYTES = 64 * 2**20
MOST_TABLE_ROWS = 200_000
"""A table is read into memory."""
_COLUMNS = (
    *("instance", "nodes", "seconds", "status", "batch", "learning_rate", "mode", "samples"),
    *("usd_per_hour", "vcpus", "memory_gib"),
)
"""Columns that mean something here; others are not kept."""
STEP_SECONDS = 60.0
"""The interval at which a replayed job reports progress; its speed is constant, so it can be long."""
FAILED_SECONDS = 600.0
"""When a job fails whose row says so: the tables do not tell. Never after the time that was authorised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInstance:
    """An instance type as the table's folder describes it. Missing columns are None."""

    name: str
    usd_per_hour: Usd
    vcpus: float | None = None
    memory_gib: float | None = None

    @property
    def features(self) -> tuple[float, ...]:
        """log2 of each known property of the type; all types of a folder have as many."""
        known = (self.vcpus, self.memory_gib, self.usd_per_hour.dollars)
        return tuple(math.log2(value) for value in known if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWorkload:
    """One measured job: seconds of the whole job for each configuration, None where it failed."""

    name: str
    seconds: Mapping[Config, float | None]
    instances: Mapping[str, ReplayInstance]

    def __post_init__(self) -> None:
        if not any(self.seconds.values()):
            raise BadInput(f"workload {self.name!r} has no row that finished")

    @property
    def fastest_seconds(self) -> float:
        """The shortest measured time, which `scaled` maps to its `hours`."""
        return min(s for s in self.seconds.values() if s is not None)

    def scaled(self, hours: float) -> "ReplayWorkload":
        """The same job made longer or shorter, so that its fastest training takes `hours`."""
        factor = hours * 3600 / self.fastest_seconds
        scaled = {c: None if s is None else s * factor for c, s in self.seconds.items()}
        return ReplayWorkload(name=self.name, seconds=scaled, instances=self.instances)


class ReplayCloud:
    """Replays the measured times. The whole job counts as one sample: speed = 1 / seconds."""

    simulated = True
    noise = 0.0

    def __init__(self, workload: ReplayWorkload, *, folder: str = "table") -> None:
        self.workload, self.name = workload, f"replay/{folder}"

    def lease(self, order: Order) -> Lease:
        """Rows are exact and repeatable, so attempt and purpose are ignored."""
        return _ReplayLease(self.workload.seconds[order.config], failed_seconds=min(FAILED_SECONDS, order.seconds))

    def true_samples_per_second(self, config: Config) -> float | None:
        """1 / seconds, or None where the job failed."""
        seconds = self.workload.seconds[config]
        return None if seconds is None else 1 / seconds


class _ReplayLease:
    def __init__(self, seconds: float | None, *, failed_seconds: float) -> None:
        self.seconds, self.failed_seconds = seconds, failed_seconds

    def __enter__(self) -> "_ReplayLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was started."""

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=at.seconds)

    def progress(self) -> Iterator[JobProgress]:
        yield JobProgress(0.0, 0.0)
        if self.seconds is None:
            raise LeaseFailed(
                FailureKind.ERROR,
                "the job failed on this configuration when it was measured",
                seconds=self.failed_seconds,
            )
        at = 0.0
        while True:
            # One-minute steps while a trial may be watching, then longer ones: the final run takes hours.
            at += STEP_SECONDS if at < 7200 else at / 8
            yield JobProgress(at, at / self.seconds)


def load_workloads(folder: Path) -> dict[str, ReplayWorkload]:
    """Every workload of a folder by name, in order. Raises BadInput naming file, line and field."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder of measured tables")
    instances = _load_instances(folder / "instances.csv")
    workloads: dict[str, ReplayWorkload] = {}
    for path in sorted(folder.glob("*.csv")):
        if path.name != "instances.csv":
            for name, rows in _split(path).items():
                workloads[name] = ReplayWorkload(
                    name=name, seconds=_average(rows), instances=_used(path, rows, instances)
                )
    if not workloads:
        raise BadInput(f"{folder}: has no workload (a CSV file next to instances.csv)")
    return workloads


@dataclass(frozen=True, slots=True)
class _Row:
    config: Config
    seconds: float
    ok: bool


def _load_instances(path: Path) -> dict[str, ReplayInstance]:
    instances: dict[str, ReplayInstance] = {}
    for line, row in _rows(path):
        name = row.get("instance", "")
        if not name or name in instances:
            problem = f"{name!r} is listed twice" if name else "is missing"
            raise BadInput(f"{path}:{line}: instance: {problem}")
        price = _number(path, line, row, "usd_per_hour")
        instances[name] = ReplayInstance(
            name=name,
            usd_per_hour=Usd.of(str(price)),
            vcpus=_number(path, line, row, "vcpus") if row.get("vcpus") else None,
            memory_gib=_number(path, line, row, "memory_gib") if row.get("memory_gib") else None,
        )
    for field in ("vcpus", "memory_gib"):
        without = [i.name for i in instances.values() if getattr(i, field) is None]
        if 0 < len(without) < len(instances):
            raise BadInput(f"{path}: {field}: is missing for {without[0]!r}; give it for every instance or for none")
    return instances


def _split(path: Path) -> dict[str, list[_Row]]:
    """Rows by workload: one for most files, one for each (batch, learning rate, mode) of a family."""
    raw = list(_rows(path))
    if not raw:
        raise BadInput(f"{path}: no rows")
    family = "learning_rate" in raw[0][1]
    largest = max((_number(path, line, row, "samples") for line, row in raw), default=0.0) if family else 0.0
    split: dict[str, list[_Row]] = defaultdict(list)
    for line, row in raw:
        if family and _number(path, line, row, "samples") != largest:
            continue
        if family and (missing := [column for column in ("batch", "mode") if column not in row]):
            raise BadInput(f"{path}:{line}: {missing[0]}: column is missing; a table with learning_rate needs it")
        name = f"{path.stem}-b{row['batch']}-lr{row['learning_rate']}-{row['mode']}" if family else path.stem
        nodes = _number(path, line, row, "nodes")
        if nodes != int(nodes):
            raise BadInput(f"{path}:{line}: nodes: must be a whole number (got {row['nodes']!r})")
        config = Config.deployment(row.get("instance", ""), int(nodes))
        split[name].append(_Row(config, _number(path, line, row, "seconds"), row.get("status", "ok") == "ok"))
    return dict(split)


def _average(rows: list[_Row]) -> dict[Config, float | None]:
    good: dict[Config, list[float]] = {row.config: [] for row in rows}
    for row in rows:
        if row.ok:
            good[row.config].append(row.seconds)
    ordered = sorted(good, key=lambda config: (config.instance, config.nodes))
    return {config: sum(good[config]) / len(good[config]) if good[config] else None for config in ordered}


def _used(path: Path, rows: list[_Row], instances: dict[str, ReplayInstance]) -> dict[str, ReplayInstance]:
    names = sorted({row.config.instance for row in rows})
    for name in names:
        if name not in instances:
            raise BadInput(f"{path}: instance {name!r} is not in instances.csv")
    return {name: instances[name] for name in names}


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        lines = lines_of(read_named(path, most_bytes=MOST_TABLE_BYTES), str(path))
        for line, row in enumerate(csv.DictReader(lines), start=2):
            if line > MOST_TABLE_ROWS + 1:
                raise BadInput(f"{path}: has more rows than a table may have; allowed: at most {MOST_TABLE_ROWS:,}")
            yield line, {key: value or "" for key, value in row.items() if key in _COLUMNS}
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except Malformed as error:
        raise BadInput(f"{path}: {error.problem}") from error
    except (OSError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read as a table: {error}") from error


_RANGES = {"nodes": (1.0, 100_000.0), "seconds": (1e-6, MOST_SECONDS), "usd_per_hour": (1e-6, 1e6)}
"""What a column may contain, where its name does not say it."""


def _number(path: Path, line: int, row: dict[str, str], field: str) -> float:
    if field not in row:
        raise BadInput(f"{path}:{line}: {field}: column is missing")
    try:
        value = float(row[field])
    except ValueError as error:
        raise BadInput(f"{path}:{line}: {field}: not a number (got {row[field][:80]!r})") from error
    if not (value > 0 and math.isfinite(value)):
        raise BadInput(f"{path}:{line}: {field}: must be positive and finite (got {row[field][:80]!r})")
    low, high = _RANGES.get(field, (1e-9, 1e18))
    if not low <= value <= high:
        problem = f"is out of range (got {row[field][:80]!r}); allowed: from {low:g} to {high:,.15g}"
        raise BadInput(f"{path}:{line}: {field}: {problem}")
    return value
