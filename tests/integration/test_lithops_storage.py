"""The storage path of AWS: functions of this machine that keep everything on S3, as moto serves it."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lithops", reason="Lithops is missing; pip install 'mlcd[lithops]'")
pytest.importorskip("boto3", reason="boto3 is missing; pip install 'mlcd[lithops]'")

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.lithops.cloud import FunctionWorkload, LithopsCloud
from mlcd.clouds.functions.lithops.invoker import Invoker
from mlcd.clouds.functions.lithops.object_store import ObjectStore
from mlcd.clouds.functions.provider import EpochOrder
from mlcd.errors import ProviderError
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd
from mlcd.workloads.data import shuffled
from mlcd.workloads.made import clicks

MOTO = Path(__file__).resolve().parents[2] / ".venvs" / "skypilot" / "bin" / "moto_server"
BUCKET = "mlcd-functions"

pytestmark = [
    pytest.mark.together("an S3 server"),
    pytest.mark.skipif(not MOTO.exists(), reason="no moto server; run: scripts/setup-skypilot"),
]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    port = _free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    moto = subprocess.Popen(
        [str(MOTO), "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(address, timeout=2).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        moto.terminate()
        moto.wait()


@pytest.fixture
def settings(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    return {
        "lithops": {"storage": "aws_s3"},
        "aws": {"region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"},
        "aws_s3": {"storage_bucket": BUCKET},
    }


def test_objects_ranges_and_listings_on_s3(settings: dict[str, Any]) -> None:
    invoker = Invoker("localhost", most_calls=1, settings=settings)
    try:
        store = ObjectStore(invoker.storage)
        store.put("mlcd/a/one", b"0123456789")
        store.put("mlcd/a/two", b"x")
        assert store.get("mlcd/a/one", (2, 4)) == b"234"
        assert store.get("mlcd/a/none") is None
        assert store.keys("mlcd/a/") == ["mlcd/a/one", "mlcd/a/two"]
        store.delete(["mlcd/a/one", "mlcd/a/two"])
        assert store.keys("mlcd/a/") == []
        assert (store.puts, store.gets) == (4, 2)
    finally:
        invoker.close()


def test_functions_train_over_s3(settings: dict[str, Any]) -> None:
    samples = shuffled(*clicks(rows=1500))
    problem = FunctionProblem(
        name="t",
        functions=(1, 2, 3, 4),
        memory_mb=(1769,),
        samples=samples.train_rows,
        batch=128,
        model_bytes=4,
        target_loss=0.1,
        max_epochs=9,
        goal=Goal(minimize=Objective.TIME, budget=Usd.of(3)),
        prices=function_prices(),
        puts_per_function=100,
        gets_per_function=100,
        repeat_share=0.5,
    )
    workload = FunctionWorkload(model="logistic", samples=samples, rate=1.0, pushes=3)
    cloud = LithopsCloud(backend="localhost", problem=problem, workload=workload, settings=settings)
    try:
        losses = [
            cloud.run_epoch(
                EpochOrder(number=number, fleet=Fleet(count, 1769), seconds=120, usd=Usd.of(1), run_id="s3-run")
            ).loss
            for number, count in ((1, 3), (2, 2))
        ]
        kept = ObjectStore(cloud._invoker.storage).keys("mlcd/s3-run/")
        assert sum("/part/" in key for key in kept) == 0
        assert sum("/end/" in key for key in kept) == 2
    finally:
        cloud.close()
    assert max(losses) < 0.6  # it begins at 0.69


def test_a_bucket_that_is_not_ours_is_the_providers_error(s3: str, settings: dict[str, Any]) -> None:
    settings["aws_s3"]["storage_bucket"] = "Not_A_Bucket_Name!"
    with pytest.raises(ProviderError, match="lithops/localhost cannot be used"):
        Invoker("localhost", most_calls=1, settings=settings)
