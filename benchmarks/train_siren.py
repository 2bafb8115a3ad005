"""Trains Siren's policy in the simulator: PPO of stable-baselines3, a Gaussian over (log n, log m).

    scripts/train-siren                       # rewrites the shipped weights and the learning curve
    scripts/train-siren --steps 20000 --to /tmp/policy.npz

Training uses the first 5,000 workloads `wide-N` with an odd SHA-256, and the paper's; the policy that is kept is the
best on validation runs (odd wide-N, N from 20,000 on, and the paper's with other seeds). Benchmarks use other
workloads and seeds.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from mlcd.bench.serverless.environment import ServerlessTraining, plain_seconds
from mlcd.clouds.functions.sim.workloads import PAPER, wide_names, workload
from mlcd.schedulers.siren import WEIGHTS, Policy
from mlcd.schedulers.siren_state import START_ACTION
from mlcd.version import __version__

ROOT = Path(__file__).parents[1]
CURVE = ROOT / "benchmarks" / "results" / "siren-training.json"


def policy_of(model: BaseAlgorithm) -> Policy:
    state = {name: value.detach().numpy().astype(np.float64) for name, value in model.policy.state_dict().items()}
    names = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
    layers = tuple((state[f"{name}.weight"], state[f"{name}.bias"]) for name in names)
    return Policy(layers, state["log_std"])


def save(policy: Policy, path: Path) -> None:
    arrays: dict[str, Any] = {"log_deviation": policy.log_deviation.astype(np.float32)}
    for index, (weight, bias) in enumerate(policy.layers):
        arrays[f"weight{index}"], arrays[f"bias{index}"] = weight.astype(np.float32), bias.astype(np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def validate(policy: Policy, seeds: int) -> dict[str, float]:
    """Mean time relative to a plain fixed fleet's, on the paper's workload and others; a failed training counts 3."""
    env = ServerlessTraining()
    found: dict[str, list[float]] = {"paper": [], "other": []}
    cases = [("paper", PAPER, budget, 50_000 + seed) for budget in (100.0, 200.0, 300.0) for seed in range(seeds)]
    cases += [
        ("other", workload(name), budget, 60_000 + seed)
        for seed, name in enumerate(wide_names(2 * seeds, unseen=False, first=20_000))
        for budget in (100.0, 200.0, 300.0)
    ]
    for kind, made, budget, seed in cases:
        seen, _ = env.reset(seed=0, options={"workload": made, "budget": budget, "cloud_seed": seed})
        ended = False
        info: dict[str, Any] = {}
        while not ended:
            seen, _, ended, _, info = env.step(policy.mean(seen.astype(np.float64)).astype(np.float32))
        found[kind].append(info["seconds"] / plain_seconds(made, budget) if info["done"] else 3.0)
    return {kind: float(np.mean(values)) for kind, values in found.items()}


class Watch(BaseCallback):
    """Validates every few rollouts and keeps the best policy."""

    def __init__(self, *, every: int, seeds: int, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.every, self.seeds, self.rollouts = every, seeds, 0
        self.curve: list[dict[str, float | None]] = []
        self.best: tuple[float, Policy] | None = None
        self.start = time.monotonic()

    def _on_step(self) -> bool:
        return time.monotonic() - self.start < self.seconds

    def _on_rollout_start(self) -> None:
        if self.rollouts % self.every == 0:
            self.look()
        self.rollouts += 1

    def look(self) -> None:
        policy = policy_of(self.model)
        scores = validate(policy, self.seeds)
        episodes = [info["r"] for info in self.model.ep_info_buffer or []]
        self.curve.append(
            {
                "steps": self.num_timesteps,
                **{name: round(value, 4) for name, value in scores.items()},
                "reward": round(float(np.mean(episodes)), 3) if episodes else None,
            }
        )
        score = scores["paper"] + scores["other"]
        if self.best is None or score < self.best[0]:
            self.best = score, policy
        print(f"{time.monotonic() - self.start:6.0f} s {self.curve[-1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--to", type=Path, default=WEIGHTS)
    parser.add_argument("--curve", type=Path, default=None, help="where the learning curve is written")
    parser.add_argument("--sde", action="store_true", help="exploration that depends on the state and lasts")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=18.0, help="training ends then, whatever the steps")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    envs = 16
    makers: list[Callable[[], gymnasium.Env[Any, Any]]] = [lambda: Monitor(ServerlessTraining())] * envs
    vector = SubprocVecEnv(makers, start_method="fork") if arguments.processes > 1 else DummyVecEnv(makers)
    model = PPO(
        "MlpPolicy",
        vector,
        seed=arguments.seed,
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        learning_rate=lambda remaining: 5e-4 * remaining + 2e-5,
        gamma=1.0,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.0,
        vf_coef=0.5,
        use_sde=arguments.sde,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "log_std_init": -2.5 if arguments.sde else -1.6},
        device="cpu",
    )
    with torch.no_grad():
        dict(model.policy.named_parameters())["action_net.bias"].copy_(torch.tensor(START_ACTION))
    watch = Watch(every=8, seeds=8, seconds=60 * arguments.minutes)
    model.learn(arguments.steps, callback=watch)
    watch.look()
    vector.close()
    if watch.best is None:
        raise SystemExit("no policy was validated")
    save(watch.best[1], arguments.to)
    seconds = time.monotonic() - watch.start
    curve = arguments.curve or (CURVE if arguments.to == WEIGHTS else None)
    if curve is not None:
        record = {
            "version": __version__,
            "date": datetime.now(UTC).date().isoformat(),
            "command": " ".join(["scripts/train-siren", *sys.argv[1:]]),
            "method": "PPO (stable-baselines3), Gaussian policy over (log n, log m), MLP 64-64",
            "seconds": round(seconds),
            "columns": "mean time over a plain fixed fleet's: the paper's workload, others; mean reward of episodes",
            "curve": watch.curve,
        }
        curve.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{arguments.to}: {watch.best[0] / 2:.4f} after {seconds:.0f} s")


if __name__ == "__main__":
    main()
