"""What becomes of the work that trials do: `search.work` of a job file."""

from dataclasses import replace

from mlcd.problem import Problem
from mlcd.spec import TrainSpec

RESTART_SECONDS = 180.0
"""The usual time to move a training in a cloud: save, release, start nodes (1 to 2 minutes on AWS), load."""
LOCAL_RESTART_SECONDS = 10.0
"""The same on this machine, where no node starts: a few seconds to save, and those that PyTorch takes to load."""


def with_work(
    spec: TrainSpec,
    problem: Problem,
    *,
    restart_seconds: float,
    simulated: bool,
    has_room: bool = True,
    outlives: bool = False,
) -> Problem:
    """The problem with the job's `search.work`; `restart_seconds` is the default there, where something is restarted.

    By default the best that the job allows: `thrown` without checkpoints, and where knobs change learning; with them
    `beside`, and `kept` where the training's end depends on the trials, there is no room for both, spot is a choice, or
    money is limited and nodes outlive mlcd: the training's could then run on with money that was authorised for trials.

    has_room  whether nodes for a trial and for the training can be had at the same time
    outlives  whether nodes run on when mlcd dies

    Raises SpecError where the job cannot do what it asks for.
    """
    unsafe = outlives and problem.goal.budget is not None
    fixed = problem.batching is None and problem.target is None
    on_one_market = problem.interruptions is None
    allowed = "beside" if fixed and has_room and not unsafe and on_one_market else "kept"
    work = spec.search.work or (allowed if spec.checkpoints and not problem.learning else "thrown")
    if problem.learning and work != "thrown":
        problem_text = f"trials with other learning ({', '.join(problem.learning)}) cannot continue one training"
        raise spec.error("search.work", problem_text, value=work, allowed="thrown, or changes: speed")
    if work != "thrown" and not spec.checkpoints and not simulated:
        problem_text = f"{work} needs a job that saves its work and continues from it"
        raise spec.error("search.work", problem_text, value=work, allowed="thrown, or add checkpoints: true")
    for field, is_open in (("batch", problem.batching is not None), ("job.target", problem.target is not None)):
        if work == "beside" and is_open:
            problem_text = f"the training cannot run beside trials while its end depends on them ({field})"
            raise spec.error("search.work", problem_text, value=work, allowed=f"kept, thrown, or no {field}")
    if work == "beside" and not on_one_market:
        problem_text = "the training cannot run beside trials where spot or on-demand is chosen yet"
        raise spec.error("search.work", problem_text, value=work, allowed="kept or thrown, or use_spot: true or false")
    if work == "beside" and unsafe:
        problem_text = "nodes that outlive mlcd could use money that was authorised for trials beside them"
        raise spec.error("search.work", problem_text, value=work, allowed="kept, thrown, or no budget")
    if work == "thrown" or (work == "kept" and not simulated):
        restart_seconds = 0.0  # nothing is restarted; or what it takes is in the start-up of every trial
    given = spec.search.restart_seconds
    seconds = restart_seconds if given is None else given
    problem = replace(problem, keeps_work=work == "kept", beside=work == "beside", restart_seconds=seconds)
    if problem.interruptions is None:
        return problem
    saves = work == "kept" or (spec.checkpoints and not simulated)
    return replace(problem, interruptions=replace(problem.interruptions, saves=saves))
