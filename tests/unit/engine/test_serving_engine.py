"""The loop of `mlcd serve` without servers: what is verified, what fails, and how a run ends."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import jsonschema
import pytest

import mlcd.engine.serving as module
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.verification import MOST_VERIFICATIONS, VerificationDecider
from mlcd.engine import Engine
from mlcd.engine.serving import DERATE_PER_FAILURE, FAILED_RATE_FACTOR, PROMISE_Z, LoadTestPerformer
from mlcd.errors import Interrupted
from mlcd.findings import shown
from mlcd.findings.serve import chosen, nearest_miss, rejected
from mlcd.goal import Goal, Objective, Slo
from mlcd.known.resemblance import Resemblance
from mlcd.loadgen import LoadInput, Scenario
from mlcd.problem import Problem, TrialPolicy
from mlcd.profiler.load import LoadTest, Verified
from mlcd.report.serving import serving_verdict
from mlcd.report.serving_html import serving_html
from mlcd.report.serving_json import serving_json, serving_schema
from mlcd.run.attempt import Ending
from mlcd.run.findings import RejectionReason
from mlcd.run.header import Header, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.search.registry import strategy
from mlcd.space import Config, Knob, Space
from mlcd.store.store import Store
from mlcd.trial.outcome import Status
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement, Trial
from mlcd.units import Usd

SLO = Slo(seconds=0.05)
RATES = {1: 100.0, 4: 300.0, 16: 280.0}
HOUR = Usd.of("0.036")


def config(batch: int) -> Config:
    return Config.of({"batch": batch, "threads": 1, "replicas": 1, "precision": "fp32"})


def problem(**changes: Any) -> Problem:
    configs = tuple(map(config, RATES))
    knobs = (
        Knob(name="batch", values=tuple(RATES)),
        Knob(name="threads", values=(1,)),
        Knob(name="replicas", values=(1,)),
        Knob(name="precision", values=("fp32",), features={"fp32": (5.0,)}),
    )
    given = {
        "name": "toy",
        "work_samples": 1e6,
        "space": Space(knobs, configs),
        "goal": Goal(minimize=Objective.COST, slo=SLO),
        "usd_per_hour": (HOUR,) * len(configs),
        "trial": TrialPolicy(seconds=10.0, extra_seconds_per_3_nodes=0.0, watchdog_seconds=5.0),
        "max_trials": 3,
        "noise": 0.01,
        "verify_seconds": 100.0,
    }
    return Problem(**{**given, **changes})


ERROR = 0.02
LOWER_BOUND_FACTOR = math.exp(-PROMISE_Z * ERROR)
"""Lower bound (95%) of a rate / the measured rate."""


def load(p99_seconds: float = 0.04, errors: int = 0) -> Load:
    return Load(
        p50_seconds=p99_seconds / 4, p95_seconds=p99_seconds / 2, p99_seconds=p99_seconds, requests=1000, errors=errors
    )


def measured(of: Config, p99_seconds: float = 0.04) -> Measurement:
    return Measurement(
        config=of,
        attempt=1,
        samples_per_second=RATES[int(of["batch"])],
        relative_error=ERROR,
        iterations=1000,
        startup_seconds=1.0,
        seconds=10.0,
        usd=HOUR.for_seconds(10.0),
        load=load(p99_seconds),
    )


class Machine:
    """A fake cloud: no server is started, since load tests are fake."""

    name = "local"
    simulated = False
    noise = 0.01

    def lease(self, order: Any) -> Any:
        raise AssertionError("nothing is leased here")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(None) as opened:
        yield opened


@pytest.fixture
def play(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SearchRun]:
    """A run with fake load tests and verifications; `offered` of the result has the verified rates."""

    def run(
        asked: Problem,
        *,
        trial: Callable[[Config], Trial] = measured,
        holds: Callable[[Config, float], str] = lambda _config, _rate: "",
        test: dict[str, Any] | None = None,
        again: bool = False,
    ) -> SearchRun:
        def verify(cloud: Any, of: Config, *, rate: float, report_progress: Any, **_: Any) -> Verified:
            report_progress(0.0, 0.0)
            fault = holds(of, rate)
            return Verified(rate=rate, seconds=70.0, load=load(0.2 if fault else 0.03), fault=fault)

        monkeypatch.setattr(module, "measure_load_trial", lambda cloud, of, **_: trial(of))
        monkeypatch.setattr(module, "verify_load", verify)
        settings = LoadTest(
            inputs=(LoadInput(name="x", datatype="FP32", shape=(1, 4)),),
            scenario=Scenario.SERVER,
            slo=asked.goal.slo,
            rate=asked.goal.rate,
            **(test or {}),
        )
        facts = ServingFacts(
            model="toy.onnx",
            scenario="server",
            headroom=settings.headroom,
            verify_seconds=settings.verify_seconds,
            resemblance=Resemblance(nearest=(("resnet", 0.9),), covered=0.8, unseen=("Odd",), source="a test"),
        )
        made = Run(
            header=Header(
                run_id="toy-1",
                created="2026-01-01",
                kind=Kind.SERVE,
                cloud="local",
                simulated=False,
                strategy="exhaustive",
                seed=0,
                parallel=1,
                version="0",
                catalog_date="",
                serving=facts,
            ),
            problem=asked,
        )
        if not again:
            store.add(made, spec={})
        engine = Engine(
            run=cast(SearchRun, store.load("toy-1")),
            decider=SearchDecider(
                strategy=strategy("exhaustive"),
                aftermath=VerificationDecider(seconds=settings.verify_seconds),
                guarded=True,
            ),
            performer=LoadTestPerformer(cloud=Machine(), test=settings),
            journal=store,
        )
        ended = engine.drive()
        assert store.load("toy-1") == ended
        return ended

    return run


def check_reports(record: SearchRun) -> str:
    """Render every report of the record; returns the text of the verdict."""
    data = serving_json(shown(record))
    jsonschema.validate(json.loads(json.dumps(data, allow_nan=False)), serving_schema())
    assert data["exit_code"] == record.status.exit_code
    assert "<!doctype html>" in serving_html(shown(record))
    return serving_verdict(shown(record))


def test_the_choice_is_verified_with_headroom(play: Callable[..., SearchRun]) -> None:
    offered: list[tuple[int, float]] = []

    def holds(of: Config, rate: float) -> str:
        offered.append((int(of["batch"]), rate))
        return ""

    record = play(problem(), holds=holds)
    assert record.status is Status.DONE
    assert [batch for batch, _ in offered] == [4]
    promised = 300 * LOWER_BOUND_FACTOR * 0.7
    assert offered[0][1] == pytest.approx(promised)
    choice = chosen(record)
    assert choice is not None
    assert choice.config == config(4)
    assert choice.requests_per_second == pytest.approx(promised)
    assert choice.usd_per_million == HOUR.for_seconds(1e6 / promised)
    assert {(loser.config["batch"] if loser.config else None, loser.reason) for loser in rejected(record)} == {
        (1, RejectionReason.DEARER),
        (16, RejectionReason.DEARER),
    }
    text = check_reports(record)
    assert "Serve with: batch=4" in text
    assert "Most similar known models: resnet (90%); how sure their figures apply: medium." in text
    assert "Never measured before: Odd" in text
    assert "nobody is charged" in text


def test_after_a_failed_verification_the_next_best_is_verified(play: Callable[..., SearchRun]) -> None:
    record = play(problem(), holds=lambda of, _rate: "p99 of 200 ms" if of["batch"] == 4 else "")
    assert record.status is Status.DONE
    choice = chosen(record)
    assert choice is not None
    assert choice.config == config(16)
    assert [run.config for run in record.earlier] == [config(4)]
    assert record.earlier[0].samples_per_second == pytest.approx(300 * FAILED_RATE_FACTOR)
    assert RejectionReason.NOT_VERIFIED in {loser.reason for loser in rejected(record)}
    text = check_reports(record)
    assert "failed its verification: p99 of 200 ms" in " ".join(text.split())
    assert "verification, failed: p99 of 200 ms" in text


def test_a_choice_that_failed_verification_may_return_at_a_lower_rate(play: Callable[..., SearchRun]) -> None:
    offered: list[float] = []

    def holds(of: Config, rate: float) -> str:
        offered.append(rate)
        return "p99 of 80 ms" if of["batch"] == 16 or rate > 190 else ""

    record = play(problem(), holds=holds)
    choice = chosen(record)
    assert record.status is Status.DONE
    assert choice is not None
    assert choice.config == config(4)
    rates = [
        300 * LOWER_BOUND_FACTOR * 0.7,
        280 * LOWER_BOUND_FACTOR * 0.7 * DERATE_PER_FAILURE,
        300 * FAILED_RATE_FACTOR * LOWER_BOUND_FACTOR * 0.7 * DERATE_PER_FAILURE**2,
    ]
    assert choice.requests_per_second == pytest.approx(rates[-1])
    assert offered == [pytest.approx(rate) for rate in rates]


def test_if_every_verification_fails_the_nearest_miss_is_named(play: Callable[..., SearchRun], store: Store) -> None:
    record = play(problem(), holds=lambda _config, _rate: "p99 of 200 ms, over the 50 ms allowed")
    assert record.status is Status.NOTHING_FITS
    assert record.status.exit_code == 4
    assert len(record.earlier) == MOST_VERIFICATIONS
    assert chosen(record) is None
    assert nearest_miss(record) is not None
    text = check_reports(record)
    assert "failed its verification (" in text
    assert "Nearest: batch=" in text
    assert [line.choice for line in store.runs()] == [""], "a list of runs shows no choice either"


def test_if_nothing_keeps_the_limit_the_nearest_miss_is_named(play: Callable[..., SearchRun]) -> None:
    record = play(problem(), trial=lambda of: measured(of, 0.06 if of["batch"] == 1 else 0.3))
    assert record.status is Status.NOTHING_FITS
    miss = nearest_miss(record)
    assert miss is not None
    assert (miss.config, miss.reason) == (config(1), RejectionReason.BREAKS_SLO)
    assert "p99 60 ms, over the limit of 50 ms, at 100/s" in check_reports(record)


def test_a_requested_rate_is_offered_and_paid_for(play: Callable[..., SearchRun]) -> None:
    offered: list[float] = []

    def holds(of: Config, rate: float) -> str:
        offered.append(rate)
        return "late" if of["batch"] == 4 else ""

    goal = Goal(minimize=Objective.COST, slo=SLO, rate=250.0)
    record = play(problem(goal=goal, usd_per_hour=(HOUR, HOUR, HOUR * 2)), holds=holds)
    assert offered == [250.0, 250.0]
    choice = chosen(record)
    assert choice is not None
    assert choice.config == config(16)
    assert choice.usd_per_million == (HOUR * 2).for_seconds(1e6 / 250)
    short = next(loser for loser in rejected(record) if loser.config == config(1))
    assert (short.reason, short.text) == (RejectionReason.BELOW_RATE, "held 100 of 250 requests/s")
    check_reports(record)


def test_every_load_test_failed(play: Callable[..., SearchRun]) -> None:
    def trial(of: Config) -> Trial:
        return Failure(config=of, attempt=1, kind=FailureKind.ERROR, message="no", seconds=2.0, usd=HOUR.for_seconds(2))

    record = play(problem(), trial=trial)
    assert record.status is Status.ALL_FAILED
    assert {loser.text for loser in rejected(record)} == {"job-failed: no"}
    check_reports(record)


def test_a_budget_that_no_load_test_fits(play: Callable[..., SearchRun]) -> None:
    goal = Goal(minimize=Objective.COST, slo=SLO, budget=Usd.of("0.0001"))
    record = play(problem(goal=goal))
    assert record.status is Status.INFEASIBLE
    assert not record.trials
    assert "Nearest way out" in check_reports(record)


def test_trials_leave_room_for_the_verification(play: Callable[..., SearchRun]) -> None:
    """Every trial costs at most $0.0002, the verification $0.001: one trial and it fit, not two."""
    goal = Goal(minimize=Objective.COST, slo=SLO, budget=Usd.of("0.0013"))
    record = play(problem(goal=goal))
    assert record.status is Status.DONE
    assert record.total_usd <= Usd.of("0.0013")
    assert len(record.trials) == 2
    check_reports(record)


def test_without_a_verification_the_measured_rate_is_reported(play: Callable[..., SearchRun]) -> None:
    record = play(problem(verify_seconds=0.0), test={"verify_seconds": 0.0})
    assert record.status is Status.DONE
    assert record.final is None
    choice = chosen(record)
    assert choice is not None
    assert (choice.requests_per_second, choice.verified_seconds) == (300.0, None)
    assert "not verified" in check_reports(record)


def test_an_interrupted_verification_is_paid_and_repeated(play: Callable[..., SearchRun]) -> None:
    def interrupted(_config: Config, _rate: float) -> str:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="the verification is repeated: `mlcd resume toy-1`"):
        play(problem(), holds=interrupted)
    record = play(problem(), again=True)
    assert record.status is Status.DONE
    assert [run.ending for run in record.earlier] == [Ending.INTERRUPTED]
    assert len(record.trials) == 3
    choice = chosen(record)
    assert choice is not None
    assert choice.config == config(4)
    assert "precision=fp32, interrupted" in check_reports(record)
    assert play(problem(), again=True).status is Status.DONE


def test_interrupted_verifications_do_not_count_against_the_choice(play: Callable[..., SearchRun]) -> None:
    def interrupted(_config: Config, _rate: float) -> str:
        raise KeyboardInterrupt

    offered: list[float] = []
    for time in range(MOST_VERIFICATIONS + 1):
        with pytest.raises(Interrupted):
            play(problem(), holds=interrupted, again=time > 0)

    def holds(_config: Config, rate: float) -> str:
        offered.append(rate)
        return ""

    record = play(problem(), holds=holds, again=True)
    assert record.status is Status.DONE
    assert [attempt.ending for attempt in record.earlier] == [Ending.INTERRUPTED] * (MOST_VERIFICATIONS + 1)
    assert offered == [pytest.approx(300 * LOWER_BOUND_FACTOR * 0.7)]


def test_a_verification_that_no_longer_fits_ends_the_run(play: Callable[..., SearchRun]) -> None:
    """Each verification costs $0.0007 of the $0.0022: after two that failed there is no room for a third."""
    goal = Goal(minimize=Objective.COST, slo=SLO, budget=Usd.of("0.0022"))
    record = play(problem(goal=goal), holds=lambda _config, _rate: "late")
    assert record.status is Status.NOTHING_FITS
    assert 1 <= len(record.earlier) < MOST_VERIFICATIONS
    assert record.total_usd <= Usd.of("0.0022")
    check_reports(record)
