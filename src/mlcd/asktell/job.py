"""A search for a job, and the strategy of one that was saved."""

from mlcd.asktell.declared import declared_strategy
from mlcd.asktell.state import State
from mlcd.catalog import load_catalog
from mlcd.errors import BadInput, nearest
from mlcd.jobs.resolved_job import offered, replayed
from mlcd.jobs.train import strategy_of
from mlcd.problem import Problem
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.search.registry import strategy as strategy_by_name
from mlcd.search.strategy import Strategy
from mlcd.spec import TrainSpec
from mlcd.version import __version__


def job_strategy(spec: TrainSpec, seed: int) -> Strategy:
    """The job's strategy. Raises BadInput for one that ignores the limits."""
    chosen = strategy_of(spec, seed)
    if not chosen.guarded:
        problem = "ignores the limits, so it cannot be asked"
        raise spec.error("search.strategy", problem, value=spec.search.strategy)
    return chosen


def header_of(name: str, cloud: str, strategy: str, seed: int) -> Header:
    """The header of a search. A search is in no store, so it has no creation time."""
    return Header(
        run_id=name,
        created="",
        kind=Kind.TRAIN,
        cloud=cloud,
        simulated=False,
        strategy=strategy,
        seed=seed,
        version=__version__,
        catalog_date="",
    )


def stored_strategy(state: State) -> Strategy:
    """The strategy of a saved search. Raises BadInput if the strategy no longer exists."""
    header = state.header
    if state.objective is not None:
        return declared_strategy(header.strategy, seed=header.seed, problem=state.problem, objective=state.objective)
    chosen = strategy_by_name(header.strategy, seed=header.seed)
    if not chosen.guarded:
        raise BadInput(f"strategy: {header.strategy} ignores the limits, so it cannot be asked")
    return chosen


def job_problem(spec: TrainSpec) -> Problem:
    """The problem of a job. `aws` and `sim/aws` both mean the catalog of aws; `replay/` is a measured table."""
    catalog = load_catalog()
    infra = spec.resources.infra
    folder = infra.removeprefix("replay/")
    if folder and folder != infra:
        return replayed(spec, folder, catalog).problem
    clouds = [each.removeprefix("sim/") for each in spec.resources.infras]
    for cloud, each in zip(clouds, spec.resources.infras, strict=True):
        if cloud not in catalog.clouds:
            raise spec.error(
                "resources.infra",
                "there is no such cloud in the catalog",
                value=each,
                allowed=", ".join((*catalog.clouds, "replay/FOLDER")),
                nearest=nearest(cloud.lower(), catalog.clouds),
            )
    return offered(spec, clouds, catalog)
