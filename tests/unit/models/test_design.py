import pytest

from mlcd.errors import BadInput
from mlcd.models.design import corners_and_centre, most_doubtful, three_batches
from mlcd.models.parallel import ClusterSetting, Law, StepTime, fit

GRID = [ClusterSetting(workers=k, batch=b) for b in (64, 128, 256, 512) for k in (1, 2, 4)]


def runs(settings: list[ClusterSetting]) -> list[StepTime]:
    return [StepTime(setting=s, seconds=0.1 + 0.01 * s.local_batch + 0.05 * s.workers) for s in settings]


def test_corners_and_centre_of_a_rectangle() -> None:
    found = [(s.workers, s.batch) for s in corners_and_centre(GRID)]
    assert found == [(1, 64), (4, 64), (1, 512), (4, 512), (2, 128)]


def test_a_small_batch_has_its_own_corners() -> None:
    grid = [s for s in GRID if s.local_batch >= 32]
    assert (2, 64) in [(s.workers, s.batch) for s in corners_and_centre(grid)]
    assert (4, 64) not in [(s.workers, s.batch) for s in corners_and_centre(grid)]


def test_a_tiny_grid_gives_fewer_runs_and_an_empty_one_an_error() -> None:
    assert corners_and_centre(GRID[:1]) == (GRID[0],)
    assert len(corners_and_centre(GRID[:2])) == 2
    with pytest.raises(BadInput):
        corners_and_centre([])


def test_three_batches_are_the_ends_and_the_smaller_middle() -> None:
    assert three_batches(GRID) == (64, 128, 512)


def test_more_runs_go_where_the_model_is_least_certain() -> None:
    tried = GRID[:4]
    fitted = fit(runs(tried), Law.PARAMETER_SERVER)
    (chosen,) = most_doubtful(fitted, GRID, tried)
    assert chosen not in tried
    assert fitted.deviation(chosen) == max(fitted.deviation(s) for s in GRID if s not in tried)
