from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.synthetic import Machine, batched, failed, make_problem, measured

import mlcd
from mlcd.problem import Problem
from mlcd.search.candidates import open_rows, rising_rows
from mlcd.search.first_looks import first_looks
from mlcd.search.heterbo_settings import HeterBOSettings
from mlcd.search.memory_rules import MemoryRules
from mlcd.search.stopping import ledger_ended_it, suggest_in_time
from mlcd.space import Config, Space, Workers
from mlcd.trial.plan import Remaining
from mlcd.trial.trial import FailureKind, History, Suggestion, Trial
from mlcd.units import Usd

PROBLEM = make_problem()
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
D = Config.deployment


def remaining(allowed: bool = True) -> Remaining:
    return Remaining(usd=Usd.of(5), seconds=9.0, allowed=np.full(len(PROBLEM.space), allowed))


def counts_of(mask: "np.ndarray[tuple[int], np.dtype[np.bool_]]", instance: str) -> set[int]:
    return {c.nodes for c, ok in zip(PROBLEM.space, mask, strict=True) if ok and c.instance == instance}


def test_at_first_everything_allowed_is_open() -> None:
    assert open_rows(PROBLEM, History(), remaining()).all()
    assert not open_rows(PROBLEM, History(), remaining(False)).any()


def test_tried_configurations_are_closed_and_arguments_stay_unchanged() -> None:
    asked = remaining()
    history = History((measured(PROBLEM, D("c5.big", 4), 9.0), failed(PROBLEM, D("p2.one", 2), FailureKind.HANG)))
    mask = open_rows(PROBLEM, history, asked)
    assert mask.sum() == len(mask) - 2
    assert counts_of(mask, "c5.big") == set(COUNTS) - {4}
    assert asked.allowed.all()


@pytest.mark.parametrize(
    ("kind", "still_open"),
    [
        (FailureKind.OUT_OF_MEMORY, {6, 8, 12, 16}),
        (FailureKind.ERROR, {6, 8, 12, 16}),
        (FailureKind.CAPACITY, {1, 2, 3}),
        (FailureKind.LAUNCH, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.INTERRUPTED, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.HANG, {1, 2, 3, 6, 8, 12, 16}),
        (FailureKind.LOST, {1, 2, 3, 6, 8, 12, 16}),
    ],
)
def test_a_failure_rules_out_configurations_that_must_also_fail(kind: FailureKind, still_open: set[int]) -> None:
    mask = open_rows(PROBLEM, History((failed(PROBLEM, D("c5.big", 4), kind),)), remaining())
    assert counts_of(mask, "c5.big") == still_open
    assert counts_of(mask, "c5.small") == set(COUNTS)


def rising(*points: tuple[int, float], error: float = 0.01) -> set[int]:
    history = History(tuple(measured(PROBLEM, D("c5.big", n), speed, error=error) for n, speed in points))
    mask = rising_rows(PROBLEM, history, HeterBOSettings())
    assert counts_of(mask, "c5.small") == set(COUNTS)
    return counts_of(mask, "c5.big")


def test_beyond_the_peak_nothing_is_tried() -> None:
    assert rising((4, 100.0), (8, 80.0)) == {1, 2, 3, 4, 6, 8}
    assert rising((8, 80.0), (4, 100.0)) == {1, 2, 3, 4, 6, 8}  # whichever was measured first


def test_a_rise_a_gap_or_an_uncertain_decline_prunes_nothing() -> None:
    assert rising((1, 100.0), (12, 80.0)) == set(COUNTS)  # too far apart: the peak may lie between
    assert rising((4, 100.0), (8, 120.0)) == set(COUNTS)
    assert rising((4, 100.0), (8, 97.0), error=0.05) == set(COUNTS)
    assert rising((4, 100.0)) == set(COUNTS)


def test_only_neighbours_are_compared() -> None:
    assert rising((2, 100.0), (4, 130.0), (6, 110.0)) == {1, 2, 3, 4, 6}


def test_a_rival_that_keeps_limits_ends_at_the_first_refusal() -> None:
    picks = tuple(Suggestion(config=PROBLEM.space.configs[i], reason="r") for i in (0, 1, 2))
    seen: list[bool] = []

    def suggest(problem: Problem, history: History, remaining: Remaining, count: int) -> tuple[Suggestion, ...]:
        seen.append(bool(remaining.allowed.all()))
        return picks[:count]

    allowed = np.ones(len(PROBLEM.space), dtype=bool)
    allowed[1] = False
    narrowed = Remaining(usd=None, seconds=None, allowed=allowed)
    history = History((measured(PROBLEM, PROBLEM.space.configs[3], 5.0),))
    asked: dict[str, Any] = {"problem": PROBLEM, "remaining": narrowed, "count": 3}
    assert suggest_in_time(suggest, 1, history=history, **asked) == picks[:1]
    assert (
        suggest_in_time(suggest, 2, history=history, **asked) == picks
    )  # still in its start, which uses only allowed trials
    assert seen == [True, False]
    assert ledger_ended_it(suggest, PROBLEM, history, narrowed)
    assert not ledger_ended_it(lambda *_: (), PROBLEM, history, narrowed)


def test_without_a_number_of_nodes_a_failure_says_nothing_of_others() -> None:
    problem = mlcd.Search(knobs={"batch": [1, 8, 64]}, objective="maximize").problem
    small, middle, large = problem.space.configs
    free = Remaining(usd=None, seconds=None, allowed=np.ones(3, dtype=bool))
    for kind in FailureKind:
        mask = open_rows(problem, History((failed(problem, middle, kind),)), free)
        assert [bool(mask[problem.space.index[config]]) for config in (small, middle, large)] == [True, False, True]


# ---- memory


def memory_problem(
    parameters: float | None = None, batches: tuple[int, ...] = (), counts: tuple[int, ...] = (1, 2, 4, 8)
) -> Problem:
    """Nodes of 8 to 64 GiB, and nodes with one or four accelerators of 16 GiB."""
    workers = {
        "cpu-8": Workers(memory_gib=8.0),
        "cpu-16": Workers(memory_gib=16.0),
        "also-16": Workers(memory_gib=16.0),
        "cpu-64": Workers(memory_gib=64.0),
        "gpu-one": Workers(count=1, memory_gib=16.0, accelerator="T4"),
        "gpu-four": Workers(count=4, memory_gib=16.0, accelerator="T4"),
    }
    machines = {name: Machine(usd_per_hour=1.0 + at, speed=10.0) for at, name in enumerate(workers)}
    made = make_problem(machines=machines, counts=counts)
    made = batched(made, batches) if batches else made
    instance, *others = made.space.knobs
    space = Space((replace(instance, workers=workers), *others), made.space.configs)
    return replace(made, space=space, parameters=parameters)


def still_open(
    problem: Problem,
    *failures: Config,
    rules: MemoryRules = "bounds",
    fits: tuple[Config, ...] = (),
    types: str | tuple[str, ...] = "",
) -> set[str]:
    """What is open after these trials, where the ledger allows all types whose names begin with `types`."""
    trials: tuple[Trial, ...] = (
        *(failed(problem, config, FailureKind.OUT_OF_MEMORY) for config in failures),
        *(measured(problem, config, 5.0) for config in fits),
    )
    allowed = np.array([config.instance.startswith(types) for config in problem.space])
    mask = open_rows(problem, History(trials), Remaining(usd=None, seconds=None, allowed=allowed), memory=rules)
    return {str(config) for config, ok in zip(problem.space, mask, strict=True) if ok}


def every(*types: str, nodes: tuple[int, ...] = (1, 2, 4, 8)) -> set[str]:
    return {str(D(name, n)) for name in types for n in nodes}


ALL = every("cpu-8", "cpu-16", "also-16", "cpu-64", "gpu-one", "gpu-four")


def test_running_out_of_memory_rules_out_every_type_with_no_more_of_it() -> None:
    problem = memory_problem()
    out = ALL - still_open(problem, D("cpu-16", 2))
    assert out == every("cpu-8", "cpu-16", "also-16", nodes=(1, 2))
    assert ALL - still_open(problem, D("cpu-16", 2), rules="off") == every("cpu-16", nodes=(1, 2))


def test_accelerators_of_one_kind_count_as_one_whatever_their_type() -> None:
    problem = memory_problem()
    assert ALL - still_open(problem, D("gpu-one", 4)) == every("gpu-one", nodes=(1, 2, 4)) | every(
        "gpu-four", nodes=(1,)
    )
    assert ALL - still_open(problem, D("gpu-four", 1)) == every("gpu-one", nodes=(1, 2, 4)) | every(
        "gpu-four", nodes=(1,)
    )


def test_a_larger_batch_fails_too_and_a_smaller_one_may_fit() -> None:
    problem = memory_problem(batches=(64, 256))
    failure = Config((*D("cpu-16", 2).values, ("batch", 64)))
    out = {str(config) for config in problem.space} - still_open(problem, failure)
    assert str(Config((*D("also-16", 2).values, ("batch", 256)))) in out
    assert str(Config((*D("also-16", 4).values, ("batch", 256)))) not in out
    failure = Config((*D("cpu-16", 2).values, ("batch", 256)))
    out = {str(config) for config in problem.space} - still_open(problem, failure)
    assert str(Config((*D("also-16", 2).values, ("batch", 64)))) not in out


def test_what_probably_fails_too_opens_when_nothing_more_likely_is_left() -> None:
    problem = memory_problem()
    likely = still_open(problem, D("cpu-8", 1), rules="likely")
    assert str(D("cpu-64", 1)) in likely
    assert str(D("cpu-8", 2)) not in likely
    assert str(D("cpu-8", 2)) in still_open(problem, D("cpu-8", 1), rules="bounds")
    left = {config for config in problem.space if str(config) in likely and config.instance != "cpu-8"}
    hanging = tuple(failed(problem, config, FailureKind.HANG) for config in left)
    history = History((failed(problem, D("cpu-8", 1), FailureKind.OUT_OF_MEMORY), *hanging))
    free = Remaining(usd=None, seconds=None, allowed=np.ones(len(problem.space), dtype=bool))
    for _ in range(len(problem.space)):
        mask = open_rows(problem, history, free, memory="likely")
        if mask[problem.space.index[D("cpu-8", 2)]]:
            break
        row = int(mask.argmax())
        assert mask[row], "a search must not end while something is only unlikely"
        history = history.with_trials(failed(problem, problem.space.configs[row], FailureKind.HANG))
    assert mask[problem.space.index[D("cpu-8", 2)]]


def test_workers_that_ran_out_of_memory_are_next_tried_in_twice_the_number() -> None:
    problem = memory_problem(counts=(1, 2, 3, 4, 6, 8))
    failure = D("gpu-one", 4)
    assert still_open(problem, failure, types="gpu") >= {"6 x gpu-one", "8 x gpu-one", "2 x gpu-four"}
    after = still_open(problem, failure, rules="likely", types="gpu")
    assert not {"6 x gpu-one", "1 x gpu-four"} & after
    assert "8 x gpu-four" in after
    assert "6 x gpu-one" in still_open(problem, failure, rules="likely", types="gpu", fits=(D("gpu-four", 2),))
    assert still_open(problem, D("gpu-one", 6), rules="likely", types="gpu-one") == {"8 x gpu-one"}  # all that is left


def test_the_largest_number_of_such_workers_stays_open() -> None:
    """Where twice the number is not offered, other types must not keep the most that is offered from being tried."""
    problem = memory_problem(counts=(1, 2, 3, 4, 7))
    after = still_open(problem, D("gpu-one", 4), rules="likely", types=("gpu-one", "cpu-16"))
    assert after == {"7 x gpu-one", "7 x cpu-16"}


def test_a_named_model_counts_before_the_first_trial() -> None:
    large = memory_problem(parameters=1.5e9)  # 11 to 28 GiB of states
    assert still_open(large, rules="likely") == ALL
    first = still_open(large, rules="named")
    assert str(D("cpu-8", 1)) not in first
    assert str(D("cpu-64", 1)) in first
    assert still_open(memory_problem(parameters=1e6), rules="named") == ALL


def test_without_known_workers_only_the_type_itself_is_ruled_out() -> None:
    history = History((failed(PROBLEM, D("c5.big", 4), FailureKind.OUT_OF_MEMORY),))
    mask = open_rows(PROBLEM, history, remaining(), memory="named")
    assert counts_of(mask, "c5.big") == {6, 8, 12, 16}
    assert counts_of(mask, "c5.small") == set(COUNTS)


def test_where_twice_the_nodes_are_not_allowed_the_rest_is_tried() -> None:
    problem = make_problem(machines={"only": Machine(usd_per_hour=1.0, speed=1.0)}, counts=(1, 2, 3, 4))
    history = History((failed(problem, D("only", 3), FailureKind.OUT_OF_MEMORY),))
    free = Remaining(usd=None, seconds=None, allowed=np.ones(4, dtype=bool))
    candidates = open_rows(problem, history, free)
    assert [problem.space.configs[row] for row in first_looks(problem, history, candidates)] == [D("only", 4)]
