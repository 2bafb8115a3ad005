"""auto for serving: what it leaves out, what a wrong description costs, and when it ends."""

from dataclasses import replace

import numpy as np
import pytest
from tests.llm_tables import write_tables

from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.case import Bed, Case, Walk, walk
from mlcd.bench.serve.llmpilot import described_models
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.goal import Goal, Objective
from mlcd.known.language_models import LanguageModel
from mlcd.problem import Problem
from mlcd.search.serving.auto import ServingAuto
from mlcd.search.serving.auto_settings import ServingAutoSettings
from mlcd.space.declared import space_of
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Measurement
from mlcd.units import Usd

TARGET = "google__flan-t5-xxl"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return beds(tables=write_tables(tmp_path_factory.mktemp("tables") / "t"))[0]


def case_of(bed: Bed, slo_seconds: float = 30.0, *, trials: int = 8) -> Case:
    kind = LoadTestCase if bed.load_tests else Case
    found = kind.of(bed, TARGET, slo_seconds, noise=0.01, max_trials=trials)
    assert found is not None
    return found


def auto(bed: Bed, case: Case, language: LanguageModel | None, **settings: float) -> ServingAuto:
    target = replace(case.target.target, language=language)
    known = case.knowledge(bed.sources(TARGET))
    return ServingAuto(known=known, target=target, settings=ServingAutoSettings(**settings))  # type: ignore[arg-type]


def trials_to(found: Walk, accuracy: float) -> int:
    return found.trials_to(accuracy) or 99


@pytest.mark.parametrize("load_tests", [False, True])
@pytest.mark.parametrize("times", [0.1, 0.3, 3.0, 10.0])
def test_a_wrong_description_costs_at_most_a_few_trials(bed: Bed, times: float, load_tests: bool) -> None:
    """Ten times the parameters would exclude most types; a tenth would expect too much of the small ones."""
    bed = replace(bed, load_tests=load_tests)
    case = case_of(bed)
    true = described_models()[TARGET]
    wrong = replace(true, parameters=true.parameters * times)
    right = trials_to(walk(case, auto(bed, case, true), seed=0), 0.9)
    assert trials_to(walk(case, auto(bed, case, wrong), seed=0), 0.9) <= right + 3


def test_another_architecture_costs_at_most_a_few_trials(bed: Bed) -> None:
    case = case_of(bed)
    wrong = described_models()["bigcode__starcoder"]
    assert trials_to(walk(case, auto(bed, case, wrong), seed=0), 0.9) <= 5


def test_what_does_not_fit_by_its_sizes_is_left_out_before_anything_is_paid(bed: Bed) -> None:
    case = case_of(bed)
    huge = replace(described_models()[TARGET], parameters=30e9)  # 60 GB: two A100 or an H100
    chosen = auto(bed, case, huge)
    first = chosen.suggest(case.problem, History(), everything(case.problem), 3)
    assert first
    assert {suggestion.config.instance for suggestion in first} <= {"2xa100", "1xh100"}


def test_trials_that_contradict_the_sizes_let_what_was_left_out_in_again(bed: Bed) -> None:
    case = case_of(bed)
    huge = replace(described_models()[TARGET], parameters=30e9)
    chosen = auto(bed, case, huge)
    ran = next(config for config in case.problem.space if (config.instance, config["batch"]) == ("1xa100", 4))
    history = History((case.trial(ran, 0),))
    memory = chosen.outlook_memory(case.problem, history)
    small = [row for row, config in enumerate(case.problem.space) if config.instance == "1xa100"]
    assert (memory[small] > chosen.settings.least_memory).all()


def test_where_nothing_fits_by_its_sizes_they_are_not_believed(bed: Bed) -> None:
    case = case_of(bed)
    absurd = replace(described_models()[TARGET], parameters=1e13)
    assert auto(bed, case, absurd).suggest(case.problem, History(), everything(case.problem), 1)


def test_a_trial_must_pay_for_itself_while_the_choice_serves(bed: Bed) -> None:
    case = case_of(bed, trials=20)
    true = described_models()[TARGET]
    month = walk(case, auto(bed, case, true), seed=0)
    hour = walk(case, auto(bed, case, true, hours=0.5), seed=0)
    assert len(hour.configs) < len(month.configs) < 20


def test_without_any_knowledge_it_searches_any_knobs() -> None:
    """Nothing is known of a server's own settings: similar ones behave alike."""
    space = space_of({"MAX_SEQS": [8, 16, 32, 64, 128], "DTYPE": ["fp16", "fp8"]})
    problem = Problem(
        name="own",
        work_samples=1e6,
        space=space,
        goal=Goal(minimize=Objective.COST),
        usd_per_hour=(Usd.of(2),) * len(space),
        max_trials=8,
        noise=0.02,
        verify_seconds=60.0,
    )
    rates = {c: 10 * np.log2(float(c["MAX_SEQS"])) * (1.3 if c["DTYPE"] == "fp8" else 1.0) for c in space}
    chosen, history = ServingAuto(), History()
    while answer := chosen.suggest(problem, history, everything(problem), 1):
        history = history.with_trials(measured(problem, answer[0].config, rates[answer[0].config]))
    best = max(rates.values())
    found = chosen.recommend(problem, history, everything(problem))
    assert found is not None
    assert rates[found.config] > 0.95 * best
    assert len(history) <= 8


def measured(problem: Problem, config: object, rate: float) -> Measurement:
    return Measurement(
        config=config,  # type: ignore[arg-type]
        attempt=1,
        samples_per_second=rate,
        relative_error=0.02,
        iterations=1,
        startup_seconds=0.0,
        seconds=60.0,
        usd=Usd.of(0.03),
    )


def everything(problem: Problem) -> Remaining:
    return Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
