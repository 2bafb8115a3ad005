"""Which steps of a run are parts of its training: they continue from its checkpoint, and what they save is kept."""

from dataclasses import replace

from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step


def keeps_work(run: SearchRun, step: Step) -> bool:
    """Whether the work of `step` is kept, if its job saves it.

    Of a training that runs beside trials, those of a round without a stretch of it: nothing else continues it then.
    Trials of one round all start from the same checkpoint, and the one that gets furthest leaves the next.

    run  the run now, with the other steps of the round
    """
    problem = run.problem
    if step.role is Role.TRAINING or not problem.beside:
        return problem.keeps_work or problem.beside
    return not any(other.role is Role.TRAINING and other.round == step.round for other in run.steps)


def reached_before(run: SearchRun, step: Step) -> float:
    """The training's progress that was saved before the round of `step`; before its attempt's, for a stretch of one."""
    began = step.round
    if step.role is Role.TRAINING:
        attempt = step.authorisation.attempt
        same = (s.round for s in run.steps if s.role is Role.TRAINING and s.authorisation.attempt == attempt)
        began = min(same, default=began)
    return replace(run, steps=tuple(s for s in run.steps if s.round < began)).reached_samples
