"""Every scheduler passes the contract."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from mlcd.functions import Floats
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.registry import SCHEDULERS
from mlcd.schedulers.scheduler import Scheduler
from mlcd.testing import SchedulerContract
from mlcd.testing.schedulers import (
    FIRST_LOSS,
    FLOOR_LOSS,
    LEAST_MEMORY_MB,
    ROUND_SECONDS,
    TARGET_LOSS,
    WORK_SECONDS,
)
from mlcd.trial.epoch import Epoch


class TestMpc(SchedulerContract):
    @pytest.fixture
    def text(self) -> str:
        return "mpc"


class TestSiren(SchedulerContract):
    goals = ("budget", "tight", "hopeless")

    @pytest.fixture
    def text(self) -> str:
        return "siren"


class TestStatic(SchedulerContract):
    @pytest.fixture(params=["static", "static:functions=16,memory=1769"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestStaticN(SchedulerContract):
    @pytest.fixture(params=["static-n", "static-n:functions=16"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


@dataclass(frozen=True)
class MadeTruth:
    """The contract's own world, as the truth that `informed` needs."""

    working_set_mb: float = LEAST_MEMORY_MB

    @property
    def target_epochs(self) -> float:
        return self.progress_at(TARGET_LOSS)

    @property
    def target_deviation(self) -> float:
        return 0.0

    def seconds(self, functions: Floats, memory_mb: float) -> Floats:
        found: Floats = WORK_SECONDS / functions / min(1.0, memory_mb / 1769) + ROUND_SECONDS
        return found

    def waiting_seconds(self, functions: Floats) -> Floats:
        return np.zeros_like(functions)

    def gain(self, functions: Floats, progress: float) -> Floats:
        return np.ones_like(functions)

    def progress(self, history: Sequence[Epoch]) -> float:
        return self.progress_at(history[-1].loss) if history else 0.0

    def progress_at(self, loss: float) -> float:
        return math.log((FIRST_LOSS - FLOOR_LOSS) / (loss - FLOOR_LOSS)) / math.log(1 / 0.75)


class TestInformed(SchedulerContract):
    goals = ("budget", "tight", "hopeless", "both")

    @pytest.fixture
    def text(self) -> str:
        return "informed"

    def make(self, text: str, seed: int = 0) -> Scheduler:
        return Informed(truth=MadeTruth(), seed=seed)


def test_every_scheduler_has_the_contract() -> None:
    classes = [cls for cls in SchedulerContract.__subclasses__() if cls.__module__ == __name__]
    assert {cls.__name__.removeprefix("Test").lower() for cls in classes} == {n.replace("-", "") for n in SCHEDULERS}
