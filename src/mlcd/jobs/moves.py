"""What bringing the data to the nodes takes at each place of a job."""

from dataclasses import replace

from mlcd.catalog.egress import FREE, EgressPrice, egress_price, known_clouds
from mlcd.catalog.places import cloud_and_region
from mlcd.problem import DataMove, Problem
from mlcd.spec import TrainSpec
from mlcd.spec.data import DataSpec
from mlcd.units import Usd


def with_moves(spec: TrainSpec, problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """The problem with what the data takes at each place, and a note on each. Raises SpecError for unknown prices."""
    data = spec.data
    if data is None:
        return problem, ()
    _check(spec, data)
    places = tuple(dict.fromkeys(problem.places))
    infras = {place: place or _infra(spec) for place in places}
    moves: dict[str, DataMove] = {}
    notes: list[str] = []
    for place, infra in infras.items():
        price = _price(spec, data, infra)
        moves[place] = move = _move(data, price, is_there=_is_there(data, infra))
        notes.append(_note(data, infra, price, move))
    if all(move == DataMove() for move in moves.values()):
        moves = {}
    if moves and problem.interruptions is not None:
        said = "spot or on-demand cannot be chosen yet where data is brought to the nodes: interruptions repeat that"
        raise spec.error("resources.use_spot", said, value=spec.resources.use_spot, allowed="true or false, or no data")
    return replace(problem, moves=moves), tuple(notes)


def ignored_note(spec: TrainSpec, where: str) -> tuple[str, ...]:
    """That `data` is not counted on clouds without regions."""
    return () if spec.data is None else (f"{where} has no regions: bringing the data there is not counted",)


def _check(spec: TrainSpec, data: DataSpec) -> None:
    if data.trial_gb is not None and data.trial_gb > data.gb:
        raise spec.error("data.trial_size", "is more than data.size", allowed="at most data.size")
    if not cloud_and_region(data.location)[1] and data.usd_per_gb is None:
        raise spec.error(
            "data.location",
            f"no egress prices are known for {data.location}",
            value=data.location,
            allowed=f"CLOUD/REGION with {', '.join(known_clouds())}; or give data.egress",
        )


def _infra(spec: TrainSpec) -> str:
    """The one cloud of the job, with its region where that is given apart."""
    infra, region = spec.resources.infra, spec.resources.region
    return f"{infra}/{region}" if region and "/" not in infra else infra


def _is_there(data: DataSpec, infra: str) -> bool:
    return cloud_and_region(data.location) == cloud_and_region(infra)


def _price(spec: TrainSpec, data: DataSpec, infra: str) -> EgressPrice:
    if _is_there(data, infra):
        return FREE
    if data.usd_per_gb is not None:
        return EgressPrice(usd_per_gb=data.usd_per_gb, date="", source="data.egress")
    price = egress_price(data.location, infra)
    if price is None:
        problem = f"no price is known for data that goes from {data.location} to {infra}"
        raise spec.error("data.location", problem, value=data.location, allowed="data.egress, such as 0.12 USD/GB")
    return price


def _move(data: DataSpec, price: EgressPrice, *, is_there: bool) -> DataMove:
    """Each lease has new nodes, which get the data anew."""
    trial_gb = data.gb if data.trial_gb is None else data.trial_gb
    seconds_per_gb = 0.0 if data.gbps is None or is_there else 8 / data.gbps
    return DataMove(
        usd=Usd.of(round(data.gb * price.usd_per_gb, 9)),
        trial_usd=Usd.of(round(trial_gb * price.usd_per_gb, 9)),
        seconds=data.gb * seconds_per_gb,
        trial_seconds=trial_gb * seconds_per_gb,
    )


def _note(data: DataSpec, infra: str, price: EgressPrice, move: DataMove) -> str:
    if _is_there(data, infra):
        return f"{infra}: the data is there"
    given = f"list price of {price.date}" if price.date else "data.egress"
    less = f" and {move.trial_usd} for a trial" if move.trial_usd != move.usd else " or a trial"
    costs = f"costs {move.usd} for a training{less} (${price.usd_per_gb:g}/GB, {given})"
    return f"{infra}: bringing the data from {data.location} {costs}"
