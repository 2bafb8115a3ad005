"""Hand-built serving runs and trainings on functions, one for every way such a run can end."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.report_samples import header, trial_step, with_attempts, with_choice

from mlcd.catalog.functions import function_prices
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective, Slo
from mlcd.known.resemblance import Resemblance
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import FunctionFacts, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, SearchRun
from mlcd.run.step import Role, Step
from mlcd.run.verdict import PlainInstance, Relaxation, Verdict
from mlcd.space import Config, Knob, Space
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, Phase
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, Load, Measurement, TokenLoad, TokenPoint, Trial
from mlcd.units import Usd

RATES = {1: 100.0, 4: 300.0, 16: 280.0, 32: 0.0}
USD_PER_HOUR = Usd.of("0.036")


def _config(batch: int) -> Config:
    return Config.of({"batch": batch, "threads": 2, "replicas": 1, "precision": "fp32"})


def _serving_problem(goal: Goal) -> Problem:
    knobs = (
        Knob(name="batch", values=tuple(RATES)),
        Knob(name="threads", values=(2,)),
        Knob(name="replicas", values=(1,)),
        Knob(name="precision", values=("fp32",), features={"fp32": (5.0,)}),
    )
    return Problem(
        name="toy",
        work_samples=1e6,
        space=Space(knobs, tuple(map(_config, RATES))),
        goal=goal,
        usd_per_hour=(USD_PER_HOUR,) * len(RATES),
        trial=TrialPolicy(seconds=10.0, extra_seconds_per_3_nodes=0.0, watchdog_seconds=5.0),
        max_trials=4,
        noise=0.01,
        verify_seconds=100.0,
    )


def _load(p99_seconds: float, errors: int = 0) -> Load:
    return Load(
        p50_seconds=p99_seconds / 4,
        p95_seconds=p99_seconds / 2,
        p99_seconds=p99_seconds,
        requests=1000,
        errors=errors,
        memory_gib=0.4,
    )


def _load_test(batch: int) -> Trial:
    config, seconds, usd = _config(batch), 10.0, USD_PER_HOUR.for_seconds(10.0)
    if not RATES[batch]:
        kind = FailureKind.OUT_OF_MEMORY
        return Failure(config=config, attempt=1, kind=kind, seconds=seconds, usd=usd, message="the server was killed")
    return Measurement(
        config=config,
        attempt=1,
        samples_per_second=RATES[batch],
        relative_error=0.02,
        iterations=1000,
        startup_seconds=1.0,
        seconds=seconds,
        usd=usd,
        load=_load(0.2 if batch == 16 else 0.04),
    )


def serving_run(goal: Goal | None = None) -> SearchRun:
    """Four load tests, one failed and one too slow; the best was verified."""
    asked = _serving_problem(goal or Goal(minimize=Objective.COST, slo=Slo(seconds=0.05), budget=Usd.of(1)))
    reason = "greatest expected gain for its price"
    steps = tuple(
        trial_step(asked, number, _load_test(batch), reason, 10.0 * (number - 1), 15.0)
        for number, batch in enumerate(RATES, start=1)
    )
    best = steps[1].trial
    assert isinstance(best, Measurement)
    serving = ServingFacts(
        model="toy.onnx",
        scenario="server",
        headroom=0.1,
        verify_seconds=60.0,
        resemblance=Resemblance(
            nearest=(("resnet", 0.9), ("vgg", 0.4)), covered=0.8, unseen=("Odd", "Odder"), source="a test"
        ),
        notes=("int8 is left out: the model has no int8 kernels",),
    )
    run = SearchRun(
        header=header(
            run_id="toy-7f3a9c",
            created="2026-02-01T10:00:00Z",
            kind=Kind.SERVE,
            cloud="local",
            simulated=False,
            strategy="falcon",
            seed=0,
            catalog_date="",
            serving=serving,
        ),
        problem=asked,
        status=Status.DONE,
        steps=steps,
        verdict=Verdict(
            stopped="the limit of 4 load tests is reached", search_seconds=40.0, choice=Plan.of(asked, best)
        ),
    )
    held = Attempt(
        config=best.config,
        seconds=100.0,
        usd=USD_PER_HOUR.for_seconds(100.0),
        samples_per_second=250.0,
        load=_load(0.03),
    )
    return with_attempts(run, held)


def _point(in_flight: int, rate: float, ttft: float) -> TokenPoint:
    times = {"ttft_p50": ttft, "ttft_p99": 1.2 * ttft, "tpot_p50": 0.01, "tpot_p99": 0.02}
    whole = {f"e2e_p{percent}": in_flight / rate for percent in (50, 95, 99)}
    return TokenPoint(
        concurrency=in_flight,
        output_tokens_per_second=10 * rate,
        ttft_p95=1.1 * ttft,
        tpot_p95=0.015,
        kept=True,
        requests_per_second=rate,
        **times,
        **whole,
    )


def language_model_run(limit: ChatLimit) -> SearchRun:
    """A server with up to 8 in flight, 4 requests/s then; 3 a second are promised."""
    front = (_point(1, 1.0, 0.1), _point(8, 4.0, 0.5))
    tokens = TokenLoad(
        concurrency=8,
        requests_per_second=4.0,
        good_per_second=4.0,
        input_tokens_per_second=40.0,
        output_tokens_per_second=40.0,
        input_tokens=10,
        output_tokens=10,
        ttft=(0.5, 0.55, 0.6),
        tpot=(0.01, 0.015, 0.02),
        e2e=(2.0, 2.0, 2.0),
        front=front,
    )
    run = serving_run()
    load = Load(p50_seconds=2.0, p95_seconds=2.0, p99_seconds=2.0, requests=100, tokens=tokens)
    goal = Goal(minimize=Objective.COST, token_limits=(limit,))
    steps = list(run.steps)
    trial = steps[1].trial
    assert isinstance(trial, Measurement)
    steps[1] = steps[1].ended(replace(trial, load=load, samples_per_second=4.0))
    outcome = steps[-1].outcome
    assert isinstance(outcome, Attempt)
    held = replace(outcome, load=load, samples_per_second=3.0)
    steps[-1] = steps[-1].ended(held)
    return replace(run, steps=tuple(steps), problem=replace(run.problem, goal=goal))


def nothing_serves_run() -> SearchRun:
    """No load test meets the goal."""
    made = serving_run(Goal(minimize=Objective.COST, slo=Slo(seconds=0.001)))
    none = with_choice(with_attempts(made), None)
    assert none.verdict is not None
    relaxed = replace(none.verdict, relaxations=(Relaxation(text="p99 within 40 ms"),))
    return replace(none, status=Status.NOTHING_FITS, verdict=relaxed)


def fallen_run() -> SearchRun:
    """The best did not hold its rate under load; the next did."""
    made = serving_run()
    fell = Attempt(
        config=_config(1),
        seconds=70.0,
        usd=USD_PER_HOUR.for_seconds(70.0),
        ending=Ending.MOVED,
        samples_per_second=90.0,
        message="p99 was 200 ms",
        load=_load(0.2),
    )
    return with_attempts(made, fell, *made.attempts)


def _step(number: int, outcome: Epoch | FailedEpoch, started_seconds: float) -> Step:
    return Step(
        number=number,
        round=number,
        role=Role.EPOCH,
        authorisation=Authorisation(choice=outcome.fleet, attempt=outcome.number, usd=Usd.of("0.5"), seconds=300.0),
        reason="",
        usd_per_hour=None,
        started_seconds=started_seconds,
        started_at=started_seconds,
        outcome=outcome,
    )


def _epoch(number: int, functions: int, memory_mb: int, loss: float) -> Epoch:
    phase = Phase(mean_seconds=1.25, max_seconds=2.5)
    return Epoch(
        number=number,
        fleet=Fleet(functions, memory_mb, 0.5 if number == 1 else 1.0),
        loss=loss,
        seconds=12.5,
        usd=Usd.of("0.0321"),
        fetch=phase,
        compute=phase,
        update=phase,
        calls=functions + 1,
        failed=1,
    )


def serverless_run() -> EpochRun:
    """Four epochs on simulated functions, one of them failed, to the target."""
    failed = FailedEpoch(
        number=3, fleet=Fleet(50, 512), seconds=30.0, usd=Usd.of("0.08"), message="3 functions ran out of memory"
    )
    outcomes: tuple[Epoch | FailedEpoch, ...] = (
        _epoch(1, 20, 1024, 0.69),
        _epoch(2, 50, 1769, 0.52),
        failed,
        _epoch(3, 100, 1769, 0.44),
        _epoch(4, 100, 1769, 0.39),
    )
    steps, clock = [], 0.0
    for number, outcome in enumerate(outcomes, start=1):
        steps.append(_step(number, outcome, clock))
        clock += outcome.seconds
    instance = PlainInstance(name="c5.xlarge", usd_per_hour=Usd.of("0.17"), seconds=900.0, usd=Usd.of("0.0425"))
    return EpochRun(
        header=header(
            run_id="ctr-7f3a9c",
            created="2026-02-01T10:00:00Z",
            kind=Kind.SERVERLESS,
            cloud="sim/lambda",
            strategy="mpc",
            seed=0,
            functions=FunctionFacts(model="logistic", sync="hsp"),
        ),
        problem=FunctionProblem(
            name="ctr",
            functions=(20, 50, 100),
            memory_mb=(512, 1024, 1769),
            samples=100_000,
            batch=100,
            model_bytes=1000,
            target_loss=0.40,
            max_epochs=20,
            goal=Goal(minimize=Objective.TIME, budget=Usd.of(3)),
            prices=function_prices("aws-lambda"),
        ),
        status=Status.DONE,
        steps=tuple(steps),
        verdict=Verdict(stopped="the target loss is reached", instances=(instance,)),
    )


def infeasible_serverless_run() -> EpochRun:
    """Nothing was started."""
    verdict = Verdict(stopped="no fleet's first epoch can be paid", smallest_budget=Usd.of("0.51"))
    return replace(serverless_run(), status=Status.INFEASIBLE, steps=(), verdict=verdict)


def local_serverless_run() -> EpochRun:
    """On functions of this machine, not finished, without a budget."""
    made = serverless_run()
    return replace(
        made,
        header=replace(made.header, cloud="lithops/localhost", simulated=False),
        status=Status.INTERRUPTED,
        steps=made.steps[:2],
        verdict=None,
        problem=replace(made.problem, goal=Goal(minimize=Objective.COST, deadline_seconds=3600.0)),
    )


SERVING: Mapping[str, Callable[[], SearchRun]] = {
    "done": serving_run,
    "nothing-fits": nothing_serves_run,
    "fallen": fallen_run,
}
SERVERLESS: Mapping[str, Callable[[], EpochRun]] = {
    "done": serverless_run,
    "infeasible": infeasible_serverless_run,
    "local": local_serverless_run,
}
