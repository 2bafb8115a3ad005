"""The remaining problem of a training, after its noise, its predicted end and the work already done."""

import math
from collections.abc import Iterable
from dataclasses import replace

from mlcd.models.learning import forecast
from mlcd.models.noise_course import expected_noise
from mlcd.problem import LearnedWork, Problem
from mlcd.space import Value
from mlcd.trial.starts import with_known_start
from mlcd.trial.trial import History
from mlcd.trial.work_done import Trained, WorkDone, work_done


def remaining_problem(problem: Problem, history: History, earlier: Iterable[Trained] = ()) -> Problem:
    """The problem with the work that remains after these trials and attempts, and the noise expected over that work.

    Further trials are planned for as long as these took to start (mlcd.trial.starts).

    While the whole work is unknown, the noise is the one measured last.
    """
    earlier = tuple(earlier)
    problem = with_known_start(problem, history)
    done = work_done(problem, history.trials, earlier)
    if problem.learning:
        return with_learning(problem, history, earlier).with_work_done(done.samples)
    return _estimated(problem, done, done_samples=done.samples).with_work_done(done.samples)


def whole_problem(problem: Problem, history: History, earlier: Iterable[Trained] = ()) -> Problem:
    """The problem with all of its work, as a training without a search would have it.

    The trials and attempts still tell its predicted end, and the noise expected over the whole work.
    """
    earlier = tuple(earlier)
    if problem.learning:
        return with_learning(problem, history, earlier)
    return _estimated(problem, work_done(problem, history.trials, earlier), done_samples=0.0)


def with_learning(problem: Problem, history: History, earlier: Iterable[Trained] = ()) -> Problem:
    """The problem with what its trials say of the work for each combination of the knobs that change learning.

    Trials start from the beginning, so those with the same values lie on one curve, on whatever machines they ran.
    Values of which no end is predicted count for all of the job's samples, where it names them; values that were not
    tried for the geometric mean of those that were.
    """
    if problem.target is None:
        return problem
    points: dict[tuple[Value, ...], list[tuple[float, float]]] = {}
    for step in (*history.measured, *earlier):
        learned = points.setdefault(problem.learning_values(step.config), [])
        learned += [(point.samples, point.metric) for point in step.learned]
    most = problem.work_samples if problem.work_known else None
    found = []
    for values, some in points.items():
        seen = forecast(sorted(some), problem.target)
        if seen is not None and (most is None or seen.samples < most):
            found.append(LearnedWork(values=values, samples=seen.samples, error=seen.error))
        elif most is not None:
            found.append(LearnedWork(values=values, samples=most))
    if not found:
        return problem
    usual = math.exp(sum(math.log(each.samples) for each in found) / len(found))
    return replace(problem, work_samples=usual, work_known=True, learned_work=tuple(found))


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
