import math

import numpy as np
import pytest
from scipy.stats import t as student

from mlcd.errors import BadInput
from mlcd.models.parallel import (
    ClusterSetting,
    FitCheck,
    Law,
    Refined,
    StepTime,
    _seconds,
    _slopes,
    check_centre,
    choose,
    fit,
    left_out_error,
)

GRID = [ClusterSetting(workers=k, batch=b) for k in (1, 2, 4, 8, 16) for b in (64, 256, 1024)]
CORNERS = [ClusterSetting(workers=k, batch=b) for k in (1, 16) for b in (64, 1024)]
CENTRE = ClusterSetting(workers=4, batch=256)


def server(setting: ClusterSetting) -> float:
    return 0.05 * setting.pieces + 0.002 * setting.local_batch + 0.01 * setting.workers


def ring(setting: ClusterSetting) -> float:
    latency = 0.001 * setting.workers if setting.workers > 1 else 0.0
    return 0.02 + 0.003 * setting.local_batch + 0.1 * 2 * (setting.workers - 1) / setting.workers + latency


def overlap(setting: ClusterSetting, per_node: int = 4) -> float:
    piece = setting.local_batch / setting.pieces
    compute, k = 0.03 + 0.002 * piece, setting.workers
    exchange = 0.0 if k == 1 else 0.02 if k <= per_node else 0.15 * (1 + 0.01 * (k - 2))
    return float((setting.pieces - 1) * compute + (compute**2 + exchange**2) ** 0.5)


def timed(settings: list[ClusterSetting], truth: object = server, noise: float = 0.0, seed: int = 0) -> list[StepTime]:
    rng = np.random.default_rng(seed)
    assert callable(truth)
    return [StepTime(setting=s, seconds=truth(s) * math.exp(noise * rng.standard_normal())) for s in settings]


def test_four_corners_give_the_parameter_server_law_exactly() -> None:
    model = fit(timed(CORNERS), Law.PARAMETER_SERVER)
    assert model.coefficients == pytest.approx((0.05, 0.002, 0.01), rel=1e-6)
    assert all(model.seconds(s) == pytest.approx(server(s), rel=1e-6) for s in GRID)


def test_the_ring_law_is_recovered() -> None:
    model = fit(timed(GRID, ring), Law.RING)
    assert model.coefficients == pytest.approx((0.02, 0.003, 0.1, 0.001), rel=1e-5)


def test_the_overlap_law_is_recovered_inside_and_across_nodes() -> None:
    model = fit(timed(GRID, overlap), Law.OVERLAP, workers_per_node=4)
    assert max(abs(model.seconds(s) / overlap(s) - 1) for s in GRID) < 0.02


def test_five_runs_are_enough_for_the_overlap_law() -> None:
    model = fit(timed([*CORNERS, CENTRE], overlap), Law.OVERLAP, workers_per_node=4)
    assert np.mean([abs(model.seconds(s) / overlap(s) - 1) for s in GRID]) < 0.1


def test_the_slopes_are_those_of_the_law() -> None:
    settings = [ClusterSetting(workers=k, batch=b, pieces=p) for k in (1, 2, 5, 9) for b in (64, 4096) for p in (1, 3)]
    values = {
        Law.PARAMETER_SERVER: [0.3, 0.002, 0.1],
        Law.RING: [0.3, 0.002, 0.1, 0.01],
        Law.OVERLAP: [-1.2, -6.0, -1.5, -0.7, 0.05, 0.1, 1.7],
    }
    for law, given in values.items():
        at = np.array(given)
        slopes = _slopes(law, at, settings, 4)
        for column in range(len(at)):
            step = 1e-6 * np.eye(len(at))[column]
            above, below = (np.log(_seconds(law, at + sign * step, settings, 4)) for sign in (1, -1))
            assert slopes[:, column] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7), (law, column)


def test_pieces_are_computed_separately_and_exchanged_once() -> None:
    runs = timed([*GRID, ClusterSetting(workers=1, batch=1024, pieces=4)], overlap)
    model = fit(runs, Law.OVERLAP, workers_per_node=4)
    setting = ClusterSetting(workers=8, batch=1024, pieces=4)
    assert model.seconds(setting) == pytest.approx(overlap(setting), rel=0.03)
    assert model.seconds(setting) < 4 * model.seconds(ClusterSetting(workers=8, batch=256))


def test_coefficients_are_never_negative() -> None:
    faster_with_workers = [StepTime(setting=s, seconds=1 / s.workers) for s in CORNERS]
    assert min(fit(faster_with_workers, Law.PARAMETER_SERVER).coefficients) >= 0


def test_a_centre_on_the_plane_fits_and_one_off_it_does_not() -> None:
    corners, (centre,) = timed(CORNERS), timed([CENTRE])
    assert check_centre(corners, centre, Law.PARAMETER_SERVER).fits
    slow = StepTime(setting=CENTRE, seconds=centre.seconds * 1.3)
    check = check_centre(corners, slow, Law.PARAMETER_SERVER)
    assert not check.fits
    assert check.error == pytest.approx(0.3, rel=1e-6)
    assert FitCheck(error=-0.2).fits is False


@pytest.mark.parametrize(("truth", "law"), [(server, Law.PARAMETER_SERVER), (ring, Law.RING)])
def test_the_law_that_made_the_runs_is_chosen(truth: object, law: Law) -> None:
    assert choose(timed(GRID, truth, noise=0.01)).law is law


def test_with_too_few_runs_the_first_law_is_used() -> None:
    assert choose(timed(CORNERS[:3]), [Law.RING, Law.OVERLAP]).law is Law.RING


def test_a_wrong_law_has_a_larger_leave_one_out_error() -> None:
    runs = timed(GRID, overlap, noise=0.01)
    assert left_out_error(runs, Law.OVERLAP, 4) < left_out_error(runs, Law.PARAMETER_SERVER, 4)


@pytest.mark.parametrize("law", [Law.PARAMETER_SERVER, Law.OVERLAP])
def test_deviations_cover_about_ninety_percent_at_their_ninety_percent_bounds(law: Law) -> None:
    truth = server if law is Law.PARAMETER_SERVER else overlap
    held = total = 0
    for seed in range(12):
        model = fit(timed([*CORNERS, CENTRE], truth, noise=0.05, seed=seed), law, workers_per_node=4)
        for run in timed(GRID, truth, noise=0.05, seed=100 + seed):
            reach = float(student.ppf(0.95, model.freedom)) * model.deviation(run.setting)
            held += abs(math.log(run.seconds / model.seconds(run.setting))) <= reach
            total += 1
    assert held / total > 0.85


def test_a_deviation_is_larger_far_from_the_runs_and_smaller_with_more_of_them() -> None:
    few, many = (
        fit(timed(CORNERS, noise=0.02), Law.PARAMETER_SERVER),
        fit(timed(GRID, noise=0.02), Law.PARAMETER_SERVER),
    )
    assert many.deviation(CENTRE) < few.deviation(CENTRE)
    assert few.deviation(ClusterSetting(workers=512, batch=1024)) > few.deviation(CENTRE)


def test_a_refined_law_matches_its_runs_and_keeps_the_effects_of_one_size() -> None:
    runs = timed([s for s in GRID if s.batch != 256], server)
    odd = [StepTime(setting=r.setting, seconds=r.seconds * (1.5 if r.setting.workers == 8 else 1.0)) for r in runs]
    model = fit(odd, Law.PARAMETER_SERVER)
    bent = Refined(model=model, runs=tuple(odd))
    assert all(bent.seconds(r.setting) == pytest.approx(r.seconds) for r in odd)
    between = ClusterSetting(workers=8, batch=256)
    assert abs(bent.seconds(between) / (1.5 * server(between)) - 1) < abs(
        model.seconds(between) / (1.5 * server(between)) - 1
    )
    unseen = ClusterSetting(workers=3, batch=256)
    assert bent.seconds(unseen) == model.seconds(unseen)


@pytest.mark.parametrize(
    "bad", [{"workers": 0, "batch": 8}, {"workers": 8, "batch": 4}, {"workers": 1, "batch": math.nan}]
)
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        ClusterSetting(workers=int(bad["workers"]), batch=bad["batch"])


def test_bad_runs_are_refused() -> None:
    with pytest.raises(BadInput, match="positive"):
        StepTime(setting=CENTRE, seconds=0.0)
    with pytest.raises(BadInput, match="at least 1 piece"):
        ClusterSetting(workers=1, batch=8, pieces=0)
    with pytest.raises(BadInput, match="at least 2 runs"):
        fit(timed([CENTRE]), Law.RING)
    with pytest.raises(BadInput, match="at least 1 worker"):
        fit(timed(CORNERS), Law.RING, workers_per_node=0)
    with pytest.raises(BadInput, match="no law"):
        choose(timed(CORNERS), [])
