"""Earlier runs as known jobs: scavenger-universal takes its coefficients from them."""

from contextlib import suppress

from mlcd.models.parallel import Law, fit
from mlcd.models.timed import setting_of, timed
from mlcd.models.universal import KnownJob
from mlcd.problem import Problem
from mlcd.run.run import AnyRun
from mlcd.store.damage import DamagedStore
from mlcd.store.store import Store

FEWEST_MEASUREMENTS = 4
"""Fewest measurements of an earlier run for a model of its step times."""


def known_jobs(store: Store, cloud: str) -> tuple[KnownJob, ...]:
    """Every earlier run on `cloud` that chose a batch and measured enough, the newest first."""
    found = []
    for summary in store.runs():
        if summary.cloud == cloud:
            with suppress(DamagedStore):  # what is known of the others serves as well
                job = known_job(store.load(summary.run_id))
                found += [job] if job is not None else []
    return tuple(found)


def known_job(run: AnyRun) -> KnownJob | None:
    """One run as a known job; None if it chose no batch or measured too little."""
    if not isinstance(run.problem, Problem) or run.problem.batching is None:
        return None
    history = run.history
    instances = [trial.config.instance for trial in history.measured]
    runs = timed(history, max(set(instances), key=instances.count)) if instances else ()
    if len(runs) < FEWEST_MEASUREMENTS:
        return None
    settings = [setting_of(config) for config in run.problem.space]
    return KnownJob(largest_local_batch=max(s.local_batch for s in settings), parallel=fit(runs, Law.OVERLAP))
