"""The remaining problem of a training, after its noise, its predicted end and the work already done."""

from collections.abc import Iterable

from mlcd.models.learning import forecast
from mlcd.models.noise_course import expected_noise
from mlcd.problem import Problem
from mlcd.trial.trial import History
from mlcd.trial.work_done import Trained, WorkDone, work_done


def remaining_problem(problem: Problem, history: History, earlier: Iterable[Trained] = ()) -> Problem:
    """The problem with the work that remains after these trials and attempts, and the noise expected over that work.

    While the whole work is unknown, the noise is the one measured last.
    """
    done = work_done(problem, history.trials, earlier)
    return _estimated(problem, done, done_samples=done.samples).with_work_done(done.samples)


def whole_problem(problem: Problem, history: History, earlier: Iterable[Trained] = ()) -> Problem:
    """The problem with all of its work, as a training without a search would have it.

    The trials and attempts still tell its predicted end, and the noise expected over the whole work.
    """
    return _estimated(problem, work_done(problem, history.trials, earlier), done_samples=0.0)


def _estimated(problem: Problem, done: WorkDone, *, done_samples: float) -> Problem:
    """The problem with its predicted end, and the noise expected over its work beyond `done_samples`."""
    now = problem
    if now.target is not None:
        seen = forecast(done.learned, now.target)
        if seen is not None:
            now = now.with_work_estimated(seen.samples, seen.error)
    if now.batching is not None and done.noise:
        noise: float | None = done.noise[-1][1]
        if now.work_known:
            noise = expected_noise(
                done.noise,
                reference=now.batching.reference,
                done_samples=done_samples,
                whole_samples=max(now.work_samples, done.samples),
            )
        now = now.with_noise(noise)
    return now
