"""auto for serving: what it leaves out, what a wrong description costs, and when it ends."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.llm_tables import write_tables

from mlcd.bench.serve.beds import beds
from mlcd.bench.serve.case import Bed, Case, Walk, searcher, walk
from mlcd.bench.serve.llmpilot import described_models
from mlcd.bench.serve.load_tests import LoadTestCase
from mlcd.goal import Goal, Objective
from mlcd.known import Known, KnownModel, TargetModel
from mlcd.known.language_models import LanguageModel
from mlcd.loadgen.chat import ChatLimit, ChatMetric
from mlcd.problem import Problem
from mlcd.search.serving.auto import ServingAuto
from mlcd.search.serving.auto_settings import ServingAutoSettings
from mlcd.space import Config
from mlcd.space.declared import space_of
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import History, Load, Measurement, TokenLoad
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


def words_and_shares(seed: int) -> Bed:
    """24 settings of a server: two words that matter, a share of a GPU that costs, and some that do not start."""
    rng = np.random.default_rng(seed)
    modes, types = (
        dict(zip("pqrs", rng.normal(0, 0.6, 4), strict=True)),
        dict(zip("xy", rng.normal(0, 0.4, 2), strict=True)),
    )
    grows = rng.uniform(0, 0.9)
    configs, rates, prices = [], [], []
    for mode, kind, share in product(modes, types, (25, 50, 100)):
        configs.append(Config.of({"MODE": mode, "DTYPE": kind, "GPU_SHARE": share}))
        rate = float(np.exp(4 + modes[mode] + types[kind] + grows * np.log(share / 25) + rng.normal(0, 0.2)))
        rates.append(0.0 if share == 25 and rng.random() < 0.2 else rate)
        prices.append(0.34 + 6.7 * share / 100)
    seconds = np.array([1 / rate if rate else np.inf for rate in rates])
    unknown = np.full(len(configs), np.nan)
    models = tuple(
        KnownModel(
            target=TargetModel(name=name, operators=()), family=name, latency_seconds=seconds, memory_gib=unknown
        )
        for name in ("own", "other")
    )
    known = Known(
        configs=tuple(configs),
        usd_per_hour=np.array(prices),
        models=models,
        curves=(),
        source="made up",
        simulated=True,
    )
    return Bed(name="own", known=known, targets=("own",), trial_seconds=15.0, noise=0.05, slo_ms=(1e6,))


def test_words_of_a_server_are_no_instance_types() -> None:
    found: dict[str, list[float]] = {"auto": [], "heterbo": [], "random": []}
    for seed in range(25):
        bed = words_and_shares(seed)
        case = Case.of(bed, "own", 1e3, noise=0.05, max_trials=6)
        assert case is not None
        for text, accuracies in found.items():
            made = walk(case, searcher(text, case, bed.sources("own"), seed=seed), seed=seed)
            accuracies.append(made.accuracy_after(6))
    mean = {text: float(np.mean(accuracies)) for text, accuracies in found.items()}
    assert mean["auto"] > mean["heterbo"] + 0.03
    assert mean["auto"] > mean["random"] + 0.1


def test_a_setting_that_breaks_the_limit_counts_as_slow() -> None:
    space = space_of({"MODE": ["a", "b", "c", "d"], "TYPE": ["x", "y", "z"]})
    limit = ChatLimit(metric=ChatMetric.TTFT, percentile=95, seconds=1.0)
    problem = Problem(
        name="own",
        work_samples=1e6,
        space=space,
        goal=Goal(minimize=Objective.COST, token_limits=(limit,)),
        usd_per_hour=(Usd.of(2),) * len(space),
        max_trials=8,
        noise=0.02,
        verify_seconds=60.0,
    )
    # Everything of mode a is fast and breaks the limit.
    chosen, history = ServingAuto(), History()
    while answer := chosen.suggest(problem, history, everything(problem), 1):
        config = answer[0].config
        trial = measured(problem, config, 100.0 if config["MODE"] == "a" else 20.0)
        history = history.with_trials(replace(trial, load=answered(3.0 if config["MODE"] == "a" else 0.5)))
    assert len(history) == 8
    assert sum(trial.config["MODE"] == "a" for trial in history.measured) <= 2


def answered(ttft_seconds: float) -> Load:
    times = (ttft_seconds,) * 3
    tokens = TokenLoad(
        concurrency=1,
        requests_per_second=1.0,
        good_per_second=1.0,
        input_tokens_per_second=1.0,
        output_tokens_per_second=1.0,
        input_tokens=1,
        output_tokens=1,
        ttft=times,
        tpot=(0.01,) * 3,
        e2e=times,
        front=(),
    )
    return Load(p50_seconds=1.0, p95_seconds=1.0, p99_seconds=1.0, requests=10, tokens=tokens)


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
