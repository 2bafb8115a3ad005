"""The load generator against a toy server of known speed: its search, its reports of saturation, its plans."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from mlcd.errors import BadInput
from mlcd.loadgen import LoadInput, LoadPlan, LoadResult, Scenario, measure_load, split_cores
from mlcd.loadgen.generator import generate
from mlcd.loadgen.phases import LoadPhase, closed_loop, multi_stream, poisson
from mlcd.loadgen.result import percentile
from mlcd.loadgen.wire import InFlight, Wire, bodies

X = (LoadInput(name="x", datatype="FP32", shape=(1, 4)),)


@dataclass
class Toy:
    """A server that answers one request at a time, each after `seconds`, with faults that the test sets."""

    seconds: float = 0.0
    fail_every: int = 0
    close_after: int = 0
    seen: int = 0
    most_waiting: int = 0
    port: int = 0
    heads: list[bytes] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                self.heads.append(head)
                self.seen += 1
                number, self.most_waiting = self.seen, max(self.most_waiting, self.waiting + 1)
                self.waiting += 1
                async with self.lock:
                    if self.seconds:
                        await asyncio.sleep(self.seconds)
                self.waiting -= 1
                if self.close_after and number > self.close_after:
                    break
                bad = self.fail_every and number % self.fail_every == 0
                body = b'{"error": "no"}' if bad else b'{"outputs": []}'
                status = b"400 Bad Request" if bad else b"200 OK"
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        self.lock, self.waiting = asyncio.Lock(), 0
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()


@contextmanager
def running(toy: Toy) -> Iterator[str]:
    loop, ready = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    def main() -> None:
        loop.run_until_complete(toy.serve(ready, stop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield f"http://127.0.0.1:{toy.port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)


@contextmanager
def wired(toy: Toy, *, timeout_seconds: float = 5.0) -> Iterator[Wire]:
    with running(toy):
        wire = Wire("127.0.0.1", toy.port, bodies("h", "m", X, seed=0), timeout_seconds=timeout_seconds)
        try:
            yield wire
        finally:
            wire.close()


class TestPercentile:
    @pytest.mark.parametrize(("percent", "expected"), [(50, 50), (95, 95), (99, 99), (100, 100), (0, 1)])
    def test_nearest_rank(self, percent: float, expected: float) -> None:
        assert percentile([float(value) for value in range(1, 101)], percent) == expected

    def test_few_values_are_judged_by_the_worst(self) -> None:
        assert percentile([1.0, 2.0, 3.0], 99) == 3.0


class TestPlan:
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"seconds": 0.0}, "more than 0 s"),
            ({"slo_seconds": -1.0}, "latency limit"),
            ({"rate": 0.0}, "rate must"),
            ({"percentile": 98}, "p50, p95 or p99"),
            ({"concurrency": 0}, "between 1 and 800"),
            ({"slo_seconds": None}, "needs a rate"),
        ],
    )
    def test_refused(self, change: dict[str, float], problem: str) -> None:
        fields = {"address": "http://h:1", "model": "m", "inputs": X, "slo_seconds": 1.0, **change}
        with pytest.raises(BadInput, match=problem):
            LoadPlan(**fields)  # type: ignore[arg-type]

    def test_an_input_without_size_is_refused(self) -> None:
        with pytest.raises(BadInput, match="x: every size"):
            LoadInput(name="x", datatype="FP32", shape=(1, -1))

    def test_a_malformed_address(self) -> None:
        with pytest.raises(BadInput, match="http://HOST:PORT"):
            generate(LoadPlan(address="somewhere", model="m", inputs=X, rate=1))


class TestBodies:
    def test_numbers_keep_their_bound_and_their_seed(self) -> None:
        tensor = LoadInput(name="ids", datatype="INT64", shape=(1, 50), high=7)
        first, again, other = (bodies("h", "m", [tensor], seed=seed) for seed in (1, 1, 2))
        assert first == again != other
        head, _, rest = first[0].partition(b"\r\n\r\n")
        length = int(head.split(b"Inference-Header-Content-Length: ")[1].split(b"\r\n")[0])
        document, data = json.loads(rest[:length]), rest[length:]
        assert document["inputs"][0]["parameters"]["binary_data_size"] == len(data) == 50 * 8
        values = {int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)}
        assert values <= set(range(7))
        assert len(values) > 1

    @pytest.mark.parametrize(("datatype", "size"), [("FP16", 2), ("FP64", 8), ("BOOL", 1), ("UINT8", 1), ("INT32", 4)])
    def test_every_type_has_its_size(self, datatype: str, size: int) -> None:
        tensor = LoadInput(name="x", datatype=datatype, shape=(1, 10))
        assert f'"binary_data_size": {10 * size}'.encode() in bodies("h", "m", [tensor], seed=0)[0]

    def test_text_inputs_are_rejected(self) -> None:
        with pytest.raises(BadInput, match="BYTES"):
            bodies("h", "m", [LoadInput(name="x", datatype="BYTES", shape=(1,))], seed=0)


class TestClosedLoop:
    def test_concurrency_is_as_requested(self) -> None:
        toy = Toy(seconds=0.005)
        with wired(toy) as wire:
            phase = closed_loop(wire, concurrency=6, seconds=0.3)
        assert toy.most_waiting == 6
        assert phase.errors == 0
        assert phase.requests == toy.seen == len(phase.latencies)
        # One at a time inside: a request waits for the five before it.
        assert phase.percentile(50) > 5 * 0.005

    def test_least_number_of_requests(self) -> None:
        with wired(Toy(seconds=0.01)) as wire:
            assert closed_loop(wire, concurrency=2, seconds=0.0, least=9).requests >= 9

    def test_a_query_lasts_until_its_last_request(self) -> None:
        toy = Toy(seconds=0.01)
        with wired(toy) as wire:
            phase = multi_stream(wire, together=4, seconds=0.2)
        assert phase.requests == 4 * len(phase.latencies)
        assert min(phase.latencies) >= 4 * 0.01

    def test_errors_are_counted_and_named(self) -> None:
        with wired(Toy(fail_every=3)) as wire:
            phase = closed_loop(wire, concurrency=1, seconds=0.0, least=30)
        assert phase.errors == phase.requests // 3
        assert phase.first_error.startswith("status 400")
        assert not phase.keeps(None, 99)

    def test_a_closed_connection_is_an_error_and_is_reopened(self) -> None:
        toy = Toy(close_after=5)
        with wired(toy) as wire:
            phase = closed_loop(wire, concurrency=1, seconds=0.0, least=12)
        assert phase.errors == phase.requests - 5
        assert "closed" in phase.first_error

    def test_no_answer_in_time_is_an_error(self) -> None:
        with wired(Toy(seconds=1.0), timeout_seconds=0.2) as wire:
            phase = closed_loop(wire, concurrency=1, seconds=0.0)
        assert phase.errors == 1
        assert "no answer within" in phase.first_error

    def test_no_server(self) -> None:
        toy = Toy()
        with running(toy):
            pass
        wire = Wire("127.0.0.1", toy.port, bodies("h", "m", X, seed=0), timeout_seconds=1)
        phase = closed_loop(wire, concurrency=1, seconds=0.05)
        assert phase.errors == phase.requests > 0
        assert "cannot connect" in phase.first_error


class TestPoisson:
    def test_latency_counts_from_the_intended_arrival(self) -> None:
        """Ten times the capacity: a closed loop would measure 10 ms each; Poisson arrivals wait."""
        with wired(Toy(seconds=0.01)) as wire:
            phase = poisson(wire, rate=1000, seconds=0.2, seed=1)
        assert phase.requests == 200
        assert phase.percentile(99) > 1.0
        assert phase.percentile(50) > 0.4

    def test_it_stops_when_the_limit_cannot_be_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mlcd.loadgen.wire.MOST_CONNECTIONS", 300)  # of both ends, for select()
        toy = Toy(seconds=0.01)
        with wired(toy) as wire:
            phase = poisson(wire, rate=1000, seconds=2.0, seed=1, slo_seconds=0.1)
        assert phase.stopped
        assert toy.seen < 2000
        assert not phase.keeps(0.1, 99)

    def test_the_same_seed_is_the_same_count(self) -> None:
        with wired(Toy()) as wire:
            counts = {poisson(wire, rate=300, seconds=0.2, seed=seed).requests for seed in range(3)}
        assert counts == {60}


class TestSearch:
    def test_it_finds_the_servers_capacity(self) -> None:
        """10 ms per request, one at a time: near 100/s; a limit of 80 ms allows only some waiting."""
        with running(Toy(seconds=0.01)) as address:
            result = measure_load(address, "m", X, slo_seconds=0.08, seconds=5)
        assert result.kept
        assert result.p99_seconds <= 0.08
        assert result.errors == 0
        assert 0 < result.requests_per_second < 110
        assert len(result.steps) >= 2
        assert LoadResult.from_json(json.loads(json.dumps(result.as_json()))) == result

    def test_a_limit_that_no_rate_can_keep(self) -> None:
        with running(Toy(seconds=0.05)) as address:
            result = measure_load(address, "m", X, slo_seconds=0.01, seconds=3)
        assert not result.kept
        assert result.p50_seconds > 0.05
        assert result.steps == (), "nothing is searched for where a single request is too slow"

    def test_a_server_that_only_fails(self) -> None:
        with running(Toy(fail_every=1)) as address:
            result = measure_load(address, "m", X, slo_seconds=0.1, seconds=1)
        assert not result.kept
        assert result.errors == result.requests
        assert result.p50_seconds == float("inf")
        assert result.as_json()["p50_seconds"] is None
        assert result.first_error.startswith("status 400")

    def test_a_server_that_only_fails_is_not_loaded(self) -> None:
        with running(Toy(fail_every=1)) as address:
            result = measure_load(address, "m", X, rate=5000, seconds=1)
        assert result.errors == result.requests >= 8
        assert result.offered_per_second is None, "the warm-up was enough"

    def test_a_given_rate(self) -> None:
        with running(Toy()) as address:
            result = measure_load(address, "m", X, rate=100, seconds=1)
        assert result.kept
        assert result.offered_per_second == 100
        assert result.scenario == Scenario.SERVER

    def test_no_server(self) -> None:
        toy = Toy()
        with running(toy) as address:
            pass
        result = measure_load(address, "m", X, rate=20, seconds=0.5)
        assert result.errors == result.requests
        assert not result.kept


class TestHonesty:
    def test_a_busy_generator_is_reported(self) -> None:
        phase = LoadPhase(begun=0.0, ended=1.0, processor_seconds=0.95)
        from mlcd.loadgen.generator import _saturation

        assert "95% of a processor" in _saturation(phase, None)

    def test_late_requests_are_reported_as_the_generators_fault(self) -> None:
        from mlcd.loadgen.generator import _saturation

        phase = LoadPhase(begun=0.0, ended=1.0, rate=100.0, late=[0.0] * 90 + [0.02] * 10)
        assert "20.0 ms late" in _saturation(phase, 0.05)
        assert _saturation(LoadPhase(begun=0.0, ended=1.0, rate=100.0, late=[0.0001] * 100), 0.05) == ""

    def test_spread_over_parts_of_the_test(self) -> None:
        steady = LoadPhase(begun=0.0, ended=5.0, finished=[0.05 + 0.1 * index for index in range(50)])
        uneven = LoadPhase(begun=0.0, ended=5.0, finished=[0.01 * index for index in range(50)])
        assert steady.spread() == pytest.approx(0)
        assert uneven.spread() > 0.5


class TestCores:
    def test_generator_and_server_are_kept_apart_where_that_is_possible(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 5})
        split = split_cores(3)
        assert (split.server, split.generator, split.apart, split.note) == ((0, 1, 2), (5,), True, "")

    def test_note_says_why_cores_are_shared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
        split = split_cores(2)
        assert not split.apart
        assert "all 2 processors" in split.note
        monkeypatch.delattr("os.sched_getaffinity")
        assert "cannot pin" in split_cores(1).note


class TestSeveralServers:
    def test_the_load_goes_to_the_one_with_the_fewest_in_flight(self) -> None:
        slow, quick = Toy(seconds=0.05), Toy(seconds=0.001)
        with running(slow), running(quick) as address:
            result = measure_load(
                address,
                "m",
                X,
                scenario=Scenario.OFFLINE,
                seconds=1.5,
                concurrency=8,
                further=(f"http://127.0.0.1:{slow.port}",),
            )
        assert result.errors == 0
        assert min(slow.seen, quick.seen) > 0
        assert quick.seen > 2 * slow.seen

    def test_servers_take_turns_where_all_are_idle(self) -> None:
        shares = InFlight(3)
        assert [shares.least() for _ in range(6)] == [0, 1, 2, 0, 1, 2]
        shares.counts[:] = [2, 0, 1]
        assert [shares.least() for _ in range(2)] == [1, 1]
