"""A run's trials as seconds per step over (K, B), and plans of the whole training predicted from them."""

import math

from mlcd.models.parallel import ClusterSetting, ParallelModel, Refined, StepTime
from mlcd.problem import Problem
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import History, Measurement
from mlcd.units import ZERO

Steps = ParallelModel | Refined


def setting_of(config: Config) -> ClusterSetting:
    """The workers K and the global batch B of a configuration."""
    return ClusterSetting(workers=config.nodes, batch=float(config["batch"]))


def timed(history: History, instance: str) -> tuple[StepTime, ...]:
    """The measurements of an instance type, as seconds per step."""
    return tuple(
        StepTime(setting=setting_of(t.config), seconds=float(t.config["batch"]) / t.samples_per_second)
        for t in history.measured
        if t.config.instance == instance
    )


def foreseen(problem: Problem, history: History, config: Config, steps: Steps) -> Plan:
    """The plan of a configuration predicted by the model of its step time, with the start-up time of measured ones."""
    setting = setting_of(config)
    startup = [t.startup_seconds for t in history.measured]
    model = steps.model if isinstance(steps, Refined) else steps
    return Plan.of(
        problem,
        Measurement(
            config=config,
            attempt=1,
            samples_per_second=setting.batch / steps.seconds(setting),
            relative_error=math.hypot(model.deviation(setting), problem.noise),
            iterations=1,
            startup_seconds=sum(startup) / len(startup) if startup else 0.0,
            seconds=max(startup, default=0.0),
            usd=ZERO,
        ),
    )
