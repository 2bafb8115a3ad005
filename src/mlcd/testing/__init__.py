"""Contract tests for strategies, schedulers and clouds, as pytest classes to subclass.

    from mlcd.testing import StrategyContract

    class TestGreedy(StrategyContract):
        @pytest.fixture
        def text(self):
            return "greedy"

mlcd's own tests subclass them too. Needs pytest.
"""

import pytest

pytest.register_assert_rewrite(
    "mlcd.testing.strategies",
    "mlcd.testing.schedulers",
    "mlcd.testing.clouds",
    "mlcd.testing.real_clouds",
    "mlcd.testing.function_clouds",
    "mlcd.testing.hostile",
    "mlcd.testing.hostile_drives",
)

from mlcd.testing.clouds import CloudContract  # noqa: E402 - after their assertions are registered
from mlcd.testing.function_clouds import FunctionCloudContract  # noqa: E402
from mlcd.testing.hostile import HostileCloudContract  # noqa: E402
from mlcd.testing.real_clouds import RealCloudContract  # noqa: E402
from mlcd.testing.schedulers import SchedulerContract  # noqa: E402
from mlcd.testing.strategies import StrategyContract  # noqa: E402

__all__ = [
    "CloudContract",
    "FunctionCloudContract",
    "HostileCloudContract",
    "RealCloudContract",
    "SchedulerContract",
    "StrategyContract",
]
