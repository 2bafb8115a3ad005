"""What `import mlcd` offers, and what it weighs."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import mlcd
from mlcd.goal import Goal
from mlcd.units import Usd

NAMES = [
    "Goal",
    "Result",
    "Search",
    "ServeResult",
    "ServerlessResult",
    "Usd",
    "__version__",
    "checkpoint",
    "describe",
    "epochs",
    "knob",
    "learning_rate",
    "load",
    "resume",
    "runs",
    "score",
    "serve",
    "serverless",
    "share_of_batch",
    "steps",
    "train",
    "ui",
    "what_if",
]


def modules_of(statement: str) -> set[str]:
    """The modules that `statement` loads into a fresh interpreter that has loaded nothing from site-packages."""
    source = Path(mlcd.__file__).parents[1]
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    env["PYTHONPATH"] = str(source)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_dir_lists_exactly_the_public_names() -> None:
    assert dir(mlcd) == sorted(NAMES)
    assert sorted(mlcd.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mlcd, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        mlcd.trian  # noqa: B018


def test_goal_and_usd_are_those_of_their_modules() -> None:
    assert mlcd.Goal is Goal
    assert mlcd.Usd is Usd
    assert pickle.loads(pickle.dumps(mlcd.Usd("1.5"))) == mlcd.Usd("1.5")


def test_importing_mlcd_loads_next_to_nothing() -> None:
    ours, plain = modules_of("import mlcd"), modules_of("import numpy")
    assert {name for name in ours if name.startswith("mlcd")} == {"mlcd", "mlcd.version"}
    assert len(ours) * 10 < len(plain)


def test_money_does_not_load_the_rest() -> None:
    assert {name for name in modules_of("import mlcd\nmlcd.Usd") if name.startswith(("mlcd", "numpy"))} == {
        "mlcd",
        "mlcd.units",
        "mlcd.version",
    }


def test_no_room_has_the_name_of_a_public_function() -> None:
    """Importing `mlcd.load.x` would put the module in the function's place."""
    rooms = {path.stem for path in Path(mlcd.__file__).parent.iterdir() if path.suffix in ("", ".py")}
    assert not rooms & set(NAMES)
