"""Models that functions train, and their synthetic data."""

import itertools

import numpy as np
import pytest

from mlcd.workloads import BUILT_IN, Layout, Model, NotAModel, built_in, checked
from mlcd.workloads.data import Samples, shard, shuffled
from mlcd.workloads.made import MADE, clicks

NAMES = tuple(BUILT_IN)


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_is_the_slope_of_the_loss(name: str) -> None:
    model = built_in(name)
    x, y = MADE[name](rows=64)
    away = np.random.default_rng(1).normal(0, 0.05, model.start(0).size).astype(np.float32)
    at = model.start(0) + away
    gradient = model.gradient(at, x, y)
    for index in np.argsort(-abs(gradient))[[0, 2, 7, 30]]:
        step = np.zeros_like(at)
        step[index] = 1e-2
        slope = (model.loss(at + step, x, y) - model.loss(at - step, x, y)) / 2e-2
        assert gradient[index] == pytest.approx(slope, rel=0.03, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_how_many_parameters_it_has_and_starts_the_same_for_a_seed(name: str) -> None:
    model = built_in(name)
    assert isinstance(model, Model)
    assert model.start(3).dtype == np.float32
    assert model.start(3).shape == (BUILT_IN[name].parameters,)
    assert np.array_equal(model.start(3), model.start(3))


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_does_not_change_the_parameters(name: str) -> None:
    model = built_in(name)
    x, y = MADE[name](rows=8)
    parameters = model.start(0)
    before = parameters.copy()
    model.gradient(parameters, x, y)
    assert np.array_equal(parameters, before)


@pytest.mark.parametrize("name", NAMES)
def test_synthetic_data_is_reproducible_and_separable(name: str) -> None:
    x, y = MADE[name](rows=300)
    again = MADE[name](rows=300)
    assert np.array_equal(x, again[0])
    assert np.array_equal(y, again[1])
    assert not np.array_equal(x, MADE[name](rows=300, seed=1)[0])
    assert len(np.unique(y)) == (10 if name == "lenet" else 2)


def test_training_by_plain_steps_learns_clicks() -> None:
    model, samples = built_in("logistic"), shuffled(*clicks())
    parameters, rows = model.start(0), samples.train_rows
    held = samples.x[rows:], samples.y[rows:]
    first = model.loss(parameters, *held)
    for _ in range(3):
        for at in range(0, rows, 256):
            part = slice(at, at + 256)
            parameters = parameters - 2.0 * model.gradient(parameters, samples.x[:rows][part], samples.y[:rows][part])
    assert model.loss(parameters, *held) < 0.6 * first


@pytest.mark.parametrize(("rows", "shards"), [(10, 3), (7, 7), (1000, 64), (5, 1)])
def test_shards_are_even_and_complete(rows: int, shards: int) -> None:
    parts = [shard(rows, shards, index) for index in range(shards)]
    assert parts[0][0] == 0
    assert parts[-1][1] == rows
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    sizes = {last - first for first, last in parts}
    assert max(sizes) - min(sizes) <= 1


def test_a_range_of_rows_is_a_range_of_bytes() -> None:
    x = np.arange(60, dtype=np.uint16).reshape(10, 3, 2)
    layout = Layout.of(x)
    first, last = layout.span(2, 5)
    assert np.array_equal(layout.rows(x.tobytes()[first : last + 1]), x[2:5])


def test_some_rows_are_held_out() -> None:
    samples = shuffled(np.arange(100).reshape(-1, 1), np.arange(100))
    assert (samples.held, samples.train_rows) == (20, 80)
    assert np.array_equal(samples.x[:, 0], samples.y)
    with pytest.raises(ValueError, match="x has 3 rows and y has 2"):
        Samples(x=np.zeros(3), y=np.zeros(2), held=1)


def test_an_invalid_model_is_refused_with_its_missing_methods() -> None:
    class Half:
        def start(self, seed: int) -> None: ...

    with pytest.raises(NotAModel, match="my:make made a Half, which has no gradient and no loss"):
        checked(Half(), "my:make")


def test_a_pytorch_module_is_a_model_too() -> None:
    torch = pytest.importorskip("torch")
    from mlcd.workloads.torch_model import TorchModel

    model = checked(TorchModel(lambda: torch.nn.Linear(400, 10), torch.nn.functional.cross_entropy), "mine:make")
    x, y = MADE["lenet"](rows=200)
    x = (x / 255).astype(np.float32)
    parameters = model.start(0)
    assert parameters.shape == (4010,)
    assert np.array_equal(parameters, model.start(0))
    gradient = model.gradient(parameters, x, y)
    index = int(np.argmax(abs(gradient)))
    step = np.zeros_like(parameters)
    step[index] = 1e-2
    slope = (model.loss(parameters + step, x, y) - model.loss(parameters - step, x, y)) / 2e-2
    assert gradient[index] == pytest.approx(slope, rel=0.02)
