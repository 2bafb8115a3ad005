"""CherryPick's expected improvement beside its authors' (harvard-cns/cherrypick, commit 3c0eeab) on a shared case."""

import numpy as np

from mlcd.search.acquisition import expected_saving

LOG_USD = (4.37287915, 4.20845855, 3.93388698, 3.96743469, 4.11145009, 4.18076888)
VARIANCE = (0.02334988, 0.02701508, 0.05213799, 0.08334535, 0.07172457, 0.03660247)
BEST_USD = 52.0
"""A Matern 5/2 process (amplitude 0.25, length 0.4, noise 0.02, mean 4) over three costs: $95 at 0, $52 at 0.35
and $70 at 1; asked at 0.1, 0.2, 0.5, 0.6, 0.8 and 0.9."""
PUBLIC = (0.00013324, 0.00414748, 0.10003487, 0.10725861, 0.04530541, 0.01073985)
"""What `compute_ei` of GPEIChooser.py answers for it: the expected fall of ln cost."""


def test_the_share_saved_ranks_as_the_public_code_and_is_a_little_less_than_its_fall_of_the_logarithm() -> None:
    """1 - exp(-x) <= x: a fall of ln cost by 0.1 saves 9.5%. The wider the posterior, the larger the difference."""
    ours = expected_saving(np.array(LOG_USD), np.array(VARIANCE), BEST_USD) / BEST_USD
    assert list(np.argsort(ours)) == list(np.argsort(PUBLIC))
    ratio = ours / np.array(PUBLIC)
    assert ratio.max() < 1
    assert ratio.min() > 0.84
