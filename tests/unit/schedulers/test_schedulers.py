"""Schedulers of functions: what they decide is allowed and repeatable; fits, plans, and bad input."""

import dataclasses
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlcd.bench.serverless.compare import LawsOfRun
from mlcd.bench.serverless.grid import grid_search
from mlcd.bench.serverless.past import past_prior, past_runs
from mlcd.bench.serverless.training import train
from mlcd.clouds.functions.sim import NO_DEVIATION, SimFunctionCloud
from mlcd.clouds.functions.sim.workloads import PAPER, SimWorkload, training_workload
from mlcd.epoch_ledger import EpochLedger
from mlcd.errors import BadInput
from mlcd.functions import FunctionProblem
from mlcd.goal import Goal, Objective
from mlcd.models.epochs import PRIOR, fit_epochs
from mlcd.models.experience import prior_from_runs
from mlcd.run.run import EpochRun
from mlcd.schedulers.informed import Informed
from mlcd.schedulers.mpc import Mpc
from mlcd.schedulers.planning import spread_over
from mlcd.schedulers.registry import SCHEDULERS, scheduler, scheduler_class
from mlcd.schedulers.scheduler import Scheduler
from mlcd.schedulers.siren import WEIGHTS, Policy, Siren
from mlcd.schedulers.siren_state import FEATURES, observe
from mlcd.schedulers.static import Static
from mlcd.schedulers.static_n import StaticN
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet, RemainingEpochs
from mlcd.trial.outcome import Status
from mlcd.units import Usd

COUNTS = tuple(range(1, 60)) + tuple(range(60, 3001, 20))
SIZES = (512, 1024, 1536, 2048, 3008)


def problem_of(usd: float | None, *, made: SimWorkload = PAPER, seconds: float | None = None) -> FunctionProblem:
    minimize = Objective.TIME if seconds is None else Objective.COST
    goal = Goal(minimize=minimize, budget=None if usd is None else Usd.of(usd), deadline_seconds=seconds)
    return made.problem(goal, functions=COUNTS, memory_mb=SIZES)


def run(decides: Scheduler, problem: FunctionProblem, *, seed: int = 0, made: SimWorkload = PAPER) -> EpochRun:
    return train(problem, SimFunctionCloud(problem=problem, laws=made.laws, seed=seed), decides)


def fleets(run: EpochRun) -> tuple[Fleet, ...]:
    return tuple(epoch.fleet for epoch in run.epochs)


def all_schedulers(problem: FunctionProblem, seed: int) -> list[Scheduler]:
    truth = LawsOfRun.of(SimFunctionCloud(problem=problem, laws=PAPER.laws, seed=seed))
    return [StaticN(), Static(), Siren(), Mpc(), Informed(truth=truth)]


@pytest.mark.parametrize("index", range(5))
def test_every_scheduler_trains_within_its_budget(index: int) -> None:
    problem = problem_of(200.0)
    episode = run(all_schedulers(problem, 31)[index], problem, seed=31)
    assert episode.status is Status.DONE, episode.stopped
    assert episode.spent <= Usd.of(200)
    assert all(fleet.functions in COUNTS and fleet.memory_mb in SIZES for fleet in fleets(episode))


@pytest.mark.parametrize("index", range(5))
def test_decisions_are_functions_of_their_arguments(index: int) -> None:
    problem = problem_of(150.0)
    decides = all_schedulers(problem, 32)[index]
    episode = run(decides, problem, seed=32)
    for count in (0, 1, 3):
        history = episode.epochs[:count]
        remaining = EpochLedger(problem=problem, epochs=history).remaining()
        decided = decides.decide(problem, history, remaining)
        assert decided == decides.decide(problem, history, remaining) == fleets(episode)[count]
        assert decided is not None
        assert remaining.allowed[COUNTS.index(decided.functions), SIZES.index(decided.memory_mb)]


def test_mpc_beats_a_fixed_fleet_from_a_grid_search_and_nears_the_informed_scheduler() -> None:
    problem = problem_of(200.0)
    fleet = grid_search(problem, PAPER.laws, memory_mb=SIZES)
    assert fleet is not None
    fixed, planned, limit = [], [], []
    for seed in (41, 42, 43):
        fixed.append(run(Static(functions=fleet.functions, memory=fleet.memory_mb), problem, seed=seed).step_seconds)
        planned.append(run(scheduler("mpc", prior=past_prior(PAPER)), problem, seed=seed).step_seconds)
        cloud = SimFunctionCloud(problem=problem, laws=PAPER.laws, seed=seed)
        limit.append(run(Informed(truth=LawsOfRun.of(cloud)), problem, seed=seed).step_seconds)
    assert sum(planned) < sum(fixed)
    assert sum(planned) < 1.2 * sum(limit), "three runs; over twenty it is within 5%"


def test_an_insufficient_budget_ends_it_early_and_a_sufficient_one_is_named() -> None:
    problem = problem_of(50.0)
    episode = run(Mpc(), problem, seed=51)
    assert episode.status is not Status.DONE
    assert episode.spent < Usd.of(35), "it does not spend all of it to find out"
    assert "would suffice" in episode.stopped
    assert episode.smallest_budget is not None
    assert 60 < episode.smallest_budget.dollars < 105
    enough = run(Mpc(), problem_of(episode.smallest_budget.dollars), seed=51)
    assert enough.status is Status.DONE


def test_experience_refuses_a_hopeless_budget_before_spending_anything() -> None:
    episode = run(scheduler("mpc", prior=past_prior(PAPER)), problem_of(50.0), seed=52)
    assert not episode.epochs
    assert episode.spent == Usd(0)
    assert episode.smallest_budget is not None
    assert (
        run(scheduler("mpc", prior=past_prior(PAPER)), problem_of(episode.smallest_budget.dollars), seed=52).status
        is Status.DONE
    )


def test_a_tight_budget_does_not_drive_mpc_to_small_slow_functions() -> None:
    made = training_workload(
        15
    )  # needs few epochs that cost much: by the prior's number of them, $100 would not suffice
    episode = run(Mpc(), problem_of(100.0, made=made), seed=115, made=made)
    assert episode.status is Status.DONE, episode.stopped
    assert min(fleet.memory_mb for fleet in fleets(episode)) >= 1536
    longest = max(epoch.seconds for epoch in episode.epochs)
    assert longest < 0.5 * episode.step_seconds, "no single epoch of a few functions takes most of the time"


def test_an_epoch_with_little_memory_determines_the_times_there() -> None:
    small = replace(past_runs(PAPER)[0][0], fleet=Fleet(138, 768))
    seen = fit_epochs((small,), samples=10**7, puts=198, target_loss=0.3)
    predicted = seen.seconds(np.array([138.0]), np.array([768.0]))[0]
    assert predicted == pytest.approx(small.seconds, rel=0.03)


def test_the_cheapest_before_a_deadline() -> None:
    slow, quick = (run(Mpc(), problem_of(None, seconds=seconds), seed=53) for seconds in (8000.0, 1900.0))
    assert slow.status is Status.DONE
    assert quick.status is Status.DONE
    assert slow.step_seconds <= 8000
    assert quick.step_seconds <= 1900
    assert slow.spent < quick.spent


def test_static_keeps_its_fleet_and_shrinks_when_money_runs_out() -> None:
    problem = problem_of(220.0)
    given = run(Static(functions=400, memory=3008), problem, seed=54)
    assert set(fleets(given)[:-2]) == {Fleet(400, 3008)}
    greedy = run(Static(functions=600, memory=3008), problem, seed=54)
    assert greedy.spent <= Usd.of(220)
    assert fleets(greedy)[0] == Fleet(600, 3008)
    remaining = EpochLedger(problem=problem).remaining()
    assert StaticN(functions=140).decide(problem, (), remaining) == Fleet(140, 1536)
    with pytest.raises(BadInput, match="138 x 1,536 MB is not among the allowed fleets"):
        StaticN(functions=138).decide(problem, (), remaining)


def test_a_failed_fleet_is_not_tried_again() -> None:
    problem = problem_of(200.0)
    failure = FailedEpoch(number=1, fleet=Fleet(3000, 2048), seconds=20.0, usd=Usd.of(1), message="out of memory")
    remaining = EpochLedger(problem=problem, failed=(failure,)).remaining()
    for decides in (Mpc(), Siren(), Static()):
        fleet = decides.decide(problem, (), remaining)
        assert fleet is not None
        assert fleet.memory_mb > 2048


def test_the_fit_finds_the_workloads_own_times() -> None:
    made = replace(training_workload(30_000), laws=replace(training_workload(30_000).laws, chance=NO_DEVIATION))
    problem = made.problem(Goal(minimize=Objective.TIME))
    runs = past_runs(made)
    model = fit_epochs(
        runs[1][:6],
        samples=problem.samples,
        puts=problem.puts_per_function,
        target_loss=problem.target_loss,
        first_loss=problem.first_loss,
    )
    predicted = model.seconds(np.array([482.0, 900.0]), np.array([1536.0, 1536.0]))
    assert predicted[0] == pytest.approx(made.laws.seconds(482, 1536), rel=0.02)
    assert predicted[1] == pytest.approx(made.laws.seconds(900, 1536), rel=0.06)
    remaining = len(runs[1]) - 6
    assert remaining - 1.5 < model.epochs_left < remaining + 1.5


def test_a_loss_that_does_not_fall_leaves_the_prior() -> None:
    epochs = past_runs(PAPER)[0]
    flat = tuple(replace(epoch, loss=0.6) for epoch in epochs[:3])
    model = fit_epochs(flat, samples=10**7, puts=198, target_loss=0.3)
    assert model.epochs_left > 1
    assert model.epochs_left_deviation > 1


def test_experience_without_runs_is_the_general_prior() -> None:
    assert prior_from_runs([], samples=1, puts=1, target_loss=0.1) == PRIOR
    learnt = past_prior(PAPER)
    assert learnt is not None
    assert learnt.epochs[1] < PRIOR.epochs[1]


def test_the_informed_scheduler_cannot_be_created_by_name() -> None:
    with pytest.raises(BadInput, match="needs the simulator's truth"):
        scheduler("informed")


def test_schedulers_by_name_and_options() -> None:
    assert scheduler("static:functions=64,memory=1769") == Static(functions=64, memory=1769)
    assert scheduler("static-n:functions=8").name == "static-n"
    assert scheduler("mpc", seed=3) == Mpc(seed=3)
    for name in SCHEDULERS:
        assert scheduler_class(name).name == name
    for text, message in {
        "sirene": "did you mean 'siren'",
        "mpc:prior=x": "has no option",
        "static:functions=many,memory=512": "not a whole number",
        "static:functions=4": "give both functions and memory",
    }.items():
        with pytest.raises(BadInput, match=message):
            scheduler(text)


def test_sirens_state_is_finite_and_of_fixed_size() -> None:
    problem = problem_of(100.0)
    epochs = past_runs(PAPER)[0]
    for count in (0, 1, 2, 9):
        history: tuple[Epoch, ...] = epochs[:count]
        remaining: RemainingEpochs = EpochLedger(problem=problem, epochs=history).remaining()
        features = observe(problem, history, remaining).features
        assert features.shape == (FEATURES,)
        assert np.isfinite(features).all()


def test_siren_needs_the_goal_that_it_was_trained_for(tmp_path: Path) -> None:
    problem = problem_of(None, seconds=1000.0)
    with pytest.raises(BadInput, match="siren only minimises time under a budget"):
        Siren().decide(problem, (), EpochLedger(problem=problem).remaining())
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"no policy")
    with pytest.raises(BadInput, match="not a policy"):
        Policy.load(bad)
    np.savez(bad, weight0=np.zeros((2, 3)), bias0=np.zeros(2), log_deviation=np.zeros(2))
    with pytest.raises(BadInput, match=f"must take {FEATURES} features"):
        Policy.load(bad)


def test_the_shipped_policy_runs_without_torch() -> None:
    code = (
        "import sys; from mlcd.schedulers.siren import Policy, WEIGHTS; import numpy as np;"
        f"print(Policy.load(WEIGHTS).mean(np.zeros({FEATURES})).shape);"
        "assert not {'torch', 'gymnasium', 'stable_baselines3'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2,)"
    assert WEIGHTS.stat().st_size < 100_000


def test_numbers_are_spread_over_their_logarithms() -> None:
    assert spread_over((1, 2, 4, 8, 16), 5) == (0, 1, 2, 3, 4)
    chosen = spread_over(tuple(range(1, 3001)), 20)
    assert chosen[0] == 0
    assert chosen[-1] == 2999


@pytest.mark.parametrize("name", ["mpc", "siren"])
def test_every_setting_of_a_scheduler_is_on_its_page_with_its_default(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "schedulers" / f"{name}.md").read_text(encoding="utf-8")
    settings = scheduler_class(name)().settings
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        shown = ("on" if value else "off") if isinstance(value, bool) else str(value)
        assert f"| `{field.name.replace('_', '-')}` | `{shown}` |" in page
        assert scheduler(f"{name}:{field.name.replace('_', '-')}={shown}").settings == settings  # type: ignore[attr-defined]
