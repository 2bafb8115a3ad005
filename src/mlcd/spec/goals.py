"""The goal of a job: what to minimise, under which limits."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from mlcd.goal import Goal, Objective
from mlcd.spec.document import document
from mlcd.spec.mapping import tree
from mlcd.spec.node import YamlNode
from mlcd.spec.quantity import budget, deadline
from mlcd.spec.record import Field, FieldTable

_OBJECTIVES = tuple(str(objective) for objective in Objective)
_MEANT = {
    **dict.fromkeys(("fastest", "speed", "seconds", "duration", "hours"), "time"),
    **dict.fromkeys(("cheapest", "price", "money", "usd", "dollars", "budget"), "cost"),
}


def goal_record(now: datetime | None = None) -> FieldTable[Goal]:
    """The reader of `goal`; a deadline that is a point in time is counted from `now`."""
    return FieldTable(
        make=Goal,
        fields={
            "minimize": Field(read=_objective, required=True, allowed=", ".join(_OBJECTIVES)),
            "deadline": Field(read=deadline(now), into="deadline_seconds"),
            "budget": Field(read=budget),
        },
    )


def parse_goal(goal: Goal | Mapping[str, object] | str, *, now: datetime | None = None) -> Goal:
    """A goal from Python: `{"minimize": "time", "budget": "100 USD"}`, the same as YAML text, or just `"time"`.

    Raises SpecError as for a job file, with fields named below `goal`.
    """
    if isinstance(goal, Goal):
        return goal
    root = document(goal, file="", path="goal") if isinstance(goal, str) else tree(goal, path="goal")
    if isinstance(root.value, str):
        root = replace(root, value={"minimize": replace(root, path="goal.minimize")})
    return goal_record(now)(root)


def _objective(node: YamlNode) -> Objective:
    return Objective(node.choice(_OBJECTIVES, meant=_MEANT))
