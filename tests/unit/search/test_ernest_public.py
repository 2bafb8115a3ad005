"""Ernest's fit beside its public code (amplab/ernest, commit 4a7359c) on that code's own example."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mlcd.models.physical_terms import Terms

RCV1 = (
    (32, 0.125, 7.94516801834),
    (4, 0.015625, 4.72029209137),
    (4, 0.021382, 4.87661099434),
    (12, 0.050164, 6.71376490593),
    (12, 0.055921, 6.71519398689),
    (12, 0.061678, 6.6739718914),
    (16, 0.061678, 6.83566999435),
)
"""(machines, share of the input, seconds): examples/rcv1-parsed.csv."""
ASKED = ((4, 0.0625), (8, 0.125), (16, 0.25), (32, 0.5), (64, 1.0))
PUBLIC_SECONDS = (6.63635802, 7.73730006, 8.8382421, 9.93918414, 11.04012618)
"""What `Predictor.predict_all` of predictor.py answers for ASKED after `fit` on RCV1."""


def ernest_columns() -> "NDArray[np.float64]":
    """1, scale / machines, machines, ln machines of RCV1, then of ASKED."""
    machines, scale = np.array([(m, s) for m, s, *_ in (*RCV1, *ASKED)]).T
    return np.stack([np.ones_like(machines), scale / machines, machines, np.log(machines)], axis=1)


def test_predictions_are_near_those_of_the_public_code() -> None:
    """Not equal: the public code minimises absolute errors, this one relative ones."""
    seconds = np.array([seconds for _, _, seconds in RCV1])
    found = Terms(columns=ernest_columns()).fit(np.arange(len(RCV1)), seconds)
    assert found[len(RCV1) :] == pytest.approx(PUBLIC_SECONDS, rel=0.04)


def test_where_the_data_follow_the_law_predictions_are_those_of_the_law() -> None:
    columns = ernest_columns()
    seconds = columns @ np.array([3.0, 120.0, 0.05, 0.4])
    found = Terms(columns=columns).fit(np.arange(len(RCV1)), seconds[: len(RCV1)])
    assert found == pytest.approx(seconds, rel=1e-6)
