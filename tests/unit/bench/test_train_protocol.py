"""What each setting of `mlcd bench train` changes, by hand."""

from itertools import islice, pairwise
from statistics import fmean, stdev
from typing import Any

import pytest

from mlcd.bench.case import GoalKind, TrainRow
from mlcd.bench.protocol import REPORT_SECONDS, TrainProtocol, Work
from mlcd.bench.train import TrainComparison, run_one
from mlcd.bench.workloads import case_of, sim_workloads, sub_table
from mlcd.clouds.provider import JobProgress, Order, Purpose
from mlcd.clouds.replay import ReplayCloud, ReplayInstance, ReplayWorkload
from mlcd.clouds.wrappers import Resumed
from mlcd.errors import BadInput
from mlcd.profiler.measure import BATCH_MEANS
from mlcd.space import Config
from mlcd.units import Usd

SMALL_1, SMALL_2, LARGE = Config.deployment("small", 1), Config.deployment("small", 2), Config.deployment("large", 1)
WORKLOAD = ReplayWorkload(
    name="job",
    seconds={SMALL_1: 4 * 3600.0, SMALL_2: 3 * 3600.0, LARGE: 3600.0},
    instances={
        "small": ReplayInstance(name="small", usd_per_hour=Usd.of("0.10")),
        "large": ReplayInstance(name="large", usd_per_hour=Usd.of("1.00")),
    },
)
DONE_IN_TRIALS = 600 / 14400 + 600 / 10800 + 600 / 3600
"""The share of the work that ten minutes of each of the three deployments do."""


def made(strategy: str, kind: GoalKind = GoalKind.FASTEST, *, seed: int = 0, **settings: Any) -> TrainRow:
    protocol = TrainProtocol(**{"hours": 1.0, "noise": 0.0, **settings})
    found = run_one(WORKLOAD, protocol, kind=kind, strategy_text=strategy, seed=seed)
    assert found is not None
    return found.row


# ---- the work of trials


def test_work_that_is_kept_is_not_done_again() -> None:
    found = made("exhaustive", work=Work.KEPT)
    assert (found.status, found.probe_seconds) == ("done", 1800.0)
    assert found.train_seconds == pytest.approx(3600 * (1 - DONE_IN_TRIALS))
    assert found.total_seconds == pytest.approx(1800 + 3600 * (1 - DONE_IN_TRIALS))


def test_every_move_costs_its_price() -> None:
    found = made("exhaustive", work=Work.KEPT, restart_seconds=120.0)
    assert found.probe_seconds == 1800.0, "a move is part of its trial"
    done = 600 / 14400 + 480 / 10800 + 480 / 3600  # the first starts the training, the others move it
    assert found.train_seconds == pytest.approx(120 + 3600 * (1 - done))
    assert found.optimum == 3600.0, "the optimum is without it"


def test_work_that_is_thrown_is_done_again() -> None:
    assert made("exhaustive").train_seconds == 3600.0
    assert made("exhaustive", restart_seconds=120.0).train_seconds == 3600.0, "nothing moves"


def test_a_training_beside_its_trials_loses_none_of_their_time() -> None:
    found = made("exhaustive", GoalKind.FASTEST, work=Work.BESIDE, restart_seconds=120.0, seed=0)
    assert (found.status, found.trials) == ("done", 3)
    thrown = made("exhaustive").total_seconds
    assert found.total_seconds is not None
    assert thrown is not None
    assert found.total_seconds < thrown, "the trials after the first cost no time"
    beside = 600 / 14400 + 600 / 14400 + 600 / 10800  # where it ran while the others were tried
    assert found.total_seconds >= 1800 + 3600 * (1 - beside)


def test_the_problem_says_what_becomes_of_the_work() -> None:
    def problem(work: Work) -> tuple[bool, bool, float]:
        truth, _ = case_of(WORKLOAD, TrainProtocol(work=work, restart_seconds=90.0), seed=0)
        return truth.problem.keeps_work, truth.problem.beside, truth.problem.restart_seconds

    assert problem(Work.THROWN) == (False, False, 90.0)
    assert problem(Work.KEPT) == (True, False, 90.0)
    assert problem(Work.BESIDE) == (False, True, 90.0)


def test_work_after_the_authorised_time_is_not_saved() -> None:
    cloud = Resumed(ReplayCloud(WORKLOAD), base_samples=0.25, restart_seconds=0.0)
    for authorised, saved in ((90.0, 90 / 3600), (1e9, 120 / 3600)):
        with cloud.lease(Order(config=LARGE, seconds=authorised)) as lease:
            at = next(point for point in lease.progress() if point.seconds >= 90)
            assert lease.finish(at).reached_samples == pytest.approx(0.25 + saved)


def test_a_job_ends_when_all_of_its_work_is_done() -> None:
    cloud = Resumed(ReplayCloud(WORKLOAD), base_samples=0.975, restart_seconds=0.0, work_samples=1.0)
    with cloud.lease(Order(config=LARGE, seconds=1e9)) as lease:
        *_, last = lease.progress()
        assert [last.seconds, last.samples] == pytest.approx([90.0, 0.025])
        assert lease.finish(last).reached_samples == pytest.approx(1.0)


@pytest.mark.parametrize("work", [Work.KEPT, Work.BESIDE])
def test_a_training_that_a_trial_finishes_needs_no_further_trial(work: Work) -> None:
    found = made("exhaustive", work=work, hours=0.02)
    assert (found.status, found.trials) == ("done", 1)


# ---- limits


def test_the_factors_give_the_limits() -> None:
    found = made("oracle", GoalKind.BOTH, budget_factor=4.0, deadline_factor=3.0)
    assert found.limit_usd == pytest.approx(4 * 0.40)
    assert found.limit_seconds == 3 * 3600.0
    assert (found.budget_factor, found.deadline_factor) == (4.0, 3.0)


def test_the_trial_seconds_are_those_of_the_trials() -> None:
    found = made("oracle", trial_seconds=180.0)
    assert (found.probe_seconds, found.trial_seconds) == (180.0, 180.0)


# ---- sub-spaces


def drawn(seed: int, types: int = 1) -> set[str]:
    return set(sub_table(WORKLOAD, TrainProtocol(types=types), seed=seed).instances)


def test_types_are_drawn_by_the_seed() -> None:
    sets = [drawn(seed) for seed in range(20)]
    assert {"small"} in sets
    assert {"large"} in sets
    assert [drawn(seed) for seed in range(20)] == sets
    assert drawn(0, types=2) == drawn(0, types=9) == {"small", "large"}


def test_a_drawn_sub_space_is_a_workload_of_its_own() -> None:
    seed = next(seed for seed in range(20) if drawn(seed) == {"small"})
    found = made("exhaustive", types=1, seed=seed)
    assert found.trials == 2, "of small only"
    assert found.optimum == 3600.0, "scaled within the sub-space"
    assert (found.types, found.deployments) == (1, 2)


def test_a_sub_space_where_nothing_finished_is_drawn_again() -> None:
    table = ReplayWorkload(
        name="job", seconds={SMALL_1: None, SMALL_2: None, LARGE: 3600.0}, instances=WORKLOAD.instances
    )
    assert {tuple(sub_table(table, TrainProtocol(types=1), seed=seed).instances) for seed in range(9)} == {("large",)}


def test_most_nodes_leaves_larger_deployments_out() -> None:
    assert set(sub_table(WORKLOAD, TrainProtocol(most_nodes=1), seed=0).seconds) == {SMALL_1, LARGE}


def test_a_simulated_job_has_sub_spaces_too() -> None:
    (source,) = sim_workloads("resnet-budgets")
    truth, _ = case_of(source, TrainProtocol(types=2, most_nodes=7), seed=0)
    assert len({config.instance for config in truth.problem.space}) == 2
    assert max(config.nodes for config in truth.problem.space) == 7


# ---- the bound with one trial


def test_the_oracle_pays_for_one_trial_of_the_best() -> None:
    found = made("oracle")
    assert (found.trials, found.total_seconds, found.status) == (1, 4200.0, "done")
    assert made("oracle", work=Work.KEPT).total_seconds == pytest.approx(3600.0)
    assert made("oracle", work=Work.KEPT, restart_seconds=60.0).total_seconds == pytest.approx(3660.0)


def test_the_oracle_keeps_the_limits_with_its_trial() -> None:
    found = made("oracle", GoalKind.BUDGET)
    assert found.optimum == 3 * 3600.0, "2 small cost exactly the budget"
    assert found.total_seconds == 600 + 4 * 3600.0, "with a trial only 1 small fits"
    assert found.status == "done"
    assert made("oracle", GoalKind.BUDGET, budget_factor=1.0).status == "unfinished"


# ---- the comparison


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"work": Work.KEPT}, "work", Work.KEPT),
        ({"restart_seconds": 60.0}, "restart_seconds", 60.0),
        ({"budget_factor": 2.0}, "budget_factor", 2.0),
        ({"deadline_factor": 3.0}, "deadline_factor", 3.0),
        ({"types": 3}, "types", 3),
        ({"noise": 0.1}, "noise", 0.1),
        ({"run_noise": 0.1}, "run_noise", 0.1),
    ],
)
def test_a_comparison_hands_its_settings_to_every_run(change: dict[str, Any], field: str, value: object) -> None:
    comparison = TrainComparison(strategies=("random",), goal=GoalKind.FASTEST, hours=(2.0,), seeds=1, **change)
    assert getattr(comparison.protocol(2.0), field) == value
    assert comparison.protocol(2.0).hours == 2.0


@pytest.mark.parametrize(
    "change",
    [{"hours": 0.0}, {"restart_seconds": -1.0}, {"budget_factor": 0.9}, {"deadline_factor": 0.9}, {"types": 0}],
)
def test_a_protocol_cannot_be_built_wrong(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|fits nothing"):
        TrainProtocol(**change)


def test_kept_work_needs_one_trial_at_a_time() -> None:
    with pytest.raises(BadInput, match="--parallel"):
        TrainComparison(
            strategies=("random",), goal=GoalKind.FASTEST, hours=(2.0,), seeds=1, work=Work.KEPT, parallel=2
        )


# ---- trials that report


def test_a_trial_that_reports_starts_and_ends_when_its_speed_is_known() -> None:
    """2 minutes of start; then the reports that its error needs, which take longer than the least of 90 s."""
    assert made("auto").probe_seconds % 600 == 0
    found = made("auto", report_noise=0.0)
    assert found.probe_seconds == found.trials * (120 + BATCH_MEANS * REPORT_SECONDS)
    assert made("auto:least-trial=1", report_noise=0.0).probe_seconds % 600 == 0, "unless the strategy wants all of it"
    assert found.report_noise == 0.0


def test_the_more_reports_differ_the_longer_a_trial_takes() -> None:
    takes = [made("auto", report_noise=noise) for noise in (0.0, 0.05, 0.3)]
    means = [found.probe_seconds / found.trials for found in takes]
    assert means[0] < means[1] < means[2]
    assert means[2] > 600, "extended"


def test_reports_differ_around_the_measured_speed() -> None:
    """Same seed, same reports; the mean of many is the table's speed, and the training is as without them."""
    protocol = TrainProtocol(hours=1.0, noise=0.0, report_noise=0.05)
    _, cloud = case_of(WORKLOAD, protocol, seed=1)

    def reports() -> list[JobProgress]:
        with cloud.lease(Order(config=LARGE)) as lease:
            return list(islice(lease.progress(), 2001))

    points = reports()
    assert points == reports()
    assert points[0] == JobProgress(120.0, 0.0)
    rates = [(b.samples - a.samples) * 3600 / 15 for a, b in pairwise(points)]
    assert fmean(rates) == pytest.approx(1.0, abs=0.005)
    assert stdev(rates) == pytest.approx(0.05, rel=0.1)
    with cloud.lease(Order(config=LARGE, purpose=Purpose.RUN)) as lease:
        assert next(lease.progress()) == JobProgress(0.0, 0.0)


def test_where_two_runs_differ_more_a_trial_is_known_sooner() -> None:
    def seconds(noise: float) -> float:
        return fmean(
            found.probe_seconds / found.trials
            for seed in range(5)
            for found in [made("auto", seed=seed, noise=noise, report_noise=0.05)]
        )

    assert seconds(0.05) < 0.8 * seconds(0.0)
