"""A run of a benchmark before its first step: the product's Run, which the product's Engine takes to its end."""

from mlcd.deciders.decision import P
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import Run
from mlcd.version import __version__


def new_run(kind: Kind, problem: P, *, cloud: str, strategy: str, seed: int = 0, parallel: int = 1) -> Run[P]:
    """A run named `bench`; nothing keeps it. `cloud` and `strategy` are what its header says of both."""
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
