"""An invalid serverless problem is refused, with the field and the fix."""

from dataclasses import replace
from typing import Any

import pytest

from mlcd.catalog.functions import function_prices
from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective

PROBLEM = FunctionProblem(
    name="ctr",
    functions=(1, 2, 4, 8),
    memory_mb=(512, 1024),
    samples=1000,
    batch=10,
    model_bytes=100,
    target_loss=0.3,
    max_epochs=20,
    goal=Goal(minimize=Objective.TIME),
    prices=function_prices("aws-lambda"),
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"functions": ()}, "functions: must be distinct whole numbers above 0, ascending"),
        ({"functions": (4, 2)}, "functions: must be .* ascending"),
        ({"functions": (0, 2)}, "functions: must be distinct whole numbers above 0"),
        ({"functions": (2000,)}, "some would get none"),
        ({"memory_mb": (64, 512)}, "no functions of 64 MB; allowed: 128 to 10,240 MB"),
        ({"memory_mb": (512, 512)}, "memory: must be distinct"),
        ({"samples": 0}, "workload.samples: must be at least 1"),
        ({"max_epochs": 0}, "workload.max_epochs"),
        ({"target_loss": float("nan")}, "workload.target_loss: must be a finite number"),
        ({"first_loss": 0.2}, "is not below the loss before training, 0.2"),
        ({"goal": Goal(minimize=Objective.KNEE)}, "allowed: time, cost"),
        ({"limit_seconds": 1000.0}, "aws-lambda ends a call after 900 s"),
        ({"repeat_share": 1.5}, "repeat_share"),
        ({"puts_per_function": -1}, "must not be negative"),
        ({"longest_epoch_seconds": 0.0}, "longest_epoch_seconds"),
    ],
)
def test_an_invalid_problem_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(PROBLEM, **change)


def test_repeated_calls_are_rounded_up() -> None:
    problem = replace(PROBLEM, repeat_share=0.1)
    assert [problem.repeats(n) for n in (1, 10, 11)] == [1, 1, 2]
    assert replace(PROBLEM, repeat_share=0.0).repeats(8) == 0


def test_arrays_over_fleets_have_the_problems_shape() -> None:
    assert PROBLEM.shape == (4, 2)
    assert (PROBLEM.functions_array * PROBLEM.memory_array).shape == PROBLEM.shape
    assert PROBLEM.usd_per_second[0, 1] == pytest.approx(1.66667e-5)
