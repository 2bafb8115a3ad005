"""What other models' residuals tell about a new model: where they are slower than their operators, it is too."""

from dataclasses import replace

import numpy as np
from tests.serving_world import world

from mlcd.models.serving.transfer import transfer_belief
from mlcd.search.serving.falcon_transfer import known_points

NAME = "residual-50"


def test_the_residuals_of_the_other_models_shift_the_belief() -> None:
    known = world()
    target = next(model.target for model in known.models if model.name == NAME)
    slow = np.array([config["precision"] == "fp16" and config["batch"] == 1 for config in known.configs])
    others = known.without(NAME)
    slower = replace(
        others,
        models=tuple(
            replace(model, latency_seconds=model.latency_seconds * np.where(slow, 3.0, 1.0)) for model in others.models
        ),
    )
    points = known_points(known.configs)
    before, after = (transfer_belief(tables, target, points).mean for tables in (others, slower))
    rise = after - before
    assert np.median(rise[slow]) - np.median(rise[~slow]) > 0.7 * np.log(3.0)
