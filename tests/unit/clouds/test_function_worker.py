"""The function that trains a shard, run in this process with a fake storage: every step counts exactly once."""

import math
import struct
import threading
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mlcd.clouds.functions.lithops import worker
from mlcd.clouds.functions.lithops.call import CallOrder, CallReport, Faults, ShardSource, Sync
from mlcd.clouds.functions.lithops.object_store import EpochListing, ObjectStore, OutOfRequests
from mlcd.clouds.functions.lithops.objects import EpochTry, ShardUpdate, Torn, frame, unframe
from mlcd.clouds.functions.lithops.replica import Replica, closed
from mlcd.clouds.functions.lithops.worker import part_rows, shard_steps, train_shard
from mlcd.workloads.data import Layout
from mlcd.workloads.data import shard as rows_of_shard

ROWS, HELD, BATCH = 64, 8, 16

COUNTER = b'''
import numpy as np

class Counter:
    """Each step adds one to the only parameter: with a rate of n functions, the parameters count the steps."""
    def start(self, seed):
        return np.zeros(1, dtype=np.float32)
    def gradient(self, parameters, x, y):
        return np.full(1, -1.0, dtype=np.float32)
    def loss(self, parameters, x, y):
        return float(parameters[0])

def make_model():
    return Counter()
'''


class NoSuchKey(Exception):
    pass


class FakeStorage:
    """Lithops' storage as a dictionary; `torn` keys are shown half written the first time that they are read."""

    bucket = "ours"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.torn: set[str] = set()
        self.full = False
        self._lock = threading.Lock()

    def put_object(self, bucket: str, key: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        with self._lock:
            self.objects[key] = data

    def get_object(self, bucket: str, key: str, extra_get_args: dict[str, str] | None = None) -> bytes:
        from lithops.storage.utils import StorageNoSuchKeyError

        with self._lock:
            if key not in self.objects:
                raise StorageNoSuchKeyError(bucket, key)
            data = self.objects[key]
            if key in self.torn:
                self.torn.discard(key)
                return data[: len(data) // 2]
        if extra_get_args and "Range" in extra_get_args:
            first, last = map(int, extra_get_args["Range"].removeprefix("bytes=").split("-"))
            return data[first : last + 1]
        return data

    def list_keys(self, bucket: str, prefix: str) -> list[str]:
        with self._lock:
            return [key for key in self.objects if key.startswith(prefix)]

    def delete_objects(self, bucket: str, keys: list[str]) -> None:
        for key in keys:
            del self.objects[key]


@pytest.fixture
def storage() -> FakeStorage:
    made = FakeStorage()
    x, y = np.zeros((ROWS + HELD, 2), dtype=np.uint8), np.zeros(ROWS + HELD, dtype=np.uint8)
    made.objects = {"x": x.tobytes(), "y": y.tobytes(), "model.py": COUNTER}
    return made


def order(shards: int, *, shard: int = 0, sync: Sync = Sync.HSP, **changes: Any) -> CallOrder:
    base = CallOrder(
        epoch_try=EpochTry(run_id="r", epoch=1, token="t"),
        source=ShardSource(
            x_key="x",
            y_key="y",
            x=Layout(dtype="|u1", row_shape=(2,)),
            y=Layout(dtype="|u1", row_shape=()),
            rows=ROWS,
            held=HELD,
            model="my_counter:make_model",
            module_key="model.py",
        ),
        shard=shard,
        shards=shards,
        attempt=1,
        start_key="",
        sync=sync,
        share=1.0,
        batch=BATCH,
        rate=float(shards),
        seed=0,
        pushes=2,
        fan_in=4,
        seconds=60.0,
        memory_mb=1769,
        most_puts=500,
        most_gets=500,
    )
    return replace(base, **changes)


def all_steps(shards: int) -> int:
    return sum(shard_steps(order(shards), index) for index in range(shards))


def ends(storage: FakeStorage) -> list[tuple[dict[str, Any], NDArray[np.float32]]]:
    return [unframe(data) for key, data in sorted(storage.objects.items()) if "/end/" in key]


def side_by_side(storage: FakeStorage, orders: list[CallOrder]) -> list[CallReport]:
    reports: dict[int, CallReport] = {}
    threads = [
        threading.Thread(target=lambda at=at, o=o: reports.__setitem__(at, train_shard(o, storage)))
        for at, o in enumerate(orders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [reports[at] for at in range(len(orders))]


@pytest.mark.parametrize("sync", [Sync.HSP, Sync.BSP])
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_every_step_counts_once(storage: FakeStorage, shards: int, sync: Sync) -> None:
    reports = side_by_side(storage, [order(shards, shard=index, sync=sync) for index in range(shards)])
    assert all(report.done and not report.failed for report in reports)
    assert any(report.closed for report in reports)
    for header, parameters in ends(storage):
        assert parameters[0] == all_steps(shards) == header["steps"] == header["loss"]


@pytest.mark.parametrize("sync", list(Sync))
def test_a_part_of_an_epoch_has_its_share_of_the_steps(storage: FakeStorage, sync: Sync) -> None:
    orders = [order(2, shard=index, sync=sync, share=0.25, batch=2) for index in range(2)]
    reports = side_by_side(storage, orders)
    assert not any(report.failed for report in reports)
    whole = sum(shard_steps(order(2, batch=2), index) for index in range(2))
    steps = sum(shard_steps(orders[0], index) for index in range(2))
    assert whole / 4 <= steps < whole / 4 + 2
    assert all(parameters[0] == header["steps"] >= steps for header, parameters in ends(storage))


def test_parts_of_epochs_cover_all_samples_over_time() -> None:
    seen: set[int] = set()
    for epoch in range(1, 60):
        epoch_try = EpochTry(run_id="r", epoch=epoch, token="t")
        first, last = part_rows(order(3, share=0.2, epoch_try=epoch_try), 1)
        assert last - first == math.ceil(0.2 * (ROWS * 2 // 3 - ROWS // 3))
        seen |= set(range(first, last))
    start, end = rows_of_shard(ROWS, 3, 1)
    assert seen <= set(range(start, end))
    assert len(seen) >= 0.8 * (end - start)  # rows after the last whole block are not used


def test_asp_ends_when_all_steps_were_made_by_any_function(storage: FakeStorage) -> None:
    faults = Faults(slow_shards=(2,), pause_seconds=0.3)
    reports = side_by_side(storage, [order(4, shard=n, sync=Sync.ASP, faults=faults, pushes=4) for n in range(4)])
    header, parameters = ends(storage)[0]
    assert header["steps"] >= all_steps(4)
    assert parameters[0] == header["steps"]
    slow = shard_steps(order(4), 2)
    assert reports[2].steps < slow  # the others made up for it


def test_a_call_that_dies_is_continued_and_nothing_is_applied_twice(storage: FakeStorage) -> None:
    faults = Faults(fail_share=1.0)
    first = [train_shard(order(4, shard=index, faults=faults, pushes=4), storage) for index in range(4)]
    assert all("injected failure" in report.failed for report in first)
    assert not ends(storage)
    for index in range(4):
        train_shard(order(4, shard=index, faults=faults, attempt=2), storage)
    assert [parameters[0] for _, parameters in ends(storage)] == [all_steps(4)]


def test_two_calls_for_one_shard_count_as_one(storage: FakeStorage) -> None:
    slow = Faults(slow_shards=(1,), pause_seconds=0.05)
    orders = [order(3, shard=index, faults=slow, pushes=4) for index in range(3)]
    side_by_side(storage, [*orders, order(3, shard=1, attempt=2, pushes=4)])
    assert {parameters[0] for _, parameters in ends(storage)} == {all_steps(3)}


def test_a_call_whose_time_is_up_hands_its_shard_over(storage: FakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HAND_OVER_SECONDS", 0.1)
    slow = Faults(slow_shards=(0,), pause_seconds=0.12)
    short = train_shard(order(1, faults=slow, seconds=0.3, batch=4), storage)
    assert not short.done
    assert 0 < short.steps < ROWS // 4
    rest = train_shard(order(1, attempt=2, batch=4), storage)
    assert rest.done
    assert ends(storage)[0][1][0] == ROWS // 4


def test_an_object_that_is_still_being_written_is_not_read(storage: FakeStorage) -> None:
    for index in range(2):
        train_shard(order(3, shard=index), storage)
    done = EpochTry(run_id="r", epoch=1, token="t").part(ShardUpdate(0, shard_steps(order(3), 0), 1))
    storage.torn.add(done)
    report = train_shard(order(3, shard=2, fan_in=0), storage)
    assert report.done
    assert not report.closed  # the writer of the torn part closes; here mlcd makes one more call
    assert train_shard(order(3, shard=2, attempt=2), storage).closed
    assert ends(storage)[0][1][0] == all_steps(3)


def test_functions_stop_when_the_stop_key_exists(storage: FakeStorage) -> None:
    storage.objects[EpochTry(run_id="r", epoch=1, token="t").stop] = b"stop"
    report = train_shard(order(1), storage)
    assert (report.steps, report.closed) == (0, False)


def test_functions_start_from_the_parameters_of_the_epoch_before(storage: FakeStorage) -> None:
    storage.objects["before"] = frame({}, np.array([100.0], dtype=np.float32))
    train_shard(order(1, start_key="before"), storage)
    assert ends(storage)[0][1][0] == 100 + all_steps(1)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"def make_model():\n    return 3\n", "made a int, which has no start and no gradient and no loss"),
        (b"import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        (b"x = 1\n", "AttributeError"),
        (b"def make_model(:\n", "SyntaxError"),
        (COUNTER.replace(b"np.full(1, -1.0", b"np.full(2, -1.0"), r"gradient\(\) returned the shape \(2,\)"),
        (COUNTER.replace(b"np.zeros(1", b"np.zeros((1, 1)"), "parameters must be one flat vector"),
    ],
)
def test_a_model_that_cannot_be_trained_reports_why(storage: FakeStorage, code: bytes, reason: str) -> None:
    storage.objects["model.py"] = code
    report = train_shard(order(1), storage)
    assert pytest.approx(0) == report.compute_seconds or report.steps == 0
    assert __import__("re").search(reason, report.broken), report.broken


def test_a_full_storage_fails_the_call_with_its_reason(storage: FakeStorage) -> None:
    storage.full = True
    assert "No space left on device" in train_shard(order(1), storage).failed


def test_a_call_never_makes_more_storage_requests_than_authorised(storage: FakeStorage) -> None:
    report = train_shard(order(1, most_puts=3), storage)
    assert "more than the 3 PUTs and listings" in report.failed
    assert report.puts == 3
    store = ObjectStore(storage, most_gets=0)
    with pytest.raises(OutOfRequests):
        store.get("x")


def test_too_little_memory_fails_the_call_on_localhost(storage: FakeStorage) -> None:
    assert "MemoryError" in train_shard(order(1, memory_mb=1, processor_share=1.0), storage).failed


def test_parts_may_arrive_in_any_order_and_any_number_of_times() -> None:
    random = np.random.default_rng(0)
    start = random.normal(size=5).astype(np.float32)
    parts = {(shard, steps): np.float32(shard * 10 + steps) * np.ones(5, np.float32)
             for shard in range(1, 4) for steps in (1, 2, 3)}  # fmt: skip
    wanted = start + sum(parts[shard, 3] for shard in range(1, 4))
    for _ in range(20):
        replica = Replica(start, 0)
        told = [key for key in parts for _ in range(2)]
        random.shuffle(told)
        for shard, steps in told:
            replica.merge(shard, steps, parts[shard, steps])
        assert np.allclose(replica.parameters, wanted, atol=1e-4)
    assert np.allclose(closed(start, [parts[shard, 3] for shard in range(1, 4)]), wanted)


def test_a_frame_distinguishes_complete_from_torn() -> None:
    data = frame({"loss": 1.5}, np.arange(3, dtype=np.float32))
    header, vector = unframe(data)
    assert header == {"loss": 1.5}
    assert np.array_equal(vector, [0, 1, 2])
    for spoilt in (b"", data[:9], data[:-1], data[:30] + b"\xff" + data[31:]):
        with pytest.raises(Torn):
            unframe(spoilt)


@pytest.mark.parametrize("header", ["null", "[1]", "{", "[" * 1000, '{"a": ' + "9" * 400 + "}"])
def test_a_frame_with_a_malformed_header_counts_as_torn(header: str) -> None:
    body = header.encode() + bytes(8)
    with pytest.raises(Torn):
        unframe(b"mlcd1" + struct.pack("<IIQ", zlib.crc32(body), len(header), len(body)) + body)
    whole = b"{}" + bytes(7)  # no whole number of floats
    with pytest.raises(Torn):
        unframe(b"mlcd1" + struct.pack("<IIQ", zlib.crc32(whole), 2, len(whole)) + whole)


def test_a_loss_without_end_is_no_number() -> None:
    assert unframe(frame({"loss": float("nan"), "steps": 3}, np.zeros(1, dtype=np.float32)))[0] == {
        "loss": None,
        "steps": 3,
    }


def test_keys_of_somebody_else_are_ignored() -> None:
    epoch_try = EpochTry(run_id="r", epoch=1, token="t")
    keys = [f"{epoch_try.prefix}part/{name}" for name in ("", "1-2", "a-b-c", "1-2-" + "9" * 5000, "00001-0000002-001")]
    assert EpochListing(epoch_try, keys).parts == {ShardUpdate(1, 2, 1)}


def test_of_two_equally_far_attempts_the_first_is_used() -> None:
    epoch_try = EpochTry(run_id="r", epoch=1, token="t")
    keys = [epoch_try.part(ShardUpdate(0, 4, attempt)) for attempt in (2, 1, 3)]
    assert EpochListing(epoch_try, keys).furthest[0] == ShardUpdate(0, 4, 1)
    assert ShardUpdate.named(ShardUpdate(3, 12, 1).name) == ShardUpdate(3, 12, 1)


def test_a_function_with_another_mlcd_refuses_the_call_for_good(storage: FakeStorage) -> None:
    report = train_shard(replace(order(1), mlcd_version="0.0.7"), storage)
    assert "the run uses mlcd 0.0.7; build a runtime with mlcd 0.0.7" in report.broken
    assert report.steps == 0
