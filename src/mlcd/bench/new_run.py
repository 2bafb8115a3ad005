"""A benchmark's run before its first step: the product's Run, to be completed by the product's Engine."""

from collections.abc import Iterable
from dataclasses import replace

from mlcd.deciders.decision import P
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import Run, SearchRun
from mlcd.run.step import Role, Step
from mlcd.trial.trial import Trial
from mlcd.version import __version__


def new_run(kind: Kind, problem: P, *, cloud: str, strategy: str, seed: int = 0, parallel: int = 1) -> Run[P]:
    """A run named `bench`, not stored. `cloud` and `strategy` are their names in its header."""
    return Run(
        header=Header(
            run_id="bench",
            created="",
            kind=kind,
            cloud=cloud,
            simulated=True,
            strategy=strategy,
            seed=seed,
            version=__version__,
            catalog_date="",
            parallel=parallel,
        ),
        problem=problem,
    )


def after_trials(run: SearchRun, trials: Iterable[Trial]) -> SearchRun:
    """The run as if it had made these trials one after another, to ask a decider what comes next."""
    steps: list[Step] = []
    elapsed = 0.0
    for number, trial in enumerate(trials, start=1):
        steps.append(
            Step(
                number=number,
                round=number,
                role=Role.TRIAL,
                authorisation=Authorisation(
                    choice=trial.config, attempt=trial.attempt, usd=trial.usd, seconds=trial.seconds
                ),
                reason="",
                usd_per_hour=run.problem.price(trial.config),
                started_seconds=elapsed,
                started_at=0.0,
                outcome=trial,
            )
        )
        elapsed += trial.seconds
    return replace(run, steps=tuple(steps))
