"""The plug-in keeps mlcd's contracts. The names are looked up as users do, so the package must be installed."""

import pytest
from mlcd_example.cloud import Lab, LabCloud

from mlcd.interfaces import Cloud, CloudJob, Config
from mlcd.testing import CloudContract, SchedulerContract, StrategyContract


class TestCheapestFirst(StrategyContract):
    @pytest.fixture(params=["cheapest-first", "cheapest-first:patience=1"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestDoubling(SchedulerContract):
    @pytest.fixture(params=["doubling", "doubling:first=16,memory=3008"])
    def text(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestLab(CloudContract):
    cloud_name = "lab"
    good = (Config.deployment("desk", 1), Config.deployment("desk", 8), Config.deployment("rack", 3))

    def make(self, seed: int) -> Cloud:
        return LabCloud(seed=seed)


def test_what_follows_the_slash_is_one_kind_of_machine() -> None:
    offer = Lab().prepare(CloudJob(name="job", where="rack"))
    assert [instance.name for instance in offer.instances] == ["rack"]
