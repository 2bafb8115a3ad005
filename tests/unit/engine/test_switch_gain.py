"""How much a change of nodes or batch must gain while a training runs, to the second."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.synthetic import SyntheticCloud, make_problem, make_run

from mlcd.clouds.provider import JobProgress
from mlcd.clouds.reading import Listening
from mlcd.deciders.account import Accounts
from mlcd.engine.checked import CheckedCloud
from mlcd.engine.performer import Situation
from mlcd.engine.switching import SWITCH_GAIN
from mlcd.engine.training import Training
from mlcd.engine.watch import AttemptWatch
from mlcd.problem import STOP_SECONDS
from mlcd.run.attempt import Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.step import Role, Step
from mlcd.search.strategy import Elastic
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.units import Usd

HERE, THERE = Config.deployment("c5.small", 1), Config.deployment("c5.small", 2)
STARTUP, REST = 10.0, 1000.0


class Saving(SyntheticCloud):
    def reached_samples(self, run_id: str) -> float:
        return 1.0


def switched(seconds_there: float) -> Ending | None:
    """How a training ends whose rest takes REST here, without the start-up that is over, and so long elsewhere."""
    problem, cloud = make_problem(), Saving(simulated=False)
    step = Step(
        number=1,
        round=1,
        role=Role.TRAINING,
        authorisation=Authorisation(choice=HERE, attempt=1, usd=Usd.of(9), seconds=1e6),
        reason="",
        usd_per_hour=problem.price(HERE),
        started_seconds=0.0,
        started_at=0.0,
    )
    run = make_run(problem, cloud, "listed", run_id="run-1")
    situation: Situation[Any] = Situation(run=run, elapsed_seconds=lambda: 0.0, tell=lambda _event: None)
    training = Training(cloud=CheckedCloud(cloud=cloud), step=step, situation=situation, accounts=Accounts())
    watch = AttemptWatch(work=problem.work_samples, seconds_left=math.inf)
    for point in ((STARTUP, 0.0), (20.0, 10.0), (30.0, 20.0), (40.0, 30.0)):
        watch.take(JobProgress(*point))

    def plan(config: Config, seconds: float) -> Plan:
        usd = problem.price(config).for_seconds(seconds)
        return Plan(config=config, seconds=seconds, usd=usd, worst_seconds=seconds, worst_usd=usd)

    plans = (plan(HERE, REST + STARTUP), plan(THERE, seconds_there))
    elastic = cast(Elastic, SimpleNamespace(outlook=lambda *_: plans))
    found = training._switch(elastic, watch, cast(Listening, SimpleNamespace(heard=[])))
    return None if found is None else found[0]


LEAST_GAIN_SECONDS = (1 - SWITCH_GAIN) * REST - STOP_SECONDS
"""The longest that the rest may take elsewhere, start-up there included: stopping here takes time too."""


@pytest.mark.parametrize(
    ("seconds", "ending"), [(LEAST_GAIN_SECONDS - 0.5, Ending.MOVED), (LEAST_GAIN_SECONDS + 0.5, None), (REST, None)]
)
def test_a_change_must_gain_more_than_predictions_are_wrong_and_more_than_it_takes(
    seconds: float, ending: Ending | None
) -> None:
    assert switched(seconds) is ending
