"""Seconds of one training step for K workers and a global batch B: laws, fits to a few timed runs, and uncertainty.

Every law is compute(B/K) + communication(K), in one of three forms:

    parameter-server  t = a0 s + a1 B/K + a2 K                            (Scavenger; one server takes K pushes)
    ring              t = a0 s + a1 B/K + a2 2(K-1)/K + a3 K [K > 1]      (bytes over the links, a latency per worker)
    overlap           t = (s-1) G + (G^g + C^g)^(1/g),  G = a0 + a1 B/(K s),  C = c (1 + r (K-2)), 0 for K = 1
                      (Pollux, OSDI 2021: separate c and r inside one node and across nodes; g = 1 is no overlap)

s is the number of pieces a worker's batch is cut into if it does not fit in memory; only the last is exchanged.
All coefficients are >= 0. The first two are fitted by non-negative least squares on relative errors, the third by
bounded L-BFGS on logarithms with weak priors, so that five runs are enough for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from mlcd.errors import BadInput

Floats = NDArray[np.float64]

CENTRE_TOLERANCE_SHARE = 0.05
"""If the centre is off by more than this share, the law fitted to the corners does not hold: measure more."""
_STEP_DEVIATION = 0.05
"""Prior relative deviation of a timed step; it weighs as much as _PRIOR_RUNS runs."""
_PRIOR_RUNS = 2.0


class Law(StrEnum):
    """The form of the communication time."""

    PARAMETER_SERVER = "parameter-server"
    RING = "ring"
    OVERLAP = "overlap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetting:
    """One way to take a step: K workers, the global batch B, and the pieces a worker's batch is cut into."""

    workers: int
    batch: float
    pieces: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise BadInput(f"the number of workers must be at least 1 (got {self.workers})")
        if not math.isfinite(self.batch) or self.batch < self.workers:
            raise BadInput(f"a global batch of {self.batch:g} leaves some of {self.workers} workers without a sample")
        if self.pieces < 1:
            raise BadInput(f"a batch must be cut into at least 1 piece (got {self.pieces})")

    @property
    def local_batch(self) -> float:
        """Samples of one worker in one step."""
        return self.batch / self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The measured seconds of one step."""

    setting: ClusterSetting
    seconds: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds) or self.seconds <= 0:
            raise BadInput(f"a step's time must be positive (got {self.seconds!r} s)")


@dataclass(frozen=True, kw_only=True)
class ParallelModel:
    """A fitted law. `scatter` is the relative deviation of one measurement around it, on `freedom` degrees."""

    law: Law
    workers_per_node: int
    coefficients: tuple[float, ...]
    scatter: float
    freedom: float
    covariance: Floats = field(repr=False)
    runs: int

    def seconds(self, setting: ClusterSetting) -> float:
        """The step's expected seconds."""
        return float(_seconds(self.law, np.array(self.coefficients), [setting], self.workers_per_node)[0])

    def deviation(self, setting: ClusterSetting) -> float:
        """Relative deviation of a new measurement: of the fit and of the measurement itself."""
        slope = _slopes(self.law, np.array(self.coefficients), [setting], self.workers_per_node)[0]
        return math.sqrt(self.scatter**2 + float(slope @ self.covariance @ slope))


def fit(runs: Sequence[StepTime], law: Law, *, workers_per_node: int = 1) -> ParallelModel:
    """The law that fits the runs best by relative error. Raises BadInput for fewer than two runs."""
    if len(runs) < 2:
        raise BadInput(f"a model of the step time needs at least 2 runs (got {len(runs)})")
    if workers_per_node < 1:
        raise BadInput(f"a node must hold at least 1 worker (got {workers_per_node})")
    settings = [run.setting for run in runs]
    seconds = np.array([run.seconds for run in runs])
    if law is Law.OVERLAP:
        found, precision = _fit_overlap(settings, seconds, workers_per_node)
        used = np.ones(len(found), dtype=bool)
    else:
        columns = _columns(law, settings)
        found, _ = nnls(columns / seconds[:, None], np.ones(len(runs)))
        used = found > 0
        precision = np.zeros((len(found), len(found)))
    residuals = np.log(_seconds(law, found, settings, workers_per_node) / seconds)
    squares = float(residuals @ residuals)
    spare = max(0.0, len(runs) - float(np.count_nonzero(used)))
    freedom = _PRIOR_RUNS + spare
    scatter = math.sqrt((_PRIOR_RUNS * _STEP_DEVIATION**2 + squares) / freedom)
    slopes = _slopes(law, found, settings, workers_per_node)[:, used]
    information = slopes.T @ slopes / scatter**2 + precision[np.ix_(used, used)]
    covariance = np.zeros((len(found), len(found)))
    covariance[np.ix_(used, used)] = np.linalg.pinv(information)
    return ParallelModel(
        law=law,
        workers_per_node=workers_per_node,
        coefficients=tuple(float(value) for value in found),
        scatter=scatter,
        freedom=freedom,
        covariance=covariance,
        runs=len(runs),
    )


def choose(runs: Sequence[StepTime], laws: Sequence[Law] = tuple(Law), *, workers_per_node: int = 1) -> ParallelModel:
    """The law with the least leave-one-out error; of equals the one with fewer coefficients.

    With fewer than 4 runs none can be left out, and the first law in `laws` is used.
    """
    if not laws:
        raise BadInput("there is no law to choose from")
    if len(runs) < 4 or len(laws) == 1:
        return fit(runs, laws[0], workers_per_node=workers_per_node)
    ranked = sorted(laws, key=lambda law: (round(left_out_error(runs, law, workers_per_node), 6), _SIZES[law]))
    return fit(runs, ranked[0], workers_per_node=workers_per_node)


def left_out_error(runs: Sequence[StepTime], law: Law, workers_per_node: int = 1) -> float:
    """Root mean square of ln(predicted / measured), each run predicted from the others."""
    errors = []
    for at, run in enumerate(runs):
        model = fit([*runs[:at], *runs[at + 1 :]], law, workers_per_node=workers_per_node)
        errors.append(math.log(max(model.seconds(run.setting), 1e-12) / run.seconds))
    return math.sqrt(float(np.mean(np.square(errors))))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCheck:
    """How far the centre lies from a law fitted without it: measured over predicted, less 1."""

    error: float

    @property
    def fits(self) -> bool:
        """Whether the law may be interpolated."""
        return abs(self.error) <= CENTRE_TOLERANCE_SHARE


def check_centre(corners: Sequence[StepTime], centre: StepTime, law: Law, *, workers_per_node: int = 1) -> FitCheck:
    """The lack-of-fit test of a corner design: without a centre, curvature cannot be detected."""
    model = fit(corners, law, workers_per_node=workers_per_node)
    return FitCheck(error=centre.seconds / model.seconds(centre.setting) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A law corrected by its runs: at each K, its error is interpolated over ln B between the batches timed there.

    For a search that timed every K: the effects of a particular K (a slow switch, a second node) are kept.
    """

    model: ParallelModel
    runs: tuple[StepTime, ...]

    def seconds(self, setting: ClusterSetting) -> float:
        """The law times the interpolated error; the nearest batch's error outside the timed range."""
        near = sorted((r.setting.batch, r) for r in self.runs if r.setting.workers == setting.workers)
        if not near:
            return self.model.seconds(setting)
        batches = [math.log(batch) for batch, _ in near]
        errors = [math.log(run.seconds / self.model.seconds(run.setting)) for _, run in near]
        return self.model.seconds(setting) * math.exp(float(np.interp(math.log(setting.batch), batches, errors)))


def _columns(law: Law, settings: Sequence[ClusterSetting]) -> Floats:
    workers = np.array([s.workers for s in settings], dtype=float)
    local = np.array([s.local_batch for s in settings])
    pieces = np.array([s.pieces for s in settings], dtype=float)
    if law is Law.PARAMETER_SERVER:
        return np.column_stack([pieces, local, workers])
    return np.column_stack([pieces, local, 2 * (workers - 1) / workers, np.where(workers > 1, workers, 0.0)])


_SIZES = {Law.PARAMETER_SERVER: 3, Law.RING: 4, Law.OVERLAP: 7}

# The overlap law's coefficients: ln a0, ln a1, ln c inside a node, ln c across nodes, r inside, r across, g.
_R_DEVIATION = 0.02  # of r: a ring's time hardly grows with K; a server's would by 1/2 per worker
_G_MEAN, _G_DEVIATION = 1.5, 1.0
_FLOOR = 1e-12


def _seconds(law: Law, values: Floats, settings: Sequence[ClusterSetting], workers_per_node: int) -> Floats:
    if law is Law.OVERLAP:
        return _Overlap.of(settings, workers_per_node).seconds(values)
    return np.maximum(_columns(law, settings) @ values, _FLOOR)


def _slopes(law: Law, values: Floats, settings: Sequence[ClusterSetting], workers_per_node: int) -> Floats:
    """d ln t / d coefficient, a row per setting."""
    if law is Law.OVERLAP:
        return _Overlap.of(settings, workers_per_node).slopes(values)[1]
    columns = _columns(law, settings)
    return np.asarray(columns / np.maximum(columns @ values, _FLOOR)[:, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overlap:
    """The overlap law over some settings: t = (pieces - 1) G + (G^g + C^g)^(1/g), with G = a0 + a1 piece.

    piece   samples of one piece of a worker's batch
    inside  whether all workers are in one node
    grown   workers beyond the second, for each of which the exchange C = c (1 + r grown) takes longer
    alone   whether there is one worker, so that C = 0
    """

    pieces: Floats
    piece: Floats
    inside: NDArray[np.bool_]
    grown: Floats
    alone: NDArray[np.bool_]

    @classmethod
    def of(cls, settings: Sequence[ClusterSetting], workers_per_node: int) -> "_Overlap":
        workers = np.array([s.workers for s in settings], dtype=float)
        pieces = np.array([s.pieces for s in settings], dtype=float)
        return cls(
            pieces=pieces,
            piece=np.array([s.local_batch for s in settings]) / pieces,
            inside=workers <= workers_per_node,
            grown=np.maximum(workers - 2, 0),
            alone=workers <= 1,
        )

    def seconds(self, values: Floats) -> Floats:
        """t at these coefficients."""
        compute, _, exchange = self._parts(values)
        return np.asarray((self.pieces - 1) * compute + _joined(compute, exchange, values[6]))

    def slopes(self, values: Floats) -> tuple[Floats, Floats]:
        """t, and d ln t / d coefficient with a row per setting."""
        compute, base, exchange = self._parts(values)
        g = values[6]
        joined = _joined(compute, exchange, g)
        seconds = (self.pieces - 1) * compute + joined
        of_compute, of_exchange = compute / joined, exchange / joined
        by_compute = self.pieces - 1 + of_compute ** (g - 1)
        by_exchange = np.where(self.alone, 0.0, of_exchange ** (g - 1))
        logs = of_compute**g * np.log(of_compute) + of_exchange**g * np.log(np.maximum(of_exchange, _FLOOR))
        columns = [
            by_compute * np.exp(values[0]),
            by_compute * np.exp(values[1]) * self.piece,
            by_exchange * np.where(self.inside, exchange, 0.0),
            by_exchange * np.where(self.inside, 0.0, exchange),
            by_exchange * np.where(self.inside, base * self.grown, 0.0),
            by_exchange * np.where(self.inside, 0.0, base * self.grown),
            joined * logs / g,
        ]
        return seconds, np.asarray(np.column_stack(columns) / seconds[:, None])

    def _parts(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """G, c and C."""
        compute = np.exp(values[0]) + np.exp(values[1]) * self.piece
        base = np.exp(np.where(self.inside, values[2], values[3]))
        growth = np.where(self.inside, values[4], values[5])
        return compute, base, np.where(self.alone, 0.0, base * (1 + growth * self.grown))


def _joined(compute: Floats, exchange: Floats, g: float) -> Floats:
    """(G^g + C^g)^(1/g); the larger of the two is factored out of the root, so that no power overflows."""
    large, small = np.maximum(compute, exchange), np.minimum(compute, exchange)
    return np.asarray(large * (1 + (small / large) ** g) ** (1 / g))


def _fit_overlap(settings: Sequence[ClusterSetting], seconds: Floats, workers_per_node: int) -> tuple[Floats, Floats]:
    """The coefficients, and the precision of their priors."""
    quickest = math.log(float(seconds.min()))
    local = np.array([s.local_batch for s in settings])
    alone = [at for at, s in enumerate(settings) if s.workers == 1] or list(range(len(settings)))
    heaviest = max(alone, key=lambda at: local[at])
    slope = math.log(float(seconds[heaviest] / local[heaviest]))
    means = np.array([quickest - 1.0, slope, quickest - 2.0, quickest, 0.0, 0.0, _G_MEAN])
    deviations = np.array([1.5, 1.5, 1.5, 1.5, _R_DEVIATION, _R_DEVIATION, _G_DEVIATION])
    bounds = [*[(float(m) - 12, float(m) + 12) for m in means[:4]], (0.0, 0.5), (0.0, 0.5), (1.0, 10.0)]
    logs = np.log(seconds)
    overlap = _Overlap.of(settings, workers_per_node)

    def loss(values: Floats) -> tuple[float, Floats]:
        predicted, slopes = overlap.slopes(values)
        errors = (np.log(predicted) - logs) / _STEP_DEVIATION
        strays = (values - means) / deviations
        gradient = 2 * (errors @ slopes / _STEP_DEVIATION + strays / deviations)
        return float(errors @ errors + strays @ strays), gradient

    best = None
    for start_g in (1.0, 1.5, 3.0):
        start = means.copy()
        start[6] = start_g
        tried = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
        if best is None or tried.fun < best.fun:
            best = tried
    assert best is not None  # noqa: S101 - there are three starts
    return np.asarray(best.x, dtype=float), np.diag(1 / deviations**2)
