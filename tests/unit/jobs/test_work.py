"""`search.work`: what a job file may ask for, and what a problem is then."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.synthetic import make_problem

from mlcd.errors import SpecError
from mlcd.goal import Goal, Objective
from mlcd.jobs.train import prepare
from mlcd.jobs.work import with_work
from mlcd.problem import Problem, Target
from mlcd.spec import parse_train
from mlcd.units import Usd

SIM = "name: j\njob: {model: resnet152, samples: 1e6}\ngoal: {minimize: time}\n"
REAL = "name: j\nresources: {infra: local}\nrun: python -m train\njob: {samples: 1000}\ngoal: {minimize: time}\n"
BATCHES = "batch: [32, 64]\nlearning_rate: {base: 0.1, at_batch: 32}\n"


def problem_of(text: str, tmp_path: Path) -> Problem:
    return prepare(parse_train(text), folder=tmp_path).problem


@pytest.mark.parametrize(
    ("work", "kept", "beside"), [("thrown", False, False), ("kept", True, False), ("beside", False, True)]
)
def test_simulated_clouds_may_use_all_three(tmp_path: Path, work: str, kept: bool, beside: bool) -> None:
    problem = problem_of(f"{SIM}search: {{work: {work}}}\n", tmp_path)
    assert (problem.keeps_work, problem.beside) == (kept, beside)
    assert (problem.restart_seconds > 60) is (work != "thrown")  # a simulated cloud's nodes take minutes to start


def test_the_default_is_the_best_that_the_job_allows(tmp_path: Path) -> None:
    assert problem_of(f"{SIM}checkpoints: true\n", tmp_path).beside
    thrown = problem_of(SIM, tmp_path)
    assert (thrown.keeps_work, thrown.beside) == (False, False)
    problem = make_problem()
    for open_, work in (
        (problem, (False, True)),
        (replace(problem, target=Target(metric="accuracy", value=0.9, higher=True)), (True, False)),
    ):
        spec = parse_train(f"{REAL}checkpoints: true\n")
        found = with_work(spec, open_, restart_seconds=60.0, simulated=False)
        assert (found.keeps_work, found.beside) == work
    no_room = with_work(spec, problem, restart_seconds=60.0, simulated=False, has_room=False)
    assert no_room.keeps_work


def test_a_real_job_that_saves_may_use_all_three(tmp_path: Path) -> None:
    saves = f"{REAL}checkpoints: true\n"
    assert problem_of(saves, tmp_path).keeps_work  # local has no room for a trial beside the training
    problem = problem_of(f"{saves}search: {{work: beside}}\n", tmp_path)
    assert (problem.keeps_work, problem.beside) == (False, True)
    problem = problem_of(f"{saves}search: {{work: thrown}}\n", tmp_path)
    assert (problem.keeps_work, problem.beside) == (False, False)


def test_without_checkpoints_trials_are_thrown_away(tmp_path: Path) -> None:
    problem = problem_of(REAL, tmp_path)
    assert (problem.keeps_work, problem.beside) == (False, False)
    for work in ("kept", "beside"):
        with pytest.raises(SpecError) as error:
            problem_of(f"{REAL}search:\n  work: {work}\n", tmp_path)
        text = str(error.value)
        assert "search.work" in text
        assert ":7" in text or "line 7" in text
        assert "checkpoints: true" in text


@pytest.mark.parametrize("more", [BATCHES, ""])
def test_beside_needs_work_that_is_fixed(tmp_path: Path, more: str) -> None:
    target = "job: {samples: 1000, target: {metric: accuracy, value: 0.9}}"
    text = REAL.replace("job: {samples: 1000}", target) + more + "checkpoints: true\nsearch: {work: beside}\n"
    with pytest.raises(SpecError, match=r"search\.work"):
        problem_of(text, tmp_path)


def test_an_unknown_word_names_the_choices(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="thrown, kept, beside"):
        problem_of(f"{SIM}search: {{work: besides}}\n", tmp_path)


def test_the_price_of_a_restart_can_be_given(tmp_path: Path) -> None:
    problem = problem_of(f"{SIM}search: {{work: beside, restart_minutes: 4}}\n", tmp_path)
    assert problem.restart_seconds == 240.0


def test_a_replayed_job_restarts_in_the_time_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "instances.csv").write_text("instance,usd_per_hour\nm,1\n")
    (tmp_path / "als.csv").write_text("instance,nodes,seconds\nm,1,100\nm,2,60\n")
    text = f"name: als\nresources: {{infra: replay/{tmp_path}}}\ngoal: {{minimize: time}}\nsearch: {{work: beside"
    assert problem_of(f"{text}, restart_minutes: 2}}\n", tmp_path).restart_seconds == 120.0
    assert problem_of(f"{text}}}\n", tmp_path).restart_seconds == 180.0


def test_nodes_that_outlive_mlcd_train_beside_no_trials_under_a_budget() -> None:
    """Killed, mlcd could not keep their money apart from that of the trials."""
    budgeted = make_problem(goal=Goal(minimize=Objective.TIME, budget=Usd.of(50)))
    spec = parse_train(f"{REAL}checkpoints: true\n")
    given = {"restart_seconds": 60.0, "simulated": False}
    for problem, outlives, beside in ((budgeted, True, False), (budgeted, False, True), (make_problem(), True, True)):
        found = with_work(spec, problem, outlives=outlives, **given)  # type: ignore[arg-type]
        assert (found.keeps_work, found.beside) == (not beside, beside)
    asked = parse_train(f"{REAL}checkpoints: true\nsearch: {{work: beside}}\n")
    with pytest.raises(SpecError, match="outlive mlcd"):
        with_work(asked, budgeted, outlives=True, **given)  # type: ignore[arg-type]
