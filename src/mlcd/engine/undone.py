"""What a job that exited successfully left undone of what its file says."""

from collections.abc import Sequence

from mlcd.clouds.reading import Reading
from mlcd.problem import LEAST_DONE_SHARE
from mlcd.profiler.measure import learned
from mlcd.run.run import SearchRun


def undone_work(run: SearchRun, samples: float, heard: Sequence[Reading], silence: str) -> str:
    """A warning about a missed target or missing samples; empty where the job did what its file says.

    samples  of the attempt that exited
    silence  what a job without a sample wrote instead, where that is known
    """
    target = run.problem.target
    if target is not None:
        points = learned(heard, target.metric)
        if not points or any(target.is_met_by(point.metric) for point in points):
            return ""
        return f"the job ended at {target.metric} {points[-1].metric:g}, before its target of {target.value:g}"
    share = (run.reached_samples + samples) / run.problem.work_samples
    if share >= LEAST_DONE_SHARE:
        return ""
    return f"the job exited successfully after {share:.0%} of the work its file names: {silence or 'check job.samples'}"
