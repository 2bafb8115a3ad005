"""The Gaussian process against scikit-learn's at the same hyperparameters, and against finite differences."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern
from tests.synthetic import failed, make_problem, true_trial

from mlcd.models import gp
from mlcd.models.speed import as_expected, speed_model, trend
from mlcd.space import Encoding
from mlcd.trial.trial import History

Floats = NDArray[np.float64]
JITTER = 1e-10


class OnColumns(Kernel):  # type: ignore[misc]
    """A kernel that sees some columns only."""

    def __init__(self, base: Any, columns: tuple[int, ...]) -> None:
        self.base, self.columns = base, columns

    def __call__(self, x: Floats, y: Floats | None = None, eval_gradient: bool = False) -> Any:
        chosen = list(self.columns)
        value = self.base(x[:, chosen], None if y is None else y[:, chosen])
        return (value, np.empty((*value.shape, 0))) if eval_gradient else value

    def diag(self, x: Floats) -> Any:
        return self.base.diag(x[:, list(self.columns)])

    def is_stationary(self) -> bool:
        return False


class Same(Kernel):  # type: ignore[misc]
    """1 where two rows are equal, else 0."""

    def __init__(self) -> None:
        pass

    def __call__(self, x: Floats, y: Floats | None = None, eval_gradient: bool = False) -> Any:
        other = x if y is None else y
        return (x[:, None, :] == other[None, :, :]).all(axis=2).astype(float)

    def diag(self, x: Floats) -> Any:
        return np.ones(len(x))

    def is_stationary(self) -> bool:
        return True


class Linear(Kernel):  # type: ignore[misc]
    """x y'."""

    def __init__(self) -> None:
        pass

    def __call__(self, x: Floats, y: Floats | None = None, eval_gradient: bool = False) -> Any:
        return x @ (x if y is None else y).T

    def diag(self, x: Floats) -> Any:
        return (x**2).sum(axis=1)

    def is_stationary(self) -> bool:
        return False


class World:
    """Random inputs of the given shape, with observations of some rows."""

    def __init__(
        self, *, types: int, features: int, counts: int, totals: int, columns: int, seed: int, settings: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        levels = np.log2(np.array([1, 2, 3, 5, 8, 13, 21, 34], dtype=float))
        self.identity = np.repeat(np.arange(types), len(levels)).astype(np.intp)
        self.features = rng.normal(size=(types, features))[self.identity]
        self.counts = np.tile(levels, types)[:, None] + rng.integers(0, 3, size=(types * len(levels), counts)) * 0.5
        self.totals = rng.normal(size=(types, totals))[self.identity] + self.counts[:, :1] if totals else \
            np.zeros((len(self.identity), 0))  # fmt: skip
        n = len(self.identity)
        self.trend = gp.Trend(
            columns=rng.normal(size=(n, columns)),
            means=rng.normal(size=columns),
            deviations=np.exp(rng.normal(size=columns)),
        )
        self.settings = rng.integers(0, 3, size=(n, settings)).astype(float)
        encoding = Encoding(
            identity=self.identity,
            machine=self.identity,
            features=self.features,
            settings=self.settings,
            counts=self.counts,
            totals=self.totals,
            kind=self.identity * 0,
        )
        self.inputs = gp.Inputs.of(encoding, self.trend)
        rows = rng.choice(n, size=min(12, n - 1), replace=False).astype(np.intp)
        self.data = gp.Data(
            rows=rows, values=rng.normal(size=len(rows)) + 2.0, errors=np.abs(rng.normal(0.05, 0.02, size=len(rows)))
        )
        size = 2 + counts + features + 1 + totals + 1
        self.quirk_at = size - 1
        self.theta = rng.normal(-0.3, 0.4, size=size + (2 + settings if settings else 0))
        self.theta[self.quirk_at] = np.log(0.07)

    def reference(self) -> tuple[GaussianProcessRegressor, Floats, Floats]:
        """(fitted regressor, all rows, prior mean of all rows)."""
        scales = np.exp(self.theta)
        c, d, t = self.counts.shape[1], self.features.shape[1], self.totals.shape[1]
        scaled = self.trend.columns * self.trend.deviations
        names = np.stack([self.identity, np.arange(len(self.identity))], axis=1).astype(float)
        x = np.hstack([names, self.counts, self.features, self.totals, scaled, self.settings])
        starts = np.cumsum([0, 1, 1, c, d, t, scaled.shape[1], self.settings.shape[1]])
        blocks = [tuple(range(a, b)) for a, b in pairwise(starts)]
        amplitude = ConstantKernel(scales[1] ** 2) * OnColumns(Same(), blocks[0])
        shared = ConstantKernel(scales[0] ** 2)
        if d:
            shared = shared * OnColumns(Matern(scales[2 + c : 2 + c + d], nu=2.5), blocks[3])
        kernel = (shared + amplitude) * OnColumns(Matern(scales[2 : 2 + c], nu=2.5), blocks[2])
        if t:
            kernel = kernel + ConstantKernel(scales[2 + c + d] ** 2) * OnColumns(
                Matern(scales[self.quirk_at - t : self.quirk_at], nu=2.5), blocks[4]
            )
        if scaled.shape[1]:
            kernel = kernel + OnColumns(Linear(), blocks[5])
        kernel = kernel + ConstantKernel(scales[self.quirk_at] ** 2) * OnColumns(Same(), blocks[1])
        if self.settings.shape[1]:
            shared_by_all, own, *lengths = scales[self.quirk_at + 1 :]
            curve = OnColumns(Same(), blocks[0]) * OnColumns(Matern(scales[2 : 2 + c], nu=2.5), blocks[2])
            weight = ConstantKernel(shared_by_all**2) + ConstantKernel(own**2) * curve
            kernel = kernel + weight * OnColumns(Matern(lengths, nu=2.5), blocks[6])
        mean = self.trend.columns @ self.trend.means
        found = GaussianProcessRegressor(kernel, alpha=self.data.errors**2 + JITTER, optimizer=None)
        found.fit(x[self.data.rows], self.data.values - mean[self.data.rows])
        return found, x, mean


SHAPES = {
    "one type, no features": {"types": 1, "features": 0, "counts": 1, "totals": 0, "columns": 0},
    "two counts": {"types": 1, "features": 0, "counts": 2, "totals": 0, "columns": 0},
    "types with features": {"types": 4, "features": 2, "counts": 1, "totals": 0, "columns": 0},
    "and totals": {"types": 3, "features": 1, "counts": 1, "totals": 1, "columns": 0},
    "and a trend": {"types": 3, "features": 2, "counts": 1, "totals": 1, "columns": 4},
    "and settings": {"types": 3, "features": 2, "counts": 1, "totals": 1, "columns": 4, "settings": 2},
}


@pytest.fixture(params=SHAPES)
def world(request: pytest.FixtureRequest) -> World:
    return World(**SHAPES[request.param], seed=list(SHAPES).index(request.param))


def test_mean_variance_and_likelihood_equal_scikit_learns(world: World) -> None:
    posterior = gp.at(world.inputs, world.data, world.theta)
    mean, variance = posterior.predict()
    regressor, x, prior_mean = world.reference()
    expected, deviation = regressor.predict(x, return_std=True)
    np.testing.assert_allclose(mean, expected + prior_mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variance, deviation**2, rtol=1e-6, atol=1e-6)
    prior = gp._Objective(world.inputs, world.data, gp.HyperPrior())
    penalty = 0.5 * (((world.theta - prior.centre) / prior.spread) ** 2).sum()
    expected_log = regressor.log_marginal_likelihood_value_
    assert posterior.log_posterior + penalty == pytest.approx(expected_log, rel=1e-6, abs=1e-6)


def test_covariance_equals_scikit_learns(world: World) -> None:
    rows = np.arange(0, len(world.identity), 3)
    regressor, x, _ = world.reference()
    expected = regressor.predict(x[rows], return_cov=True)[1]
    posterior = gp.at(world.inputs, world.data, world.theta)
    np.testing.assert_allclose(posterior.covariance(rows), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.diag(posterior.covariance(rows)), posterior.predict()[1][rows], atol=1e-9)


def test_gradient_equals_finite_differences(world: World) -> None:
    objective = gp._Objective(world.inputs, world.data, gp.HyperPrior())
    value, gradient = objective(world.theta)
    step = 1e-5
    for i in range(len(world.theta)):
        up, down = world.theta.copy(), world.theta.copy()
        up[i] += step
        down[i] -= step
        slope = (objective(up)[0] - objective(down)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-6), i
    posterior = objective.posterior(world.theta)
    constant = 0.5 * len(world.data.values) * np.log(2 * np.pi)
    assert -value - constant == pytest.approx(posterior.log_posterior, rel=1e-9)


def test_fitting_finds_a_higher_posterior_and_is_repeatable(world: World) -> None:
    start = gp._Objective(world.inputs, world.data, gp.HyperPrior())
    fitted = gp.fit(world.inputs, world.data)
    assert fitted.log_posterior >= gp.at(world.inputs, world.data, start.centre).log_posterior
    np.testing.assert_array_equal(gp.fit(world.inputs, world.data).theta, fitted.theta)
    gradient = start(fitted.theta)[1]
    inside = [low < t < high for t, (low, high) in zip(fitted.theta, start.bounds, strict=True)]
    assert np.abs(gradient[np.array(inside)]).max() < 0.2
    again = gp.fit(world.inputs, world.data, start=fitted.theta)
    assert again.log_posterior >= fitted.log_posterior - 1e-6


def test_an_indefinite_covariance_is_an_error(world: World) -> None:
    objective = gp._Objective(world.inputs, world.data, gp.HyperPrior())
    objective.fixed = -1e6 * np.eye(len(world.data.rows))
    value, gradient = objective(world.theta)
    assert value == 1e25
    assert not gradient.any()
    with pytest.raises(np.linalg.LinAlgError):
        objective.posterior(world.theta)


def test_observations_reduce_the_variance_and_pull_the_mean() -> None:
    problem = make_problem()
    assert speed_model(problem, History()) is None
    assert speed_model(problem, History((failed(problem, problem.space.configs[0]),))) is None
    history = History()
    doubt = np.inf
    for row in (0, 7, 8, 15, 16):
        history = history.with_trials(true_trial(problem, problem.space.configs[row]))
        model = speed_model(problem, history)
        assert model is not None
        assert model.variance.sum() < doubt
        doubt = float(model.variance.sum())
        at_trial = np.log(history.measured[-1].samples_per_second)
        assert model.log_speed[row] == pytest.approx(at_trial, abs=0.1)
        assert model.variance[row] < 0.01
    assert model is not None
    assert model.startup_seconds == 60
    expected = np.log(problem.work_samples / np.exp(model.log_speed) + 60)
    np.testing.assert_allclose(model.log_seconds, expected)


def test_the_model_is_the_same_whether_or_not_earlier_fits_are_cached() -> None:
    problem = make_problem()
    history = History()
    step_by_step = None
    for row in (0, 3, 9, 17):
        history = history.with_trials(true_trial(problem, problem.space.configs[row]))
        step_by_step = speed_model(problem, history)
    at_once = speed_model(make_problem(), history)
    assert step_by_step is not None
    assert at_once is not None
    np.testing.assert_array_equal(step_by_step.log_speed, at_once.log_speed)
    np.testing.assert_array_equal(step_by_step.variance, at_once.variance)


def test_spot_stretches_the_expected_run() -> None:
    plain, stretched = make_problem(), make_problem(stretch=(1.5,) * 24)
    history = History((true_trial(plain, plain.space.configs[0]),))
    one, other = speed_model(plain, history), speed_model(stretched, history)
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(np.exp(other.log_seconds) - 60, 1.5 * (np.exp(one.log_seconds) - 60), rtol=1e-9)


def test_the_trend_has_a_prior_for_every_column() -> None:
    found = trend(make_problem())
    assert found.columns.shape == (24, len(found.means)) == (24, len(found.deviations))


def test_a_pending_trial_is_expected_to_measure_its_mean() -> None:
    problem = make_problem()
    model = speed_model(problem, History((true_trial(problem, problem.space.configs[0]),)))
    assert model is not None
    after = as_expected(model, 12)
    np.testing.assert_array_equal(after.log_speed, model.log_speed)
    assert after.variance[12] < 0.1 * model.variance[12]
    assert (after.variance <= model.variance + 1e-9).all()
