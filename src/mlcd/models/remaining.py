"""The remaining problem of a training, after its noise, its predicted end and the work already done."""

from collections.abc import Iterable

from mlcd.models.learning import forecast
from mlcd.problem import Problem
from mlcd.trial.trial import History
from mlcd.trial.work_done import Trained, work_done


def remaining_problem(
    problem: Problem, history: History, earlier: Iterable[Trained] = (), *, noise_scale: float | None = None
) -> Problem:
    """The problem with the work that remains after these trials and earlier attempts at the training.

    noise_scale  as measured by the training itself, in place of the trials' value
    """
    now = problem.with_noise(noise_scale or history.noise_scale)
    done = work_done(now, history.trials, earlier)
    if now.target is not None:
        seen = forecast(done.learned, now.target)
        if seen is not None:
            now = now.with_work_estimated(seen.samples, seen.error)
    return now.with_work_done(done.samples)
