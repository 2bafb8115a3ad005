"""A described transformer whose sizes are wrong: the search costs at most 3 trials more than without a description.

benchmarks/physical_prior.py makes 200 of these jobs and keeps the record.
"""

from importlib import import_module

import pytest

physical_prior = import_module("benchmarks.physical_prior")  # a script, not a module that mypy knows

JOBS = [pytest.param(range(200, 216), id="16"), pytest.param(range(216, 430), id="200", marks=pytest.mark.extra)]
MOST_TRIALS_MORE = 3


@pytest.mark.parametrize("seeds", JOBS)
def test_a_wrong_description_costs_at_most_three_trials_more_than_none(seeds: range) -> None:
    rows = list(physical_prior.compared("auto", seeds))
    found = physical_prior.summary(rows)
    assert found["wrong"]["mean_more_than_none"] <= MOST_TRIALS_MORE
    assert found["wrong"]["mean_more_than_none_or_26"] <= MOST_TRIALS_MORE
    assert found["right"]["out_of_memory"] < found["none"]["out_of_memory"]  # the description is used at all
    assert any(row["wrong"] != row["none"] for row in rows)
    assert found["none"]["within_5_percent"] > 0.5  # a search that finds nothing would cost nothing more


def test_the_wrong_sizes_are_wrong() -> None:
    for seed in range(20):
        _, truth = physical_prior.made_job(seed)
        told = physical_prior.wrong(truth.model, seed)
        for name in ("parameters", "layers", "hidden", "sequence"):
            factor = getattr(told, name) / getattr(truth.model, name)
            assert not 0.6 < factor < 1.8, (seed, name)
