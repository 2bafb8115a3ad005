"""Parts of epochs: what they cost and gain, how they are counted, and when they are chosen."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from mlcd.bench.serverless.compare import LawsOfRun
from mlcd.bench.serverless.training import train as train_on
from mlcd.clouds.functions.provider import EpochOrder
from mlcd.clouds.functions.sim import NO_DEVIATION, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import LOCALHOST, PAPER, SimWorkload, training_workload
from mlcd.codec import from_json, to_json
from mlcd.epoch_ledger import EpochLedger
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.models.epochs import fit_epochs
from mlcd.run.authorisation import Refusal
from mlcd.run.run import EpochRun
from mlcd.schedulers.epoch_forecast import EpochForecast
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.scheduler import Scheduler
from mlcd.schedulers.siren import Siren
from mlcd.trial.epoch import Epoch, Fleet
from mlcd.trial.epoch_0_1 import epoch_from_0_1
from mlcd.trial.outcome import Status
from mlcd.units import Usd

PAPER_WITHOUT_DEVIATION = replace(PAPER, laws=replace(PAPER.laws, chance=NO_DEVIATION))


def problem_of(usd: float, made: SimWorkload = PAPER) -> FunctionProblem:
    return made.problem(Goal(minimize=Objective.TIME, budget=Usd.of(usd)))


def fleets(run: EpochRun) -> tuple[Fleet, ...]:
    return tuple(epoch.fleet for epoch in run.epochs)


def train(decides: Scheduler, problem: FunctionProblem, made: SimWorkload = PAPER, *, seed: int = 0) -> EpochRun:
    return train_on(problem, SimFunctionCloud(problem=problem, laws=made.laws, seed=seed), decides)


def epochs_of(made: SimWorkload, fleets: tuple[Fleet, ...], *, seed: int = 0) -> list[Epoch]:
    cloud = SimFunctionCloud(problem=problem_of(1000, made), laws=made.laws, seed=seed)
    return [
        cloud.run_epoch(EpochOrder(number=number, fleet=fleet, seconds=1e9, usd=Usd.of(1e6)))
        for number, fleet in enumerate(fleets, 1)
    ]


@pytest.mark.parametrize("share", [0.0, 0.009, 1.01, -0.5, math.nan])
def test_a_part_is_between_a_hundredth_of_an_epoch_and_an_epoch(share: float) -> None:
    with pytest.raises(ValueError, match="between 1% and 100%"):
        Fleet(4, 512, share)


def test_a_fleet_shows_its_part() -> None:
    assert str(Fleet(4, 1769)) == "4 x 1,769 MB"
    assert str(Fleet(4, 1769, 0.25)) == "4 x 1,769 MB for 25% of the samples"


def test_a_part_costs_and_takes_its_share() -> None:
    (whole,) = epochs_of(PAPER_WITHOUT_DEVIATION, (Fleet(200, 3008),))
    (part,) = epochs_of(PAPER_WITHOUT_DEVIATION, (Fleet(200, 3008, 0.25),))
    assert part.seconds == pytest.approx(whole.seconds / 4)
    assert part.usd.dollars == pytest.approx(whole.usd.dollars / 4, rel=0.01)
    assert part.compute.mean_seconds == pytest.approx(whole.compute.mean_seconds / 4)
    gained = PAPER_WITHOUT_DEVIATION.laws.progress(part.loss)
    assert gained == pytest.approx(PAPER_WITHOUT_DEVIATION.laws.progress(whole.loss) / 4)


def test_starting_functions_takes_as_long_for_a_part() -> None:
    made = replace(LOCALHOST, laws=replace(LOCALHOST.laws, chance=NO_DEVIATION))
    (whole,) = epochs_of(made, (Fleet(8, 1769),))
    (part,) = epochs_of(made, (Fleet(8, 1769, 0.1),))
    assert part.seconds > made.laws.waiting_seconds(8)
    assert part.seconds < whole.seconds


def test_noise_averages_out_over_parts_as_over_an_epoch() -> None:
    made = replace(PAPER, laws=replace(PAPER.laws, early_gain=0.0, staleness=0.0))
    parts, wholes = [], []
    for seed in range(60):
        ten = epochs_of(made, (Fleet(200, 3008, 0.1),) * 10, seed=seed)
        parts.append(made.laws.progress(ten[-1].loss))
        wholes.append(made.laws.progress(epochs_of(made, (Fleet(200, 3008),), seed=seed)[0].loss))
    assert np.mean(parts) == pytest.approx(1, abs=0.01)
    assert 0.5 < np.std(parts) / np.std(wholes) < 2


def test_parts_count_by_their_share_against_max_epochs() -> None:
    problem = replace(problem_of(1000), max_epochs=1)
    tenths = tuple(epochs_of(PAPER, (Fleet(100, 3008, 0.1),) * 10))
    nine = EpochLedger(problem=problem, epochs=tenths[:9])
    assert nine.remaining().epochs == pytest.approx(0.1)
    assert not isinstance(nine.authorise(Fleet(100, 3008, 0.09)), Refusal)
    assert isinstance(nine.authorise(Fleet(100, 3008)), Refusal)
    ten = EpochLedger(problem=problem, epochs=tenths)
    assert ten.remaining().epochs == 0
    assert isinstance(ten.authorise(Fleet(100, 3008, 0.1)), Refusal)
    assert not ten.remaining().allowed.any()


@pytest.mark.parametrize("decides", [Mpc(), Siren()])
def test_no_more_than_max_epochs_are_run(decides: Scheduler) -> None:
    problem = replace(problem_of(300), max_epochs=2)
    episode = train(decides, problem, seed=63)
    assert episode.status is not Status.DONE
    assert sum(fleet.share for fleet in fleets(episode)) <= 2 + 1e-9


def test_too_few_epochs_end_it_early_and_no_budget_is_suggested() -> None:
    problem = replace(problem_of(300), max_epochs=5)
    episode = train(Mpc(), problem, seed=64)
    assert episode.status is not Status.DONE
    assert sum(fleet.share for fleet in fleets(episode)) < 4
    assert "max_epochs allows" in episode.stopped
    assert episode.smallest_budget is None


def test_a_deadline_that_is_too_short_is_named() -> None:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(300), deadline_seconds=400.0)
    problem = PAPER.problem(goal)
    episode = train(Mpc(), problem, seed=65)
    assert episode.status is not Status.DONE
    assert episode.step_seconds <= 400
    assert "remains until the deadline" in episode.stopped


def test_the_fit_reads_parts_as_the_epochs_that_they_are_of() -> None:
    problem = problem_of(1000, PAPER_WITHOUT_DEVIATION)
    fleets = (Fleet(100, 3008, 0.1), Fleet(100, 3008, 0.4), Fleet(100, 3008, 0.5), Fleet(100, 3008))
    model = fit_epochs(
        epochs_of(PAPER_WITHOUT_DEVIATION, fleets),
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )
    predicted = model.seconds(np.array([100.0]), np.array([3008.0]))[0]
    assert predicted == pytest.approx(PAPER_WITHOUT_DEVIATION.laws.seconds(100, 3008), rel=0.02)
    assert 2 < model.done < 2.6


@pytest.mark.parametrize("budget", [100.0, 300.0])
def test_mpc_opens_with_a_hundredth_and_ends_near_the_target(budget: float) -> None:
    made = training_workload(40_000)
    episode = train(Mpc(), problem_of(budget, made), made, seed=61)
    assert episode.status is Status.DONE, episode.stopped
    shares = [fleet.share for fleet in fleets(episode)]
    assert shares[0] == 0.01
    assert all(later >= earlier for earlier, later in itertools.pairwise(shares[:5])), "parts grow"
    assert 1.0 in shares
    past = made.laws.progress(episode.epochs[-1].loss) - made.laws.target_epochs
    assert past < 0.25, "far from a whole epoch"


def test_mpc_runs_whole_epochs_where_starting_functions_takes_longest() -> None:
    problem = problem_of(3, LOCALHOST)
    episode = train(Mpc(), problem, LOCALHOST, seed=62)
    assert episode.status is Status.DONE, episode.stopped
    assert {fleet.share for fleet in fleets(episode)[1:-1]} <= {1.0}
    assert fleets(episode)[0].share >= 8 * problem.batch / problem.samples


def test_a_target_that_is_just_missed_costs_a_small_part_not_an_epoch() -> None:
    problem = problem_of(300)
    done = epochs_of(PAPER, (Fleet(300, 3008),) * 9)
    near = replace(done[-1], loss=problem.target_loss * 1.0004)
    history = (*done[:-1], near)
    fleet = Mpc().decide(problem, history, EpochLedger(problem=problem, epochs=history).remaining())
    assert fleet is not None
    assert fleet.share < 0.2


def test_money_for_a_small_part_is_not_the_end() -> None:
    problem = problem_of(300)
    done = tuple(epochs_of(PAPER, (Fleet(300, 3008),) * 9))
    near = (*done[:-1], replace(done[-1], loss=problem.target_loss * 1.0004, usd=Usd.of(1)))
    spent = sum(e.usd.dollars for e in near[:-1])
    poor = replace(problem, goal=replace(problem.goal, budget=Usd.of(round(spent + 4.0, 2))))
    remaining = EpochLedger(problem=poor, epochs=near).remaining()
    assert EpochForecast.of(poor, near, remaining).is_hopeless(near, remaining), "no whole epoch can be paid"
    fleet = Mpc().decide(poor, near, remaining)
    assert fleet is not None
    assert fleet.share < 0.2


def test_the_informed_scheduler_is_faster_because_it_cuts_its_last_epoch() -> None:
    problem = problem_of(150)
    truth = LawsOfRun.of(SimFunctionCloud(problem=problem, laws=PAPER.laws, seed=7))
    cut, whole = (train(Informed(truth=truth, least_share=least), problem, seed=7) for least in (0.01, 1.0))
    assert cut.status is Status.DONE
    assert whole.status is Status.DONE
    assert {fleet.share for fleet in fleets(whole)} == {1.0}
    assert min(fleet.share for fleet in fleets(cut)) < 1
    assert cut.step_seconds < whole.step_seconds


def test_parts_are_kept() -> None:
    (part,) = epochs_of(PAPER, (Fleet(20, 3008, 0.125),))
    assert from_json(to_json(part), Epoch) == part
    # As runs of older versions have it.
    data = {"kind": "done", "functions": 20, "memory_mb": 3008, "usd_micros": 5, "number": 1}
    assert from_json(epoch_from_0_1(data)["fleet"], Fleet) == Fleet(20, 3008)
