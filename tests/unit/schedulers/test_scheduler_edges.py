"""Schedulers where there is nothing to choose from, and one that a plug-in brings."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mlcd.schedulers import registry
from mlcd.schedulers.informed import _Key
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.parts import _other_size

FLEETS: Any = SimpleNamespace(functions=np.array([4.0, 4.0, 8.0]), memory_mb=np.array([512.0, 1024.0, 2048.0]))
ALL = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("usable", "measured_mb", "found"),
    [
        (ALL, [512.0], 1),  # the size that is farthest from the measured one
        (~ALL, [512.0], 0),
        (ALL, [], 0),
        (np.array([False, False, True]), [512.0], 0),
    ],
)
def test_without_another_size_to_try_the_fleet_stays(usable: Any, measured_mb: list[float], found: int) -> None:
    assert _other_size(FLEETS, usable, 0, np.array(measured_mb), 0.1) == found


def test_a_scheduler_of_a_plug_in_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load_class", lambda _group, name, **_: Mpc if name == "theirs" else None)
    assert registry.scheduler_class("theirs") is Mpc


def test_a_problem_as_a_key_equals_only_keys() -> None:
    assert _Key(cast(Any, SimpleNamespace())) != "a problem"
