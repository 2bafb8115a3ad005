"""SGD noise reported by real processes, compared with brute force over all workers' gradients and a known truth."""

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_platform_examples import EXAMPLES, engine_python, free_ports
from tests.torch_workers import TorchWorkers

from mlcd.clouds.reading import Reading, progress_source, wall_clock
from mlcd.platforms.placement import Placement
from mlcd.platforms.registry import platform
from mlcd.profiler.noise import noise_scale
from mlcd.spec.real import ProgressRule

pytestmark = pytest.mark.slow

BRUTE_FORCE = """
import json, sys, torch, mlcd, mlcd.torch
import torch.distributed as dist
rank = mlcd.torch.init()
bad = int(sys.argv[1])
sizes = [40, 150, 150, 150, 150, 3]  # five buckets
layers = [torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.Tanh()) for a, b in zip(sizes, sizes[1:])]
model = mlcd.torch.parallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.05)
workers = dist.get_world_size()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors]).double()
for step in mlcd.steps(range(8), batch_size=6 * workers):
    torch.manual_seed(100 * step + rank)
    data, truth = torch.randn(6, 40), torch.randn(6, 3)
    if step == bad and rank == workers - 1:
        data = data * float("inf")
    def loss(network):
        return (network(data) - truth).square().mean()
    # This worker's own gradient, by a backward pass that DistributedDataParallel knows nothing of.
    mine = flat(torch.autograd.grad(loss(model.module), list(model.module.parameters())))
    all_of_them = [torch.empty_like(mine) for _ in range(workers)]
    dist.all_gather(all_of_them, mine)
    optimizer.zero_grad()
    loss(model).backward()
    mean = sum(all_of_them) / workers
    if step != bad:
        got = flat(parameter.grad for parameter in model.parameters())
        assert torch.allclose(got, mean, rtol=1e-4, atol=1e-7), "the exchange itself is untouched"
        optimizer.step()
    if rank == 0:
        local = sum(one.square().sum().item() for one in all_of_them) / workers
        print("TRUTH", json.dumps([(step + 1) * 6 * workers, local, mean.square().sum().item()]))
dist.barrier()
"""

KNOWN_NOISE = """
import sys, torch, mlcd, mlcd.torch
rank = mlcd.torch.init()
workers, d, steps = torch.distributed.get_world_size(), int(sys.argv[1]), int(sys.argv[2])
share = 48 // workers
model = torch.nn.Linear(d, 1, bias=False)
torch.nn.init.constant_(model.weight, d ** -0.5)  # one away from the truth, which is 0: and it stays there
model = mlcd.torch.parallel(model)
torch.manual_seed(rank)
for _ in mlcd.steps(range(steps), batch_size=48):
    data = torch.randn(share, d)
    model.zero_grad()
    ((model(data) - torch.randn(share, 1)).square() / 2).mean().backward()
torch.distributed.barrier()
"""

TENSORFLOW = """
import json, numpy, tensorflow as tf, mlcd, mlcd.keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
workers, rank = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id or 0
with strategy.scope():
    weights = [tf.Variable(tf.ones([5, 2])), tf.Variable(tf.zeros([2]))]
@tf.function
def train(data):
    def on_one_worker(data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(data @ weights[0] + weights[1] - 1.0)) / (8 * workers)
        mine = tape.gradient(loss, weights)
        reduced = mlcd.keras.all_reduce(mine)
        for variable, gradient in zip(weights, reduced):
            variable.assign_sub(0.02 * gradient)
        return [tf.concat([tf.reshape(one, [-1]) for one in gradients], 0) for gradients in (mine, reduced)]
    return strategy.run(on_one_worker, args=(data,))
random = numpy.random.default_rng(rank)
for step in mlcd.steps(range(12), batch_size=8 * workers):
    mine, reduced = (strategy.experimental_local_results(one)[0].numpy() for one in
                     train(tf.constant(random.normal(size=(8, 5)).astype("float32"))))
    own = mine * workers
    print("TRUTH", json.dumps([(step + 1) * 8 * workers, float(own @ own), float(reduced @ reduced), own.tolist()]))
"""

PARAMETER_SERVER = """
import json, numpy, tensorflow as tf, mlcd, mlcd.keras
cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster.task_type in ("worker", "ps"):
    tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    ).join()
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
workers = cluster.cluster_spec().num_tasks("worker")
with strategy.scope():
    weights = [tf.Variable(tf.ones([5, 2])), tf.Variable(tf.zeros([2]))]
@tf.function
def gradients_of(data):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(data @ weights[0] + weights[1] - 1.0)) / (8 * workers)
    return tape.gradient(loss, weights)
random = numpy.random.default_rng(0)
for step in mlcd.steps(range(12), batch_size=8 * workers):
    data = [tf.constant(random.normal(size=(8, 5)).astype("float32")) for _ in range(workers)]
    parts = [coordinator.schedule(gradients_of, args=(share,)) for share in data]
    coordinator.join()
    parts = [part.fetch() for part in parts]
    flat = [workers * numpy.concatenate([numpy.ravel(one) for one in part]) for part in parts]
    whole = mlcd.keras.aggregate(parts)
    mean = sum(flat) / workers
    assert numpy.allclose(numpy.concatenate([numpy.ravel(one) for one in whole]), mean, rtol=1e-4, atol=1e-6)
    for variable, gradient in zip(weights, whole):
        variable.assign_sub(0.02 * gradient)
    local = float(sum(one @ one for one in flat) / workers)
    print("TRUTH", json.dumps([(step + 1) * 8 * workers, local, float(mean @ mean), flat[0].tolist()]), flush=True)
"""

FIT = """
import json, keras, numpy, tensorflow as tf, mlcd.keras
keras.utils.set_random_seed(1)
data = numpy.random.rand(240, 4).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
class Seen(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        flat = tf.concat([tf.reshape(one, [-1]) for one in grads], 0)
        tf.numpy_function(lambda one: print("TRUTH", json.dumps(one.tolist()), flush=True), [flat], [])
        return super().apply(grads, trainable_variables)
model.compile(Seen(0.05), "mse")
model.fit(data, data.sum(1), batch_size=10, epochs=1, verbose=0, callbacks=[mlcd.keras.Progress(batch_size=10)])
"""


def environments(folder: Path, count: int, name: str, form: str, env: Mapping[str, str]) -> list[dict[str, str]]:
    """The variables of each worker of a job."""
    port, made = free_ports(), []
    for rank in range(count):
        place = Placement(rank=rank, addresses=("127.0.0.1",) * count, port=port, topology=form)
        variables = {
            **os.environ,
            **platform(name)(place)[0].env,
            "MLCD_RANK": str(rank),
            "MLCD_NUM_NODES": str(count),
            "MLCD_TOPOLOGY": form,
            "MLCD_NOISE": "1",
            "MLCD_PROGRESS_FILE": str(folder / "progress.jsonl"),
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **env,
        }
        made.append(variables)
    return made


def run_tensorflow(folder: Path, count: int, *command: str, **env: str) -> list[str]:
    """The output of each worker; all of them must succeed."""
    started = []
    try:
        for variables in environments(folder, count, "tensorflow", "ring", env):
            pipe, words = subprocess.PIPE, [engine_python("tensorflow"), *command]
            started.append(subprocess.Popen(words, env=variables, cwd=folder, text=True, stdout=pipe, stderr=pipe))
        said = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [0] * count, said
    return [out for out, _ in said]


@pytest.fixture
def run_torch(torch_workers: TorchWorkers, tmp_path: Path) -> Callable[..., list[str]]:
    """The same for workers that run a script with PyTorch in the test's folder."""

    def run(count: int, script: str, *arguments: str, form: str = "ring", **env: str) -> list[str]:
        variables = environments(tmp_path, count, "pytorch", form, env)
        return torch_workers.run(script, variables, folder=tmp_path, arguments=arguments)

    return run


def truths(said: str) -> list[Any]:
    return [json.loads(line.removeprefix("TRUTH ")) for line in said.splitlines() if line.startswith("TRUTH ")]


def readings(folder: Path) -> list[Reading]:
    source = progress_source(ProgressRule(), folder, batch=None, base_samples=0.0, clock=wall_clock)
    return source.new_readings()


@pytest.mark.parametrize("form", ["ring", "ps"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.together("PyTorch workers")
def test_norms_equal_brute_force(run_torch: Callable[..., list[str]], tmp_path: Path, count: int, form: str) -> None:
    said = run_torch(count, BRUTE_FORCE, "-1", form=form, MLCD_NOISE_EVERY="1")
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    # All steps but the first, which is not measured, and the last, which the next step would report.
    assert list(found) == [6 * count * step for step in range(2, 8)]
    for samples, local, total in truths(said[0])[1:-1]:
        seen = found[samples]
        assert seen is not None
        assert (seen.workers, seen.batch) == (count, 6 * count)
        assert seen.local == pytest.approx(local, rel=1e-4)
        assert seen.total == pytest.approx(total, rel=1e-4)
        assert local > 1.1 * total, "the workers do disagree"


@pytest.mark.together("PyTorch workers")
def test_one_workers_infinite_gradient_is_reported_and_survived(
    run_torch: Callable[..., list[str]], tmp_path: Path
) -> None:
    run_torch(2, BRUTE_FORCE, "3", MLCD_NOISE_EVERY="1")
    seen = readings(tmp_path)
    found = [reading.noise.local is None for reading in seen if reading.noise is not None]
    assert found == [False, False, True, False, False, False]
    assert len([reading.warning for reading in seen if "not finite" in reading.warning]) == 1


@pytest.mark.parametrize(("count", "form"), [(1, "ring"), (2, "ring"), (3, "ps")])
@pytest.mark.together("PyTorch workers")
def test_the_noise_scale_is_the_true_one(
    run_torch: Callable[..., list[str]], tmp_path: Path, count: int, form: str
) -> None:
    """Linear regression: with inputs N(0, 1) in d dimensions, the answers' noise 1, and weights 1 from the truth, a
    sample's gradient has the mean square (d + 2) + d, of which 1 is the true gradient's."""
    d, steps = 10, 1200
    run_torch(count, KNOWN_NOISE, str(d), str(steps), form=form, MLCD_NOISE_EVERY="2")
    found = readings(tmp_path)
    assert sum(reading.noise is not None for reading in found) == pytest.approx(steps / 2, abs=2)
    assert noise_scale(found) == pytest.approx(2 * d + 1, rel=0.10)


@pytest.mark.together("PyTorch workers")
def test_default_interval_keeps_the_measuring_share(run_torch: Callable[..., list[str]], tmp_path: Path) -> None:
    """A tiny model, whose steps take hardly more than measuring; all agree on the steps, or they would hang."""
    run_torch(2, KNOWN_NOISE, "10", "600")
    times = [reading.samples for reading in readings(tmp_path) if reading.noise is not None]
    steps = [round(samples / 48) for samples in times if samples is not None]
    assert steps[:5] == [2, 3, 4, 5, 6], "at first, to know what it costs"
    assert 6 < len(steps) < 200
    assert max(b - a for a, b in pairwise(steps)) <= 100


def test_tensorflow_on_two_workers_equals_brute_force(tmp_path: Path) -> None:
    said = [truths(out) for out in run_tensorflow(tmp_path, 2, "-c", TENSORFLOW, MLCD_NOISE_EVERY="3")]
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    assert list(found) == [48, 96, 144]
    for (samples, one, total, own), (_, other, same, others) in zip(*said, strict=True):
        assert total == pytest.approx(same)
        mean = [(a + b) / 2 for a, b in zip(own, others, strict=True)]
        assert math.fsum(value * value for value in mean) == pytest.approx(total, rel=1e-4)
        if (seen := found.get(samples)) is not None:
            assert (seen.workers, seen.batch) == (2, 16)
            assert seen.local == pytest.approx((one + other) / 2, rel=1e-4)
            assert seen.total == pytest.approx(total, rel=1e-4)


def test_tensorflow_on_one_worker_compares_two_steps(tmp_path: Path) -> None:
    (said,) = (truths(out) for out in run_tensorflow(tmp_path, 1, "-c", TENSORFLOW, MLCD_NOISE_EVERY="4"))
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    assert list(found) == [5 * 8, 9 * 8]
    for samples, seen in found.items():
        now = int(samples or 0) // 8 - 1
        dot = math.fsum(a * b for a, b in zip(said[now - 1][3], said[now][3], strict=True))
        assert seen is not None
        assert seen.before == pytest.approx(said[now - 1][1], rel=1e-4)
        assert seen.now == pytest.approx(said[now][1], rel=1e-4)
        assert seen.dot == pytest.approx(dot, rel=1e-4, abs=1e-6)


def run_parameter_servers(folder: Path, count: int, *command: str, **env: str) -> str:
    """The output of the chief, which must succeed; servers and workers are ended then, as mlcd does."""
    port = free_ports()
    started: list[subprocess.Popen[Any]] = []
    chief: subprocess.Popen[str] | None = None
    words = [engine_python("tensorflow"), *command]
    try:
        for rank in range(count):
            place = Placement(rank=rank, addresses=("127.0.0.1",) * count, port=port, topology="ps")
            for process in platform("tensorflow")(place):
                (variables,) = environments(folder, 1, "tensorflow", "ring", env)
                variables |= {**process.env, "MLCD_ROLE": process.role, "MLCD_RANK": str(rank)}
                if process.role == "chief":
                    pipe = subprocess.PIPE
                    chief = subprocess.Popen(words, env=variables, cwd=folder, text=True, stdout=pipe, stderr=pipe)
                    started.append(chief)
                else:
                    null = subprocess.DEVNULL
                    started.append(subprocess.Popen(words, env=variables, cwd=folder, stdout=null, stderr=null))
        assert chief is not None
        out, errors = chief.communicate(timeout=240)
        assert chief.returncode == 0, errors
        return out
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_tensorflows_parameter_server_equals_brute_force(tmp_path: Path) -> None:
    said = truths(run_parameter_servers(tmp_path, 2, "-c", PARAMETER_SERVER, MLCD_NOISE_EVERY="3"))
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    assert list(found) == [48, 96, 144]
    for samples, local, total, _ in said:
        if (seen := found.get(samples)) is not None:
            assert (seen.workers, seen.batch) == (2, 16)
            assert seen.local == pytest.approx(local, rel=1e-4)
            assert seen.total == pytest.approx(total, rel=1e-4)
            assert local > 1.1 * total, "the workers do disagree"


@pytest.mark.extra
def test_tensorflows_parameter_server_with_one_worker_compares_two_steps(tmp_path: Path) -> None:
    said = truths(run_parameter_servers(tmp_path, 1, "-c", PARAMETER_SERVER, MLCD_NOISE_EVERY="4"))
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    assert list(found) == [5 * 8, 9 * 8]
    for samples, seen in found.items():
        now = int(samples or 0) // 8 - 1
        assert seen is not None
        assert seen.now == pytest.approx(said[now][1], rel=1e-4)
        dot = math.fsum(a * b for a, b in zip(said[now - 1][3], said[now][3], strict=True))
        assert seen.dot == pytest.approx(dot, rel=1e-4, abs=1e-6)


@pytest.mark.extra
def test_tensorflows_example_with_parameter_servers_reports_its_noise(tmp_path: Path) -> None:
    script = str(EXAMPLES / "digits-cnn" / "tensorflow_ps.py")
    run_parameter_servers(tmp_path, 2, script, "--epochs", "12", MLCD_NOISE_EVERY="1")
    found = readings(tmp_path)
    assert sum(reading.noise is not None for reading in found) > 30
    phi = noise_scale(found)
    assert phi is not None
    assert 0 < phi < math.inf


def test_keras_fit_compares_two_steps(tmp_path: Path) -> None:
    (said,) = run_tensorflow(tmp_path, 1, "-c", FIT, MLCD_NOISE_EVERY="5")
    gradients = truths(said)
    found = {reading.samples: reading.noise for reading in readings(tmp_path) if reading.noise is not None}
    assert list(found) == [50, 100, 150, 200]
    for samples, seen in found.items():
        before, now = gradients[int(samples or 0) // 10 - 2], gradients[int(samples or 0) // 10 - 1]
        assert seen is not None
        assert seen.before == pytest.approx(math.fsum(a * a for a in before), rel=1e-4)
        assert seen.now == pytest.approx(math.fsum(a * a for a in now), rel=1e-4)
        assert seen.dot == pytest.approx(math.fsum(a * b for a, b in zip(before, now, strict=True)), rel=1e-4, abs=1e-6)


@pytest.mark.extra  # test_platform_examples.py trains it too, and counts what it reports
def test_tensorflows_example_reports_its_noise(tmp_path: Path) -> None:
    script = str(EXAMPLES / "digits-cnn" / "tensorflow_ring.py")
    run_tensorflow(tmp_path, 2, script, "--epochs", "12", MLCD_NOISE_EVERY="1")
    found = readings(tmp_path)
    assert sum(reading.noise is not None for reading in found) > 30
    phi = noise_scale(found)
    assert phi is not None
    assert 0 < phi < math.inf
