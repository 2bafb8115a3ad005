"""Training on functions as a Gymnasium environment, `mlcd/ServerlessTraining-v0`: used to train Siren's policy.

    import gymnasium, mlcd.bench.serverless.environment
    env = gymnasium.make("mlcd/ServerlessTraining-v0")

One episode is one simulated run of `mlcd serverless`, one step one epoch: the agent takes the scheduler's place, and
EpochDecider authorises its requests. So an episode ends where the run would, and never overspends.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mlcd.bench.new_run import new_run
from mlcd.catalog.functions import function_prices
from mlcd.clouds.functions.sim import SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import PAPER, SimWorkload, wide_names, workload
from mlcd.deciders.decision import End
from mlcd.deciders.epochs import EpochDecider, epoch_ledger
from mlcd.engine import Engine
from mlcd.engine.epochs import EpochPerformer
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.run.kind import Kind
from mlcd.schedulers.planning import spread_over
from mlcd.schedulers.siren_state import FEATURES, SirenState, choose, observe
from mlcd.trial.epoch import Epoch, Fleet, RemainingEpochs
from mlcd.trial.outcome import Status
from mlcd.units import Usd

ENVIRONMENT = "mlcd/ServerlessTraining-v0"
COUNTS, SIZES = 200, 10
"""Numbers of functions and memory sizes in an episode: a sample of the 138,000 that keeps a step short."""


@dataclass(slots=True)
class _Agent:
    """The scheduler of an episode: it returns the last action's fleet. `asked`: whether the decider asked."""

    name: ClassVar[str] = "agent"
    fleet: Fleet | None = None
    asked: bool = False

    def decide(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> Fleet | None:  # noqa: ARG002
        self.asked = True
        return self.fleet

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:  # noqa: ARG002
        return "the remaining budget pays for no fleet of this action"

    def smallest_budget(
        self,
        problem: FunctionProblem,  # noqa: ARG002
        history: tuple[Epoch, ...],  # noqa: ARG002
        remaining: RemainingEpochs,  # noqa: ARG002
    ) -> Usd | None:
        return None


class ServerlessTraining(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Observation: the paper's state, scale-free (mlcd.schedulers.siren_state). Action: (log n, log m), relative.

    Reward, as the paper's: r_t = -beta P_t; at the end also +C at the target, -C otherwise, with beta = 10 over the
    time of a plain fixed fleet and C = 10.
    workload  of all episodes; without it, drawn for each: the paper's in 1 of 10, else a wide one that is not unseen
    budget    in US dollars; without it, drawn between 1.45 and 6 times the cost of the cheapest training
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, *, workload: SimWorkload | None = None, budget: float | None = None) -> None:
        self.fixed_workload, self.fixed_budget = workload, budget
        self.observation_space = spaces.Box(-5.0, 5.0, (FEATURES,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._agent: _Agent
        self._engine: Engine[FunctionProblem]
        self._left: RemainingEpochs
        self._state: SirenState
        self._beta = 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new training. `options` may have {"workload": ..., "budget": ..., "cloud_seed": ...}."""
        super().reset(seed=seed)
        given = options or {}
        workload = given.get("workload", self.fixed_workload) or self._draw_workload()
        budget = given.get("budget", self.fixed_budget)
        if budget is None:
            budget = workload.cheapest_usd() * math.exp(self.np_random.uniform(math.log(1.45), math.log(6.0)))
        goal = Goal(minimize=Objective.TIME, budget=Usd.of(round(float(budget), 6)))
        functions, memory_mb = _choice(workload.max_functions, workload.prices)
        problem = workload.problem(goal, functions=functions, memory_mb=memory_mb)
        cloud_seed = given.get("cloud_seed", int(self.np_random.integers(2**31)) + 2**32)
        cloud = SimFunctionCloud(problem=problem, laws=workload.laws, seed=cloud_seed)
        self._agent = _Agent()
        self._engine = Engine(
            run=new_run(Kind.SERVERLESS, problem, cloud=cloud.name, strategy=_Agent.name),
            decider=EpochDecider(scheduler=self._agent),
            performer=EpochPerformer(cloud=cloud),
        )
        self._beta = 10 / plain_seconds(workload, float(budget))
        return self._observe(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Run one epoch, or a part of one, with the action's fleet."""
        engine, agent = self._engine, self._agent
        problem, before = engine.run.problem, engine.run.step_seconds
        agent.fleet = choose(problem, self._left, self._state, np.asarray(action, dtype=np.float64))
        engine.advance()
        end = self._end()
        ended, done = end is not None, end is Status.DONE
        seconds = engine.run.step_seconds - before
        reward = -self._beta * seconds + (10.0 if done else -10.0 if ended else 0.0)
        info = {"done": done, "seconds": engine.run.step_seconds, "usd": engine.run.spent.dollars}
        return self._observe(), reward, ended, False, info

    def _end(self) -> Status | None:
        """How the run ended; None where it needs another action."""
        run, agent = self._engine.run, self._agent
        if run.status.is_final:
            return run.status
        agent.fleet, agent.asked = None, False
        decision = self._engine.decider.next(run, run.step_seconds)
        return decision.status if isinstance(decision, End) and not agent.asked else None

    def _draw_workload(self) -> SimWorkload:
        if self.np_random.random() < 0.1:
            return PAPER
        return workload(str(self.np_random.choice(_training_names())))

    def _observe(self) -> NDArray[np.float32]:
        run = self._engine.run
        self._left = epoch_ledger(run, run.step_seconds).remaining()
        self._state = observe(run.problem, run.epochs, self._left)
        return self._state.features.astype(np.float32)


TRAINING_COUNT = 5000
"""Workloads that episodes are drawn from: the first odd wide-N."""


@cache
def _training_names() -> tuple[str, ...]:
    return wide_names(TRAINING_COUNT, unseen=False)


@cache
def _choice(max_functions: int, prices: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    functions, sizes = tuple(range(1, max_functions + 1)), function_prices(prices).memory_sizes
    counts, memory = spread_over(functions, COUNTS), spread_over(sizes, SIZES)
    return tuple(functions[i] for i in counts), tuple(sizes[i] for i in memory)


def plain_seconds(workload: SimWorkload, budget: float) -> float:
    """Time of a fixed fleet with the largest memory that spends the budget on average: the reward's unit of time."""
    laws, prices = workload.laws, function_prices(workload.prices)
    memory = prices.memory_sizes[-1]
    price = float(prices.usd_per_second(memory))
    epochs = laws.epochs(400)
    each = laws.update_seconds(400.0, memory)
    spare = budget / epochs - price * laws.parallel_seconds(1.0, memory)
    wanted = spare / (price * each + float(prices.usd_per_put) * laws.rounds)
    functions = min(max(wanted, 10.0), float(workload.max_functions))
    return epochs * laws.seconds(functions, memory)


gymnasium.register(id=ENVIRONMENT, entry_point=f"{__name__}:ServerlessTraining")
