"""Trials of a training on nodes: each is measured by the profiler."""

from mlcd.engine.checked import CheckedCloud
from mlcd.engine.performer import INTERRUPTED, Situation, lost_time
from mlcd.engine.watchdog import abandoned
from mlcd.errors import Interrupted
from mlcd.events import Warned
from mlcd.models.remaining import remaining_problem
from mlcd.problem import Problem
from mlcd.profiler.measure import measure
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.kept_work import keeps_work
from mlcd.run.moment import Moment
from mlcd.run.step import Outcome, Role, Step
from mlcd.trial.plan import speed_to_beat
from mlcd.trial.trial import Failure, FailureKind, Trial
from mlcd.units import Usd


def measure_trial(cloud: CheckedCloud, step: Step, situation: Situation[Problem]) -> Trial:
    """Run the job on the step's configuration for a few minutes. Raises Interrupted, ProviderError."""
    run = situation.run
    target, now = run.problem.target, remaining_problem(run.problem, run.history, run.earlier)
    try:
        return measure(
            cloud,
            step.config,
            attempt=step.authorisation.attempt,
            policy=now.trial_at(step.config).within(step.authorised_seconds, step.config.nodes),
            usd_per_hour=step.price,
            moved_usd=run.problem.move_to(step.config).trial_usd,
            run_id=run.run_id,
            metric=target.metric if target else "",
            known_noise=run.history.noise_scale,
            checkpoint_seconds=run.problem.checkpoint_seconds(step.config),
            to_beat=speed_to_beat(now, run.history, step.config),
            continues=keeps_work(situation.now, step),
            cancelled=lambda: situation.stop.is_set() or situation.useless.is_set(),
            warned=lambda text: situation.tell(Warned(text=text)),
            charged=cloud.charged,
        )
    except Interrupted:
        if situation.stop.is_set() or not situation.useless.is_set():
            raise
        return cancelled(step, cloud.passed_seconds(), run.problem.move_to(step.config).trial_usd)


def overdue(step: Step, situation: Situation[Problem], began: Moment, problem: str) -> Outcome:
    """A trial, a training or a verification whose cloud did not return: abandoned, and charged in full."""
    seconds, message = abandoned(step, situation, began, problem)
    move = situation.run.problem.move_to(step.config)
    usd = step.price.for_seconds(seconds)
    if step.role is not Role.TRIAL:
        usd += move.usd
        return Attempt(config=step.config, seconds=seconds, usd=usd, ending=Ending.OVERRAN, message=message)
    return Failure(
        config=step.config,
        attempt=step.authorisation.attempt,
        kind=FailureKind.OVERRAN,
        message=message,
        seconds=seconds,
        usd=usd + move.trial_usd,
    )


def lost_trial(
    step: Step, situation: Situation[Problem], *, interrupted: bool, reached_samples: float = 0.0
) -> Failure:
    """A trial that died with mlcd or was interrupted, charged for the time that passed, at most what was authorised."""
    seconds, assumed = lost_time(step, situation)
    return Failure(
        config=step.config,
        attempt=step.authorisation.attempt,
        kind=FailureKind.STOPPED if interrupted else FailureKind.LOST,
        message=f"{INTERRUPTED if interrupted else 'mlcd ended before the trial did'}{assumed}",
        seconds=seconds,
        usd=step.price.for_seconds(seconds) + situation.run.problem.move_to(step.config).trial_usd,
        reached_samples=reached_samples,
    )


def cancelled(step: Step, seconds: float, moved_usd: Usd) -> Failure:
    """A trial that was ended after `seconds`, because the training beside it ended; its data had been moved."""
    return Failure(
        config=step.config,
        attempt=step.authorisation.attempt,
        kind=FailureKind.CANCELLED,
        message="the training beside it ended first",
        seconds=seconds,
        usd=step.price.for_seconds(seconds) + moved_usd,
    )
