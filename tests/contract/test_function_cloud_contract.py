"""Every cloud of functions passes the same contract suite."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.lithops.call import Sync
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import TESTBED
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.testing import FunctionCloudContract
from mlcd.testing.function_clouds import Make
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd
from mlcd.workloads.data import Samples, shuffled
from mlcd.workloads.made import clicks


class TestSim(FunctionCloudContract):
    cloud_name = "sim/lambda"
    good = (Fleet(50, 1024), Fleet(80, 2048), Fleet(20, 1536))
    broken = Fleet(50, 256)

    @pytest.fixture
    def problem(self) -> FunctionProblem:
        goal = Goal(minimize=Objective.TIME, budget=Usd.of(50))
        return TESTBED["lenet-mnist"].problem(goal, memory_mb=(256, 1024, 1536, 2048))

    @pytest.fixture
    def connect(self, problem: FunctionProblem) -> Make:
        return lambda seed: SimFunctionCloud(problem=problem, laws=TESTBED["lenet-mnist"].laws, seed=seed)


@pytest.mark.skipif(find_spec("lithops") is None, reason="Lithops is missing; pip install 'mlcd[lithops]'")
class TestLithopsLocalhost(FunctionCloudContract):
    cloud_name = "lithops/localhost"
    good = (Fleet(3, 1769), Fleet(2, 1024))
    short_seconds = 0.05
    ending_seconds = 60.0

    @pytest.fixture
    def samples(self) -> Samples:
        return shuffled(*clicks(rows=1000))

    @pytest.fixture
    def problem(self, samples: Samples) -> FunctionProblem:
        return FunctionProblem(
            name="contract",
            functions=(1, 2, 3, 4),
            memory_mb=(1024, 1769),
            samples=samples.train_rows,
            batch=128,
            model_bytes=4,
            target_loss=0.1,
            max_epochs=9,
            goal=Goal(minimize=Objective.TIME, budget=Usd.of(3)),
            prices=function_prices(),
            puts_per_function=500,
            gets_per_function=500,
            repeat_share=0.5,
            longest_epoch_seconds=300.0,
        )

    @pytest.fixture
    def connect(
        self, problem: FunctionProblem, samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Make:
        from mlcd.clouds.functions.lithops.cloud import FunctionWorkload, LithopsCloud

        monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")

        def made(seed: int) -> LithopsCloud:
            workload = FunctionWorkload(model="logistic", samples=samples, rate=1.0, sync=Sync.HSP, pushes=4, seed=seed)
            return LithopsCloud(backend="localhost", problem=problem, workload=workload, folder=tmp_path / "home")

        return made
