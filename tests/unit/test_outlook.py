import pytest

from mlcd.errors import BadInput
from mlcd.goal import Goal, Objective
from mlcd.models.convergence import ConvergenceModel
from mlcd.models.design import corners_and_centre, every_size, most_doubtful, three_batches
from mlcd.models.outlook import Prospect, best, outlook, replan
from mlcd.models.parallel import Law, ParallelModel, Refined, Setting, StepTime, fit
from mlcd.models.pricing import PerNode
from mlcd.units import Usd

GRID = [Setting(workers=k, batch=b) for b in (64, 128, 256, 512) for k in (1, 2, 4)]
CONVERGENCE = ConvergenceModel(floor=1000, critical=300, exponent=1.0)
PRICE = PerNode(usd_per_worker_hour=1.0)


def runs(settings: list[Setting]) -> list[StepTime]:
    return [StepTime(setting=s, seconds=0.1 + 0.01 * s.local_batch + 0.05 * s.workers) for s in settings]


def model() -> ParallelModel:
    return fit(runs(GRID), Law.PARAMETER_SERVER)


def prospects() -> list[Prospect]:
    return outlook(GRID, model(), CONVERGENCE, PRICE)


def test_corners_and_centre_of_a_rectangle() -> None:
    found = [(s.workers, s.batch) for s in corners_and_centre(GRID)]
    assert found == [(1, 64), (4, 64), (1, 512), (4, 512), (2, 128)]


def test_a_small_batch_has_corners_of_its_own() -> None:
    grid = [s for s in GRID if s.local_batch >= 32]
    assert (2, 64) in [(s.workers, s.batch) for s in corners_and_centre(grid)]
    assert (4, 64) not in [(s.workers, s.batch) for s in corners_and_centre(grid)]


def test_a_tiny_grid_gives_fewer_runs_and_an_empty_one_an_error() -> None:
    assert corners_and_centre(GRID[:1]) == (GRID[0],)
    assert len(corners_and_centre(GRID[:2])) == 2
    with pytest.raises(BadInput):
        corners_and_centre([])


def test_the_full_search_times_every_size_at_three_batches() -> None:
    assert three_batches(GRID) == (64, 128, 512)
    assert {(s.workers, s.batch) for s in every_size(GRID)} == {(k, b) for k in (1, 2, 4) for b in (64, 128, 512)}


def test_where_to_look_next_is_what_the_model_knows_least() -> None:
    tried = GRID[:4]
    fitted = fit(runs(tried), Law.PARAMETER_SERVER)
    (chosen,) = most_doubtful(fitted, GRID, tried)
    assert chosen not in tried
    assert fitted.deviation(chosen) == max(fitted.deviation(s) for s in GRID if s not in tried)


def test_time_and_money_are_step_time_times_steps() -> None:
    for p in prospects():
        seconds = model().seconds(p.setting) * CONVERGENCE.steps(p.setting.batch)
        assert p.seconds == pytest.approx(seconds)
        assert p.usd == pytest.approx(seconds / 3600 * p.setting.workers)
        assert p.low_seconds < p.seconds < p.high_seconds
        assert p.high_usd > p.usd
    half = outlook(GRID, Refined(model=model(), runs=()), CONVERGENCE, PRICE, share_left=0.5)
    assert [p.seconds for p in half] == pytest.approx([p.seconds / 2 for p in prospects()])


def test_more_doubt_in_either_model_widens_the_bounds() -> None:
    doubtful = ConvergenceModel(floor=1000, critical=300, exponent=1.0, deviation=0.5)
    narrow, wide = prospects(), outlook(GRID, model(), doubtful, PRICE)
    assert all(w.high_seconds > n.high_seconds for n, w in zip(narrow, wide, strict=True))


def test_goals_choose_the_fastest_the_cheapest_and_what_lies_between() -> None:
    found = prospects()
    fastest, cheapest, knee = (best(found, Goal(minimize=m)) for m in (Objective.TIME, Objective.COST, Objective.KNEE))
    assert fastest is not None
    assert cheapest is not None
    assert knee is not None
    assert fastest.seconds == min(p.seconds for p in found)
    assert cheapest.usd == min(p.usd for p in found)
    assert fastest.seconds <= knee.seconds <= cheapest.seconds


def test_limits_are_kept_by_the_bounds_where_one_wants_to_be_sure() -> None:
    found = prospects()
    cheapest = min(found, key=lambda p: p.usd)
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(round(cheapest.usd * 1.01, 6)))
    chosen = best(found, goal)
    assert chosen is not None
    assert chosen.usd <= cheapest.usd * 1.01
    assert best(found, goal, sure=True) is None
    assert best(found, Goal(minimize=Objective.COST, deadline_seconds=1.0)) is None


def test_a_plan_changes_only_where_it_pays_for_the_restart() -> None:
    found, goal = prospects(), Goal(minimize=Objective.TIME)
    fastest = best(found, goal)
    assert fastest is not None
    slow = max(found, key=lambda p: p.seconds)
    assert replan(found, slow.setting, goal, restart_seconds=60) == fastest
    assert replan(found, fastest.setting, goal, restart_seconds=0) is None
    gain = slow.seconds - fastest.seconds
    assert replan(found, slow.setting, goal, restart_seconds=gain + 1) is None
    elsewhere = Setting(workers=3, batch=96)
    assert replan(found, elsewhere, goal, restart_seconds=60) == fastest
