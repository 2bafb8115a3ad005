"""How a load test becomes a trial or a verification, with a fake server and a fake generator."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import mlcd.profiler.load as module
from mlcd.clouds.provider import JobProgress, LeaseFailed, Order, Settled
from mlcd.clouds.serving.provider import Endpoint
from mlcd.errors import Interrupted, MlcdError
from mlcd.goal import Slo
from mlcd.loadgen import LoadInput, LoadResult, LoadStep, Scenario
from mlcd.problem import TrialPolicy
from mlcd.profiler.load import LoadTest, Seen, measure_load_trial, verify_load
from mlcd.space import Config
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement, Trial
from mlcd.units import Usd

CONFIG = Config.of({"batch": 4, "threads": 1, "replicas": 2, "precision": "fp32"})
POLICY = TrialPolicy(seconds=10.0, extra_seconds_per_3_nodes=0.0, extension=0.5, watchdog_seconds=5.0, precision=0.1)
TEST = LoadTest(
    inputs=(LoadInput(name="x", datatype="FP32", shape=(1, 4)),), scenario=Scenario.SERVER, slo=Slo(seconds=0.05)
)
KEPT = LoadResult(
    scenario="server",
    requests_per_second=200.0,
    offered_per_second=200.0,
    kept=True,
    requests=1000,
    errors=0,
    p50_seconds=0.01,
    p95_seconds=0.02,
    p99_seconds=0.04,
    seconds=5.0,
    total_seconds=9.0,
    relative_error=0.02,
    processor_share=0.1,
    saturated="",
    steps=(
        LoadStep(
            rate=200, seconds=5, requests=1000, errors=0, p50_seconds=0.01, p99_seconds=0.04, kept=True, stopped=False
        ),
    ),
)


class Server:
    """A lease that is ready after `startup_seconds` of its own clock, or dies with `dies`."""

    def __init__(self, startup_seconds: float = 1.0, dies: str = "") -> None:
        self.startup_seconds, self.dies, self.released = startup_seconds, dies, 0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.released += 1

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(address="http://127.0.0.1:1", model="m", client_cpus=(1,), shares_cpus=False)

    def progress(self) -> Iterator[JobProgress]:
        for second in range(int(self.startup_seconds) + 1):
            yield JobProgress(float(second), 0.0)

    def check(self) -> None:
        if self.dies:
            raise LeaseFailed(FailureKind.OUT_OF_MEMORY, self.dies, seconds=3.0)

    def memory_gib(self) -> float:
        return 0.5

    def finish(self, at: JobProgress) -> Settled:
        return Settled(seconds=9.5)


class Machine:
    name, simulated, noise = "local", False, 0.03

    def __init__(self, server: Server) -> None:
        self.server, self.orders = server, list[Order]()

    def lease(self, order: Order) -> Any:
        self.orders.append(order)
        return self.server


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Records the requests to the generator; it returns `answers` in order, then repeats the last."""
    return []


Play = Callable[..., Trial]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, loads: list[dict[str, Any]]) -> Play:
    def run(
        *answers: LoadResult | Exception, server: Server | None = None, test: LoadTest = TEST, **more: Any
    ) -> Trial:
        remaining = list(answers or (KEPT,))

        def measure_load(address: str, model: str, inputs: Any, **asked: Any) -> LoadResult:
            loads.append(asked)
            found = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(module, "measure_load", measure_load)
        cloud = Machine(server or Server())
        given = {"attempt": 1, "policy": POLICY, "usd_per_hour": Usd.of("0.36"), "test": test, **more}
        found = measure_load_trial(cloud, CONFIG, **given)
        assert cloud.server.released == 1
        assert cloud.orders[0].seconds == POLICY.worst_seconds(1)
        return found

    return run


def test_a_rate_that_kept_the_limit(play: Play, loads: list[dict[str, Any]]) -> None:
    trial = play()
    assert isinstance(trial, Measurement)
    assert (trial.samples_per_second, trial.seconds, trial.startup_seconds) == (200.0, 9.5, 1.0)
    assert trial.usd == Usd.of("0.36").for_seconds(9.5)
    assert trial.relative_error == pytest.approx((0.02**2 + 0.03**2) ** 0.5)
    assert trial.load is not None
    assert trial.load.memory_gib == 0.5
    assert trial.load.meets(Slo(seconds=0.05))
    (asked,) = loads
    assert asked["seconds"] == pytest.approx(10 - 1 - module.OVERHEAD_SECONDS)
    assert (asked["slo_seconds"], asked["percentile"], asked["rate"], asked["apart"]) == (0.05, 99, None, True)
    assert asked["concurrency"] == 32


def test_a_server_that_died_is_paid_until_its_nodes_are_given_back(play: Play) -> None:
    class Slow(Server):
        def check(self) -> None:
            raise LeaseFailed(FailureKind.ERROR, "gone", seconds=0.01)

        def __exit__(self, *_: object) -> None:
            super().__exit__()
            time.sleep(0.2)

    trial = play(server=Slow())
    assert isinstance(trial, Failure)
    assert trial.seconds >= 0.2
    assert trial.usd == Usd.of("0.36").for_seconds(trial.seconds)


def test_an_imprecise_rate_is_measured_again(play: Play, loads: list[dict[str, Any]]) -> None:
    unsure = replace(KEPT, relative_error=0.2)
    trial = play(unsure, replace(unsure, requests_per_second=180.0, p99_seconds=0.03))
    assert isinstance(trial, Measurement)
    assert trial.extended
    assert len(loads) == 2
    assert trial.samples_per_second == pytest.approx((200 * 180) ** 0.5)
    assert trial.load is not None
    assert trial.load.p99_seconds == 0.03
    assert loads[1]["seconds"] <= POLICY.extended_seconds(1)
    assert loads[0]["seed"] != loads[1]["seed"]


def test_a_limit_that_no_rate_kept_is_measured_as_broken(play: Play) -> None:
    """The generator then reports latencies of sequential requests, which do not show the limit."""
    broken = [
        LoadStep(
            rate=rate, seconds=1, requests=50, errors=0, p50_seconds=0.01, p99_seconds=p99, kept=False, stopped=True
        )
        for rate, p99 in ((90.0, 0.09), (40.0, 0.045))
    ]
    trial = play(replace(KEPT, steps=tuple(broken)))
    assert isinstance(trial, Measurement)
    assert trial.samples_per_second == 40.0
    assert trial.load is not None
    assert not trial.load.meets(Slo(seconds=0.05))


def test_a_closed_loop_has_no_rate_to_offer(play: Play, loads: list[dict[str, Any]]) -> None:
    trial = play(test=replace(TEST, scenario=Scenario.OFFLINE, slo=None))
    assert isinstance(trial, Measurement)
    assert (loads[0]["scenario"], loads[0]["rate"], loads[0]["slo_seconds"]) == (Scenario.OFFLINE, None, None)


@pytest.mark.parametrize(
    ("answer", "server", "kind", "message"),
    [
        (replace(KEPT, errors=1000, first_error="status 500"), Server(), FailureKind.ERROR, "status 500"),
        (MlcdError("the generator ended"), Server(), FailureKind.ERROR, "the generator ended"),
        (KEPT, Server(dies="the server ended: Killed"), FailureKind.OUT_OF_MEMORY, "Killed"),
        (KEPT, Server(startup_seconds=30), FailureKind.HANG, "not ready after"),
    ],
)
def test_what_goes_wrong_is_a_failure_with_its_price(
    play: Play, answer: Any, server: Server, kind: FailureKind, message: str
) -> None:
    trial = play(answer, server=server)
    assert isinstance(trial, Failure)
    assert trial.kind is kind
    assert message in trial.message
    assert trial.usd == Usd.of("0.36").for_seconds(trial.seconds)


def test_a_server_is_given_up_while_the_nodes_can_be_given_back_in_the_authorised_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = play(server=Server(startup_seconds=15))  # 20 s are authorised: 2 of them for the release, 4 for the load
    assert isinstance(trial, Failure)
    assert "not ready after 15 s" in trial.message
    assert isinstance(play(server=Server(startup_seconds=14)), Measurement)
    late = verified(monkeypatch, KEPT, server=Server(startup_seconds=41))  # 120 s: 12 for the release, 68 for the load
    assert "not ready after 41 s" in late.fault
    assert verified(monkeypatch, KEPT, server=Server(startup_seconds=40)).fault == ""


def test_a_cancelled_run_ends_the_load_test(play: Play) -> None:
    with pytest.raises(Interrupted):
        play(cancelled=lambda: True)


def verified(monkeypatch: pytest.MonkeyPatch, answer: LoadResult | Exception, **more: Any) -> Any:
    def measure_load(*_: Any, **asked: Any) -> LoadResult:
        if isinstance(answer, Exception):
            raise answer
        assert asked["seconds"] == pytest.approx(60 / 0.9)
        return answer

    monkeypatch.setattr(module, "measure_load", measure_load)
    server = more.pop("server", Server())
    told: list[float] = []
    found = verify_load(
        Machine(server),
        CONFIG,
        rate=180.0,
        attempt=1,
        most_seconds=120.0,
        test=more.pop("test", TEST),
        report_progress=lambda fraction, _seconds: told.append(fraction),
    )
    assert server.released == 1
    assert told[0] == 0.0
    assert found.seconds <= time.monotonic()
    return found


def test_a_verification_that_fails_is_charged_what_its_cloud_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verified(monkeypatch, KEPT, server=Server(dies="no memory"))
    assert (found.fault, found.seconds) == ("no memory", 3.0)


def test_a_verification_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verified(monkeypatch, KEPT)
    assert (found.rate, found.fault) == (180.0, "")
    assert found.load.memory_gib == 0.5


@pytest.mark.parametrize(
    ("answer", "server", "fault"),
    [
        (replace(KEPT, p99_seconds=0.08), Server(), "p99 of 80 ms at 180 requests/s, over the 50 ms allowed"),
        (replace(KEPT, errors=3, first_error="status 503"), Server(), "3 of 1,000 requests failed: status 503"),
        (MlcdError("no result"), Server(), "no result"),
        (KEPT, Server(dies="gone"), "gone"),
        (KEPT, Server(startup_seconds=90), "not ready"),
    ],
)
def test_a_verification_that_fails(monkeypatch: pytest.MonkeyPatch, answer: Any, server: Server, fault: str) -> None:
    assert fault in verified(monkeypatch, answer, server=server).fault


def test_a_closed_loop_is_verified_by_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    offline = replace(TEST, scenario=Scenario.OFFLINE, slo=None)
    assert verified(monkeypatch, KEPT, test=offline).rate == 200.0
    short = verified(monkeypatch, KEPT, test=replace(offline, rate=250.0))
    assert short.fault == "200 of 250 requests/s answered"


def test_two_measurements_of_a_rate_that_differ_are_uncertain() -> None:
    load = Load(p50_seconds=0.01, p95_seconds=0.02, p99_seconds=0.03, requests=100)
    slower = replace(load, p99_seconds=0.04)
    low, high = Seen(rate=100.0, relative_error=0.02, load=slower), Seen(rate=200.0, relative_error=0.02, load=load)
    joined = low.joined(high)
    assert joined.rate == pytest.approx(math.sqrt(100.0 * 200.0))
    assert joined.relative_error == pytest.approx(math.log(2) / 2), "half of what lies between them"
    assert joined.load is slower
    assert low.joined(low).relative_error == pytest.approx(0.02 / math.sqrt(2))
