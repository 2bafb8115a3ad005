"""The prior of `auto` alone: a fixed order, from which no trial teaches."""

from dataclasses import dataclass, replace
from typing import ClassVar

from mlcd.errors import BadInput
from mlcd.known.tables import Known
from mlcd.problem import Problem
from mlcd.search.serving.auto import ServingAuto
from mlcd.search.serving.ranked import RankedStrategy
from mlcd.search.serving.table_informed import Floats
from mlcd.trial.trial import History


@dataclass(frozen=True, kw_only=True)
class Roofline(RankedStrategy):
    """score(c) = expected worth of c before the first trial; trials only decide which tried configuration is best.

    learns  whether runs of other models correct the roofline. `off`: data sheets and default factors alone, as tools do
            that choose without trials
    """

    name: ClassVar[str] = "roofline"

    learns: bool = True

    def scores(self, problem: Problem, history: History) -> Floats:  # noqa: ARG002
        """What `auto` expects before its first trial. Raises BadInput for data sheets alone where there are none."""
        known = self.tables if self.learns else _without_models(self.tables)
        auto = ServingAuto(known=known, target=self.target)
        if not auto.knows_something(problem):
            raise BadInput(
                "search.strategy: roofline needs a model's operators, or its sizes and the GPUs of every type"
            )
        return auto.outlook(problem, History()).gain

    def reason(self, problem: Problem, history: History) -> str:  # noqa: ARG002
        """Best by the roofline."""
        learnt = f"and runs of {len(self.tables.models)} other models" if self.learns else "alone"
        return f"best by what is known of the model {learnt}, of those not tried yet"


def _without_models(known: Known) -> Known:
    paces = None if known.paces is None else replace(known.paces, models=())
    return replace(known, models=(), paces=paces)
