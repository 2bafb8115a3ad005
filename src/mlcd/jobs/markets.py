"""Spot or on demand as part of what is chosen (`use_spot: any`): the space with both, their prices, interruptions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlcd.catalog import Instance
from mlcd.interruptions import DEFAULT_PER_NODE_HOUR, DEFAULT_SAVE_SECONDS, Interruptions
from mlcd.jobs.choice import check_size, listed
from mlcd.problem import Problem
from mlcd.space import MARKET, ON_DEMAND, SPOT, Config, Knob, Space
from mlcd.space.placed import matches
from mlcd.spec import TrainSpec
from mlcd.spec.spot import ANY
from mlcd.units import Usd

FIELD = "resources.use_spot"
WITHOUT_SPOT = ("local", "slurm")
"""Where no node is ever sold on a spot market."""


def with_market(
    spec: TrainSpec, problem: Problem, instances: Sequence[Instance], on_demand: Mapping[str, Usd]
) -> tuple[Problem, tuple[str, ...]]:
    """The problem in which nodes are bought on demand or on the spot market, and notes; unchanged without `any`.

    on_demand  USD per hour of one node, by type

    Raises SpecError where nothing has a spot market.
    """
    spot = {i.name: i.spot_usd_per_hour for i in instances if i.spot_usd_per_hour is not None}
    if spec.resources.use_spot != ANY:
        _check_unused(spec, has_spot=bool(spot))
        return problem, ()
    if not spot:
        words, instead = f"{spec.resources.infra} has no spot market", "false"
        if any(i.cloud for i in instances) and spec.resources.infra.startswith(("sim/", "aws", "gcp", "azure")):
            words = f"no type has a spot market among {listed(i.name for i in instances)}"
            instead = "false, or types that `mlcd catalog --spot` lists"
        raise spec.error(FIELD, words, value=ANY, allowed=instead)
    for field, value in (("batch", spec.batch), ("job.target", spec.job.target)):
        if value is not None:
            said = f"spot or on-demand cannot be chosen together with {field} yet"
            raise spec.error(FIELD, said, value=ANY, allowed=f"true or false, or no {field}")
    check_size(spec, FIELD, 2 * len(problem.space), narrow="num_nodes or resources.instance_type")
    configs: list[Config] = []
    prices: list[Usd] = []
    for config, price in zip(problem.space, problem.usd_per_hour, strict=True):
        configs.append(Config((*config.values, (MARKET, ON_DEMAND))))
        prices.append(price)
        if config.instance in spot:
            configs.append(Config((*config.values, (MARKET, SPOT))))
            prices.append(spot[config.instance] * config.nodes)
    values = (ON_DEMAND, SPOT)
    knob = Knob(name=MARKET, values=values, features=dict.fromkeys(values, ()), same_speed=True)
    known = spec.search.spot
    for glob, _ in known.interruptions_per_hour:
        if glob != "*" and not any(matches(i.name, glob) for i in instances) and "on" not in dict(spec.overrides):
            field = f"search.spot.interruptions_per_hour.{glob}"
            raise spec.error(field, "matches no instance type of the job", allowed=listed(i.name for i in instances))
    given = {name: known.per_hour(name) for name in spot}
    rates = {name: DEFAULT_PER_NODE_HOUR if rate is None else rate for name, rate in given.items()}
    notes = []
    if missing := [name for name, rate in given.items() if rate is None]:
        notes.append(
            f"spot interruptions of {listed(missing)}: assumed {DEFAULT_PER_NODE_HOUR:g} for a node and hour, and"
            " corrected by what this run sees (search.spot.interruptions_per_hour)"
        )
    if only := [i.name for i in instances if i.name not in spot]:
        notes.append(f"only on demand, no spot market: {listed(only)}")
    interruptions = Interruptions(
        per_node_hour=rates,
        save_seconds=known.save_seconds or DEFAULT_SAVE_SECONDS,
        on_demand={i.name: on_demand[i.name] for i in instances},
    )
    space = Space((*problem.space.knobs, knob), tuple(configs))
    return replace(problem, space=space, usd_per_hour=tuple(prices), interruptions=interruptions), tuple(notes)


def _check_unused(spec: TrainSpec, *, has_spot: bool) -> None:
    if spec.resources.only_spot and not has_spot and spec.resources.infra.partition("/")[0] in WITHOUT_SPOT:
        raise spec.error(FIELD, f"{spec.resources.infra} has no spot market", value=True, allowed="false")
    if "search.spot" in spec.places and spec.resources.use_spot is False and "on" not in dict(spec.overrides):
        raise spec.error("search.spot", "says how spot nodes behave, and this job uses none", allowed="use_spot: any")
