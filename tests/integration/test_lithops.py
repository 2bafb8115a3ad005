"""Real functions on Lithops' localhost back end: training, failures, kills, and what cannot be used."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lithops", reason="Lithops is missing; pip install 'mlcd[lithops]'")

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.lithops.call import Faults, Sync
from mlcd.clouds.functions.lithops.cloud import FunctionWorkload, LithopsCloud
from mlcd.clouds.functions.lithops.invoker import Invoker
from mlcd.clouds.functions.provider import EpochFailed, EpochOrder
from mlcd.errors import BadInput, ProviderError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd
from mlcd.workloads import built_in
from mlcd.workloads.data import shuffled
from mlcd.workloads.made import clicks

COUNTER = b"""
import numpy as np

class Counter:
    def start(self, seed): return np.zeros(3, dtype=np.float32)
    def gradient(self, parameters, x, y): return np.full(3, -1.0, dtype=np.float32)
    def loss(self, parameters, x, y): return float(-parameters[0])

def make_model(): return Counter()
"""


def cloud(folder: Path, *, faults: Faults | None = None, sync: Sync = Sync.HSP, **changes: Any) -> LithopsCloud:
    samples = shuffled(*clicks(rows=2000))
    problem = FunctionProblem(
        name="t",
        functions=tuple(range(1, 13)),
        memory_mb=(1024, 1769),
        samples=samples.train_rows,
        batch=128,
        model_bytes=4,
        target_loss=0.1,
        max_epochs=9,
        goal=Goal(minimize=Objective.TIME, budget=Usd.of(3)),
        prices=function_prices(),
        puts_per_function=500,
        gets_per_function=500,
        repeat_share=0.5,
    )
    given: dict[str, Any] = {"model": "logistic", "samples": samples, "rate": 1.0, "sync": sync, "pushes": 4}
    workload = FunctionWorkload(**{**given, **changes})
    return LithopsCloud(backend="localhost", problem=problem, workload=workload, folder=folder, faults=faults)


def order(number: int, functions: int, **changes: Any) -> EpochOrder:
    given: dict[str, Any] = {"seconds": 120.0, "usd": Usd.of(1), "run_id": "run"}
    return EpochOrder(number=number, fleet=Fleet(functions, 1769), **{**given, **changes})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path / "home"


def test_functions_learn_while_their_number_changes_and_every_call_is_billed(home: Path) -> None:
    with_faults = cloud(home, faults=Faults(fail_share=0.2, seed=8))
    try:
        epochs = [with_faults.run_epoch(order(number, count)) for number, count in enumerate((8, 3), 1)]
        calls = with_faults.calls
        assert with_faults.finished("run", 2) == epochs[1]
        assert with_faults.finished("run", 3) is None
        assert len(with_faults.parameters("run", 1)) == 4 * 16_385
    finally:
        with_faults.close()
    assert epochs[1].loss < epochs[0].loss < 0.6
    assert epochs[0].calls >= 8
    assert len(calls) == epochs[1].calls
    assert {call.shard for call in calls} == {0, 1, 2}
    prices = function_prices()
    for call in calls:
        charged = prices.charge(memory_mb=1769, call_seconds=[call.seconds], puts=call.puts, gets=call.gets)
        assert Usd.of(call.usd) == charged
        assert call.peak_mb is not None
        assert call.cold
    own = epochs[1].usd - Usd.of(sum(call.usd for call in calls))
    assert Usd(0) < own <= Usd.of("0.0002")  # what mlcd itself asked of the storage
    assert epochs[1].memory_share is not None
    assert 0 < epochs[1].memory_share < 1


def test_calls_that_die_are_repeated_and_no_step_counts_twice(home: Path) -> None:
    counting = cloud(
        home, model="my_counter:make_model", module=COUNTER, rate=6.0, faults=Faults(fail_share=0.4, seed=4)
    )
    try:
        epoch = counting.run_epoch(order(1, 6))
        counted = np.frombuffer(counting.parameters("run", 1), dtype=np.float32)
    finally:
        counting.close()
    assert epoch.failed >= 2  # shards 1 and 3, by this seed
    rows = counting.workload.samples.train_rows
    steps = sum(-(-(rows * (n + 1) // 6 - rows * n // 6) // 22) for n in range(6))  # 22 = the sixth part of a batch
    assert counted.tolist() == [steps] * 3


def test_an_error_in_the_users_model_ends_the_epoch_with_its_message(home: Path) -> None:
    broken = cloud(home, model="mine:make", module=b"def make():\n    return undefined_name\n")
    try:
        with pytest.raises(EpochFailed, match="NameError: name 'undefined_name' is not defined") as caught:
            broken.run_epoch(order(1, 2))
    finally:
        broken.close()
    assert caught.value.hopeless
    assert caught.value.usd.micros > 0


def test_a_loss_of_nan_ends_the_training_and_is_paid(home: Path) -> None:
    lost = COUNTER.replace(b"return float(-parameters[0])", b"return float('nan')")
    assert lost != COUNTER
    diverged = cloud(home, model="mine:make_model", module=lost)
    try:
        with pytest.raises(
            EpochFailed, match=r"the loss is nan after epoch 1; try a smaller workload\.rate"
        ) as failure:
            diverged.run_epoch(order(1, 2))
    finally:
        diverged.close()
    assert failure.value.hopeless
    assert failure.value.usd > Usd(0)
    assert len(diverged.calls) == 2


def test_functions_that_are_killed_fail_the_epoch_with_what_they_cost(home: Path) -> None:
    killed = COUNTER.replace(
        b"def gradient(self, parameters, x, y):", b"def gradient(self, parameters, x, y): os._exit(9);"
    )
    dying = cloud(home, model="dying:make_model", module=b"import os" + killed)
    try:
        with pytest.raises(EpochFailed, match="of 2 calls failed, more than may be repeated") as caught:
            dying.run_epoch(order(1, 2))
    finally:
        dying.close()
    assert caught.value.usd.micros > 0
    assert {call.ending for call in dying.calls} <= {"failed", "overtaken"}


def test_an_epoch_that_takes_too_long_is_ended_and_paid(home: Path) -> None:
    slow = cloud(home, faults=Faults(slow_shards=(0, 1), pause_seconds=2.0))
    try:
        with pytest.raises(EpochFailed, match="was ended after 4 s, all that was authorised") as caught:
            slow.run_epoch(order(1, 2, seconds=4.0))
    finally:
        slow.close()
    assert not caught.value.hopeless
    assert Usd(0) < caught.value.usd <= Usd.of(1)


def test_a_workload_that_cannot_be_pickled_is_refused(home: Path) -> None:
    invoker = Invoker("localhost", most_calls=1)
    try:
        with pytest.raises(BadInput, match="cannot be sent to functions"):
            invoker.call(len, [lambda: 0], memory_mb=128, seconds=10)
    finally:
        invoker.close()


def test_wrong_credentials_are_the_providers_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody answers there
    settings = {
        "aws": {"region": "us-east-1", "access_key_id": "no", "secret_access_key": "no"},
        "aws_lambda": {"execution_role": "arn:aws:iam::1:role/none"},
    }
    with pytest.raises(ProviderError, match=r"lithops/aws_lambda cannot be used: .*; check that ~/.aws/credentials"):
        Invoker("aws_lambda", most_calls=1, settings=settings)
    with pytest.raises(ProviderError, match="execution_role"):
        Invoker("aws_lambda", most_calls=1, settings={"aws": {"region": "us-east-1"}, "aws_lambda": {"x": 1}})


JOB = """\
name: ctr
workload: {model: logistic, batch: 128, target_loss: 0.45, max_epochs: 12}
functions: [2, 3, 4]
memory: [1769]
goal: {minimize: time, budget: 1 USD}
search: {pushes: 4}
"""


def mlcd(*args: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ},
    )


RUN = "from mlcd.cli.main import main; main()"


def test_the_command_trains_and_the_other_commands_show_the_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    done = mlcd("serverless", str(job), "-o", "json", "--picture", str(tmp_path / "a.svg"))
    assert done.returncode == 0, done.stderr
    assert "lithops" not in done.stderr.lower()
    assert [file for file in (tmp_path / "user").rglob("*") if file.is_file()] == []
    answer = json.loads(done.stdout)
    trained = np.load(answer["model_file"])
    samples = shuffled(*clicks())
    assert built_in("logistic").loss(trained, samples.x[-4096:], samples.y[-4096:]) == pytest.approx(
        answer["loss"], abs=0.02
    )
    assert answer["status"] == "done"
    assert answer["loss"] <= 0.45
    assert answer["receipt"]["total_usd"] < 1
    assert answer["epochs"][0]["functions"] in (2, 3, 4)
    assert "to the target" in done.stderr
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    run = answer["run_id"]
    assert json.loads(mlcd("show", run, "-o", "json").stdout) == answer
    again = mlcd("resume", run)
    assert again.returncode == 0
    assert "Trained to the target." in again.stdout
    assert answer["model_file"] in again.stdout
    page = tmp_path / "page.html"
    assert mlcd("report", run, "--out", str(page)).returncode == 0
    assert "Functions and memory of each epoch" in page.read_text()
    assert answer["model_file"] in page.read_text()
    assert json.loads(mlcd("runs", "-o", "json").stdout)["runs"][0]["trials"] == len(answer["epochs"])


@pytest.mark.extra
def test_a_killed_run_continues_and_pays_nothing_twice(home: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("0.45", "0.40"))
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "serverless", str(job)], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().startswith("2 "):
            break
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    run = json.loads(mlcd("runs", "-o", "json").stdout)["runs"][0]["run_id"]
    before = json.loads(mlcd("show", run, "-o", "json").stdout)
    done = mlcd("resume", run, "-o", "json")
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    kept = len(before["epochs"])
    assert after["epochs"][:kept] == before["epochs"]
    numbers = [epoch["epoch"] for epoch in after["epochs"] if epoch["loss"] is not None]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.extra
@pytest.mark.parametrize("sync", [Sync.BSP, Sync.ASP])
def test_the_other_modes_learn_too(home: Path, sync: Sync) -> None:
    other = cloud(home, sync=sync)
    try:
        losses = [other.run_epoch(order(number, 4)).loss for number in (1, 2, 3)]
    finally:
        other.close()
    assert losses[2] < losses[0] < 0.6
