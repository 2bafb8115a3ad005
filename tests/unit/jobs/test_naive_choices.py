"""The configurations that a receipt compares with are each named once."""

from mlcd.jobs.resolved_job import naive_choices
from mlcd.testing.made import Machine, make_problem
from mlcd.units import Usd

MACHINES = {"a": Machine(usd_per_hour=1.0, speed=10.0), "b": Machine(usd_per_hour=2.0, speed=8.0)}
PRICES = {name: Usd.of(machine.usd_per_hour) for name, machine in MACHINES.items()}


def labels(*names: str, popular: tuple[str, ...] = ()) -> list[str]:
    space = make_problem(machines={name: MACHINES[name] for name in names}, counts=(1, 2)).space
    return [f"{config}: {label}" for label, config in naive_choices(space, PRICES, popular)]


def test_a_type_is_compared_with_once() -> None:
    assert labels("a", "b") == ["1 x a: the cheapest type", "1 x b: the most expensive type"]
    assert labels("a") == ["1 x a: the only type"]
    assert labels("a", "b", popular=("b",)) == ["1 x b: the most popular type"]
