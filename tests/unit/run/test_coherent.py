"""Runs whose parts do not fit each other: a colleague's program may have written them, with right digests."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.test_store import FUNCTIONS, add, epoch_step, header, measured, nodes_problem, step

from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation
from mlcd.run.coherent import check_coherent
from mlcd.run.header import ReusedTrial
from mlcd.run.kind import Kind
from mlcd.run.run import AnyRun, Run
from mlcd.space import Config, Knob, Space
from mlcd.store.damage import DamagedStore
from mlcd.store.store import Store
from mlcd.trial.epoch import Fleet
from mlcd.units import Usd

ELSEWHERE = Config.deployment("<b>nowhere</b>", 3)


def reused(config: Config) -> AnyRun:
    old = ReusedTrial(run_id="old", created="", catalog_date="", trial=measured(config))
    return Run(header=replace(header("r"), reused=(old,)), problem=nodes_problem())


def served() -> Problem:
    """The same without instance types, as a model is served on one machine."""
    knobs = (Knob(name="batch", values=(1, 4)),)
    return replace(nodes_problem(), space=Space(knobs, tuple(Config.of({"batch": batch}) for batch in (1, 4))))


def test_what_mlcd_writes_fits() -> None:
    check_coherent(Run(header=header("s", Kind.SERVE), problem=served()))
    check_coherent(Run(header=header("r"), problem=nodes_problem(), steps=(step(1).ended(measured()), step(2))))
    check_coherent(Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS, steps=(epoch_step(1),)))
    check_coherent(reused(step(1).config))


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Run(header=header("r"), problem=served()), "it trains on no instance type"),
        (
            Run(
                header=header("r"),
                problem=nodes_problem(),
                steps=(step(1).ended(replace(measured(), relative_error=1e30)),),
            ),
            r"the outcome of step 1 has a speed that is known up to a factor of 1e\+30",
        ),
        (Run(header=header("r", Kind.SERVERLESS), problem=nodes_problem()), "its problem is none of `mlcd serverless`"),
        (Run(header=header("r"), problem=FUNCTIONS), "its problem is none of `mlcd train`"),
        (Run(header=header("r"), problem=nodes_problem(), steps=(epoch_step(1),)), "an? epoch, is no part of a run"),
        (Run(header=header("f", Kind.SERVERLESS), problem=FUNCTIONS, steps=(step(1),)), "a trial, is no part of a run"),
        (Run(header=header("r"), problem=nodes_problem(), steps=(step(1, config=ELSEWHERE),)), "step 1 is on '3 x <b>"),
        (
            Run(header=header("r"), problem=nodes_problem(), steps=(step(1).ended(measured(ELSEWHERE)),)),
            "the outcome of step 1 is on '3 x <b>",
        ),
        (
            Run(
                header=header("r"),
                problem=nodes_problem(),
                steps=(
                    replace(
                        step(1),
                        authorisation=Authorisation(
                            choice=Fleet(functions=1, memory_mb=512), attempt=1, usd=Usd.of(1), seconds=9.0
                        ),
                    ),
                ),
            ),
            "is not where it can be",
        ),
        (reused(ELSEWHERE), "a trial of old is on"),
        (
            Run(header=header("r"), problem=nodes_problem(), steps=(replace(step(1), ended_seconds=float("inf")),)),
            "step 1 began or ended at no time",
        ),
    ],
)
def test_what_does_not_fit_is_named(run: AnyRun, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_coherent(run)


def test_such_a_run_is_damaged_and_the_others_are_not(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        add(store, "good")
        add(store, "bad")
        store.start("bad", [step(1)])
        store.end("bad", step(1).ended(measured(ELSEWHERE)))  # before: a KeyError in whatever showed it
        with pytest.raises(DamagedStore, match="run bad is damaged: the outcome of step 1 is on"):
            store.load("bad")
        assert store.load("good").run_id == "good"
