"""What a serving run's record says: the choice, who lost and why, and the nearest miss. No words but the reasons."""

import math
from dataclasses import dataclass
from enum import StrEnum

from mlcd.goal import Goal
from mlcd.report.wording import percent_text, speed_text
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.trial.trial import Load, Measurement
from mlcd.units import Usd

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The configuration that is recommended, with what it holds.

    requests_per_second  what is promised: as verified, else as measured
    verified_seconds     how long the verification took; None where there was none
    """

    config: Config
    requests_per_second: float
    measured_requests_per_second: float
    usd_per_million: Usd
    load: Load
    verified_seconds: float | None


class Lost(StrEnum):
    """Why a configuration is not the choice."""

    LATE = "breaks-slo"
    SHORT = "below-rate"
    FELL = "not-verified"
    DEARER = "dearer"
    SLOWER = "slower"
    EQUAL = "tied"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A tried configuration that was not chosen, and why."""

    config: Config
    kind: Lost
    text: str
    requests_per_second: float | None = None
    usd_per_million: Usd | None = None
    load: Load | None = None


def chosen(record: SearchRun) -> Choice | None:
    """The recommendation: verified where that was wanted; None where there is none."""
    final = record.final
    if final is not None and final.is_done and final.load is not None and final.samples_per_second is not None:
        trial = _measurement(record, final.config)
        rate = final.samples_per_second
        return Choice(
            config=final.config,
            requests_per_second=rate,
            measured_requests_per_second=trial.samples_per_second if trial else rate,
            usd_per_million=usd_per_million(record, final.config, rate),
            load=final.load,
            verified_seconds=record.serving.verify_seconds if record.serving else final.seconds,
        )
    wanted = record.serving is None or record.serving.verify_seconds > 0
    if record.choice is None or (wanted and record.status.is_final):
        return None
    trial = _measurement(record, record.choice.config)
    if trial is None or trial.load is None:
        return None
    return Choice(
        config=trial.config,
        requests_per_second=trial.samples_per_second,
        measured_requests_per_second=trial.samples_per_second,
        usd_per_million=usd_per_million(record, trial.config, trial.samples_per_second),
        load=trial.load,
        verified_seconds=None,
    )


def usd_per_million(record: SearchRun, config: Config, requests_per_second: float) -> Usd:
    """What a million requests cost at that rate; at a rate that was asked for, more than that is worth nothing."""
    rate = min(requests_per_second, record.problem.goal.rate or math.inf)
    return record.problem.price(config).for_seconds(MILLION / rate)


def fallen(record: SearchRun) -> tuple[Attempt, ...]:
    """The verifications that were not held."""
    return tuple(run for run in record.earlier if run.ending is Ending.MOVED)


def untried(record: SearchRun) -> int:
    """How many configurations were never tried."""
    return len(record.problem.space) - len(record.history.tried)


def losers(record: SearchRun) -> tuple[Loser, ...]:
    """All that were tried and not chosen: those that meet the goal first, the best first; the failed last."""
    choice = chosen(record)
    best = choice.config if choice else None
    fell = {run.config: run for run in fallen(record)}
    measured = {trial.config: trial for trial in record.history.measured if trial.config != best}
    meet = [trial for trial in measured.values() if trial.meets(record.problem.goal)]
    miss = [trial for trial in measured.values() if not trial.meets(record.problem.goal)]
    meet.sort(key=lambda trial: _value(record, trial))
    miss.sort(key=lambda trial: _distance(record.problem.goal, trial))
    found = [_met(record, trial, choice, fell.get(trial.config)) for trial in meet]
    found += [_missed(record, trial) for trial in miss]
    failures = {f.config: f for f in record.history.failures if f.config != best and f.config not in measured}
    return (
        *found,
        *(
            Loser(config=f.config, kind=Lost.FAILED, text=f"{f.kind}: {f.message}" if f.message else str(f.kind))
            for f in failures.values()
        ),
    )


def nearest_miss(record: SearchRun) -> Loser | None:
    """Of those that do not meet the goal the one that comes nearest; None where nothing was measured."""
    fell = fallen(record)
    if fell:
        run = min(fell, key=lambda run: run.load.p99_seconds if run.load else math.inf)
        return Loser(config=run.config, kind=Lost.FELL, text=f"in its verification: {run.message}", load=run.load)
    missed = [trial for trial in record.history.measured if not trial.meets(record.problem.goal)]
    if not missed:
        return None
    return _missed(record, min(missed, key=lambda trial: _distance(record.problem.goal, trial)))


def _measurement(record: SearchRun, config: Config) -> Measurement | None:
    return next((trial for trial in reversed(record.history.measured) if trial.config == config), None)


def _value(record: SearchRun, trial: Measurement) -> float:
    seconds = MILLION / min(trial.samples_per_second, record.problem.goal.rate or math.inf)
    return record.problem.goal.value(seconds, record.problem.price(trial.config).for_seconds(seconds).dollars)


def _latency(goal: Goal, load: Load) -> float:
    percentile = goal.slo.percentile if goal.slo else 99
    return {50: load.p50_seconds, 95: load.p95_seconds, 99: load.p99_seconds}[percentile]


def _distance(goal: Goal, trial: Measurement) -> float:
    """How far it is from the goal, as a factor: the latency over its limit, or the rate over what it held."""
    late = _latency(goal, trial.load) / goal.slo.seconds if goal.slo and trial.load else 1.0
    short = goal.rate / trial.samples_per_second if goal.rate else 1.0
    return max(late, 1.0) * max(short, 1.0)


def _loser(record: SearchRun, trial: Measurement, kind: Lost, text: str) -> Loser:
    return Loser(
        config=trial.config,
        kind=kind,
        text=text,
        requests_per_second=trial.samples_per_second,
        usd_per_million=usd_per_million(record, trial.config, trial.samples_per_second),
        load=trial.load,
    )


def _met(record: SearchRun, trial: Measurement, choice: Choice | None, fell: Attempt | None) -> Loser:
    if fell is not None:
        return _loser(record, trial, Lost.FELL, f"did not hold in its verification: {fell.message}")
    if choice is None:
        return _loser(record, trial, Lost.FELL, "not verified: no room was left for it")
    best = _measurement(record, choice.config)
    ratio = _value(record, trial) / _value(record, best) if best is not None else 1.0
    if str(record.problem.goal.minimize) == "time":
        kind, word = Lost.SLOWER, "fewer requests a second"
        text = f"{percent_text(1 - 1 / ratio)} {word}" if ratio > 1 else ""
    else:
        kind, word = Lost.DEARER, "dearer"
        text = f"{percent_text(ratio - 1)} {word}" if ratio < 2 else f"{ratio:.1f} times as dear"
    if ratio <= 1:
        return _loser(record, trial, Lost.EQUAL, "no better than the choice, within what two load tests differ by")
    return _loser(record, trial, kind, text)


def _missed(record: SearchRun, trial: Measurement) -> Loser:
    goal, load = record.problem.goal, trial.load
    if goal.slo is not None and load is not None and not load.meets(goal.slo):
        if load.errors:
            return _loser(record, trial, Lost.LATE, f"{load.errors:,} of {load.requests:,} requests failed")
        over = _latency(goal, load) - goal.slo.seconds
        text = f"p{goal.slo.percentile} {over * 1000:.3g} ms over the limit at {speed_text(trial.samples_per_second)}/s"
        return _loser(record, trial, Lost.LATE, text)
    asked = f"{goal.rate:g}" if goal.rate else "-"
    return _loser(record, trial, Lost.SHORT, f"held {speed_text(trial.samples_per_second)} of {asked} requests/s")
