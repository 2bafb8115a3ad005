"""The Gymnasium environment: Gymnasium's own checks, the reward by hand, and that no episode overspends."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from mlcd.bench.serverless.environment import ENVIRONMENT, ServerlessTraining, plain_seconds  # noqa: E402
from mlcd.clouds.functions.sim.workloads import PAPER, training_workload  # noqa: E402


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gymnasium.make(ENVIRONMENT).unwrapped, skip_render_check=True)


def test_the_reward_is_the_papers() -> None:
    env = ServerlessTraining(workload=PAPER, budget=300.0)
    env.reset(seed=1)
    total, ended, info = 0.0, False, {"done": False, "seconds": 0.0, "usd": 0.0}
    while not ended:
        _, reward, ended, _, info = env.step(np.array([0.0, 1.0], dtype=np.float32))
        total += reward
    assert info["done"]
    assert total == pytest.approx(10 - 10 * info["seconds"] / plain_seconds(PAPER, 300.0))


@pytest.mark.parametrize("action", [(-1.0, -1.0), (1.0, 1.0), (0.3, -0.5)])
def test_no_episode_overspends(action: tuple[float, float]) -> None:
    env = ServerlessTraining()
    for seed in range(6):
        env.reset(seed=seed, options={"workload": training_workload(seed), "budget": 90.0})
        ended, steps = False, 0
        while not ended:
            seen, reward, ended, _, info = env.step(np.array(action, dtype=np.float32))
            steps += 1
            assert seen in env.observation_space
            assert np.isfinite(reward)
            assert info["usd"] <= 90.0
        assert steps <= 43


def test_the_same_seed_is_the_same_episode() -> None:
    env = ServerlessTraining()
    seen = [env.reset(seed=9)[0].tolist() for _ in range(2)]
    assert seen[0] == seen[1]
