"""What a serving search found: the choice, why each other configuration was rejected, and the nearest miss."""

import math

from mlcd.findings.day import day_plan
from mlcd.findings.outlook import untried
from mlcd.findings.receipt import receipt
from mlcd.goal import Goal, Objective
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import RejectedConfig, RejectionReason, ServeFindings, ServingChoice
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.trial.replicas import best_forms, settings_of, with_replicas
from mlcd.trial.trial import Load, Measurement, TokenPoint
from mlcd.units import Usd, latency_text, percent_text, speed_text

REQUESTS_PER_MILLION = 1e6


def serve_findings(run: SearchRun) -> ServeFindings:
    """All that reports say of a served model beyond its steps and verdict."""
    goal = run.problem.goal
    scaled = [trial for trial in best_forms(run.problem, run.history) if run.problem.scales_out and trial.meets(goal)]
    met = {settings_of(trial.config) for trial in scaled}
    choice, paid = chosen(run), receipt(run, run.problem)
    return ServeFindings(
        receipt=paid,
        choice=choice,
        day=None if choice is None else day_plan(run, choice),
        rejected=rejected(run),
        nearest_miss=nearest_miss(run),
        met=tuple(
            step.number
            for step in run.trials
            if isinstance(step.trial, Measurement) and (step.trial.meets(goal) or settings_of(step.trial.config) in met)
        ),
        untried=len(run.problem.space) - len(with_replicas(run.problem, run.history).tried),
        untried_configs=untried(run, run.problem, paid, guarded=True),
    )


def chosen(run: SearchRun) -> ServingChoice | None:
    """The recommendation, verified if the job asks for that; None if there is none."""
    final = run.final
    if final is not None and final.is_done and final.load is not None and final.samples_per_second is not None:
        trial = _measurement(run, final.config)
        rate = final.samples_per_second
        return ServingChoice(
            config=final.config,
            requests_per_second=rate,
            measured_requests_per_second=trial.samples_per_second if trial else rate,
            usd_per_million=_usd_per_million(run, final.config, rate),
            load=final.load,
            verified_seconds=run.serving.verify_seconds if run.serving else final.seconds,
            front=_paces(trial),
        )
    wanted = run.serving is None or run.serving.verify_seconds > 0
    if run.choice is None or (wanted and run.status.is_final):
        return None
    trial = _measurement(run, run.choice.config)
    if trial is None or trial.load is None:
        return None
    return ServingChoice(
        config=trial.config,
        requests_per_second=trial.samples_per_second,
        measured_requests_per_second=trial.samples_per_second,
        usd_per_million=_usd_per_million(run, trial.config, trial.samples_per_second),
        load=trial.load,
        verified_seconds=None,
        front=_paces(trial),
    )


def _paces(trial: Measurement | None) -> tuple[TokenPoint, ...]:
    """Every pace of a load test of a language model."""
    tokens = trial.load.tokens if trial is not None and trial.load is not None else None
    return tokens.front if tokens is not None else ()


def _usd_per_million(run: SearchRun, config: Config, requests_per_second: float) -> Usd:
    """Cost of a million requests at that rate. Throughput above the requested rate counts for nothing."""
    rate = min(requests_per_second, run.problem.goal.rate or math.inf)
    return run.problem.price(config).for_seconds(REQUESTS_PER_MILLION / rate)


def failed_verifications(run: SearchRun) -> tuple[Attempt, ...]:
    """Verifications that failed."""
    return tuple(attempt for attempt in run.earlier if attempt.ending is Ending.MOVED)


def rejected(run: SearchRun) -> tuple[RejectedConfig, ...]:
    """Tried configurations that were not chosen: first those that meet the goal, best first; the failed last."""
    choice = chosen(run)
    best = choice.config if choice else None
    failed = {attempt.config: attempt for attempt in failed_verifications(run)}
    measured = {trial.config: trial for trial in best_forms(run.problem, run.history) if trial.config != best}
    meet = [trial for trial in measured.values() if trial.meets(run.problem.goal)]
    miss = [trial for trial in measured.values() if not trial.meets(run.problem.goal)]
    meet.sort(key=lambda trial: _value(run, trial))
    miss.sort(key=lambda trial: _distance(run.problem.goal, trial))
    found = [_met(run, trial, choice, failed.get(trial.config)) for trial in meet]
    found += [missed(run, trial) for trial in miss]
    answered = {trial.config for trial in run.history.measured}
    failures = {f.config: f for f in run.history.failures if f.config != best and f.config not in answered}
    return (
        *found,
        *(
            RejectedConfig(
                subject=str(f.config),
                config=f.config,
                reason=RejectionReason.FAILED,
                text=f"{f.kind}: {f.message}" if f.message else str(f.kind),
            )
            for f in failures.values()
        ),
    )


def nearest_miss(run: SearchRun) -> RejectedConfig | None:
    """The configuration that misses the goal by least; None if none was measured that misses it."""
    failed = failed_verifications(run)
    if failed:
        nearest = min(failed, key=lambda attempt: attempt.load.p99_seconds if attempt.load else math.inf)
        return RejectedConfig(
            subject=str(nearest.config),
            config=nearest.config,
            reason=RejectionReason.NOT_VERIFIED,
            text=f"in its verification: {nearest.message}",
            load=nearest.load,
        )
    short = [trial for trial in best_forms(run.problem, run.history) if not trial.meets(run.problem.goal)]
    if not short:
        return None
    return missed(run, min(short, key=lambda trial: _distance(run.problem.goal, trial)))


def _measurement(run: SearchRun, config: Config) -> Measurement | None:
    known = with_replicas(run.problem, run.history).measured
    return next((trial for trial in reversed(known) if trial.config == config), None)


def _value(run: SearchRun, trial: Measurement) -> float:
    seconds = REQUESTS_PER_MILLION / min(trial.samples_per_second, run.problem.goal.rate or math.inf)
    return run.problem.goal.value(seconds, run.problem.price(trial.config).for_seconds(seconds).dollars)


def _latency(goal: Goal, load: Load) -> float:
    percentile = goal.slo.percentile if goal.slo else 99
    return {50: load.p50_seconds, 95: load.p95_seconds, 99: load.p99_seconds}[percentile]


def _distance(goal: Goal, trial: Measurement) -> float:
    """Distance from the goal as a factor: latency / limit x requested / measured rate, each at least 1."""
    late = _latency(goal, trial.load) / goal.slo.seconds if goal.slo and trial.load else 1.0
    if trial.load is not None and trial.load.tokens is not None:
        seen = trial.load.tokens.seen
        late = max((seen(limit) / limit.seconds for limit in goal.token_limits), default=late)
    short = goal.rate / trial.samples_per_second if goal.rate else 1.0
    return max(late, 1.0) * max(short, 1.0)


def promised_share(run: SearchRun) -> float:
    """The share of its measured rate that is promised of the choice: prices of the others are at the same share."""
    choice = chosen(run)
    if choice is None or run.problem.goal.rate is not None:
        return 1.0
    return min(choice.requests_per_second / choice.measured_requests_per_second, 1.0)


def _rejected(run: SearchRun, trial: Measurement, reason: RejectionReason, text: str) -> RejectedConfig:
    return RejectedConfig(
        subject=str(trial.config),
        config=trial.config,
        reason=reason,
        text=text,
        samples_per_second=trial.samples_per_second,
        usd_per_million=_usd_per_million(run, trial.config, trial.samples_per_second * promised_share(run)),
        load=trial.load,
    )


def _met(run: SearchRun, trial: Measurement, choice: ServingChoice | None, failed: Attempt | None) -> RejectedConfig:
    if failed is not None:
        return _rejected(run, trial, RejectionReason.NOT_VERIFIED, f"failed its verification: {failed.message}")
    if choice is None:
        return _rejected(run, trial, RejectionReason.NOT_VERIFIED, "not verified: the limits left no room for it")
    best = _measurement(run, choice.config)
    ratio = _value(run, trial) / _value(run, best) if best is not None else 1.0
    if run.problem.goal.minimize is Objective.TIME:
        reason, word = RejectionReason.SLOWER, "fewer requests per second"
        text = f"{percent_text(1 - 1 / ratio)} {word}" if ratio > 1 else ""
    else:
        reason, word = RejectionReason.DEARER, "more expensive"
        text = f"{percent_text(ratio - 1)} {word}" if ratio < 2 else f"{ratio:.1f} times the cost"
    if ratio <= 1:
        return _rejected(
            run, trial, RejectionReason.TIED, "no better than the choice, within the noise between two load tests"
        )
    return _rejected(run, trial, reason, text)


def missed(run: SearchRun, trial: Measurement) -> RejectedConfig:
    """A measured configuration that does not meet the goal, with the limit that it breaks."""
    goal, load = run.problem.goal, trial.load
    if goal.slo is not None and load is not None and not load.meets(goal.slo):
        if load.errors:
            return _rejected(
                run, trial, RejectionReason.BREAKS_SLO, f"{load.errors:,} of {load.requests:,} requests failed"
            )
        seen = _over_text(f"p{goal.slo.percentile}", _latency(goal, load), goal.slo.seconds)
        text = f"{seen}, at {speed_text(trial.samples_per_second)}/s"
        return _rejected(run, trial, RejectionReason.BREAKS_SLO, text)
    broken = [limit for limit in goal.token_limits if load is None or not load.keeps(limit)]
    if broken:
        return _rejected(run, trial, RejectionReason.BREAKS_SLO, _broken_text(trial, broken))
    asked = f"{goal.rate:g}" if goal.rate else "-"
    return _rejected(
        run, trial, RejectionReason.BELOW_RATE, f"held {speed_text(trial.samples_per_second)} of {asked} requests/s"
    )


def _broken_text(trial: Measurement, broken: list[ChatLimit]) -> str:
    load = trial.load
    if load is None or load.tokens is None:
        return "its answers were not measured"
    if load.errors:
        return f"{load.errors:,} of {load.requests:,} requests failed"
    tokens = load.tokens
    over = [_over_text(f"{b.metric} p{b.percentile}", tokens.seen(b), b.seconds) for b in broken]
    return f"{' and '.join(over)}, with {tokens.concurrency:.3g} in flight"


def _over_text(name: str, seconds: float, limit: float) -> str:
    """`p99 104 ms, over the limit of 50 ms`."""
    return f"{name} {latency_text(seconds)}, over the limit of {latency_text(limit)}"
