"""ARCHITECTURE.md names what there is: its picture, its floors and every path in it. Tests mirror the rooms."""

import re
from dataclasses import fields
from pathlib import Path

import mlcd
from mlcd.deciders import decision
from mlcd.engine.journal import Journal
from mlcd.jobs.prepared import Prepared
from mlcd.run.run import Run
from mlcd.store.store import Store

SOURCE = Path(mlcd.__file__).parent
TEXT = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
PICTURE = TEXT.split("```text\n")[1].split("```")[0]
VALUES = {"Prepared": Prepared, "Run": Run, "Start": decision.Start, "Conclude": decision.Conclude, "End": decision.End}
OUTSIDE_FLOORS = {"version"}
"""Everyone may import it."""
TESTS = Path(__file__).resolve().parents[1]
WHOLE_PACKAGE = "package"
"""The folder of tests that are about all rooms, like these."""
DECIDE_OR_SPEND = {
    "deciders",
    "engine",
    "epoch_ledger",
    "findings",
    "functions",
    "ledger",
    "relaxation",
    "run",
    "schedulers",
    "search",
    "spec",
    "store",
    "trial",
}
"""The rooms that scripts/coverage_gate.py looks at."""


def rooms() -> set[str]:
    """The packages and modules of mlcd, as ARCHITECTURE.md calls them."""
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    return packages | modules


def floors() -> list[tuple[int, list[str]]]:
    table = TEXT.split("| floor | room |")[1].split("\n\n")[0]
    found = re.findall(r"^\| (\d+) \| ([^|]+) \|", table, flags=re.MULTILINE)
    return [(int(floor), re.findall(r"`(\w+)`", names)) for floor, names in found]


def paths(text: str) -> list[str]:
    """Files and folders named in `text`; a bare file lies where the one before it does."""
    found, folder = [], ""
    for name in re.findall(r"(?<![\w/.])((?:\w+/)*\w+\.py|(?:\w+/)+)(?![\w/])", text):
        if "/" in name:
            folder = name.rpartition("/")[0]
        found.append(name if "/" in name else f"{folder}/{name}")
    return found


def test_every_file_of_the_picture_exists() -> None:
    named = paths(PICTURE)
    assert "engine/loop.py" in named
    assert "engine/epochs.py" in named, "a bare name lies in the folder named before it"
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_every_room_of_the_picture_exists() -> None:
    named = re.findall(r"(?<![.\w])([a-z]+)(?=: | ──▶)", PICTURE)
    assert {"spec", "jobs", "kinds", "report"} <= set(named)
    assert set(named) - {"prepare"} <= rooms()


def test_every_value_and_method_of_the_picture_exists() -> None:
    values = re.findall(r"\b([A-Z]\w+)\(([\w, ]+)\)", PICTURE)
    assert {name for name, _ in values} == set(VALUES)
    for name, arguments in values:
        assert set(arguments.split(", ")) <= {field.name for field in fields(VALUES[name])}, name
    methods = re.findall(r"\bstore\.(\w+)", PICTURE)
    assert methods == ["start", "end", "conclude", "finish"]
    for method in methods:
        assert callable(getattr(Store, method))
        assert callable(getattr(Journal, method))
    assert "decider.next(run, elapsed)" in PICTURE
    assert callable(decision.Decider.next)


def test_every_path_in_code_font_exists() -> None:
    named = [name for text in re.findall(r"`([^`\n]*/[^`\n]*)`", TEXT) for name in paths(text)]
    assert len(named) > 15
    known = [SOURCE, SOURCE.parents[1]]
    missing = [name for name in named if "KIND" not in name and not any((base / name).exists() for base in known)]
    assert missing == []


def test_the_floors_have_every_room_once() -> None:
    named = [room for _, names in floors() for room in names if room != "main"]
    assert sorted(named) == sorted(rooms() - OUTSIDE_FLOORS)
    numbers = [floor for floor, _ in floors()]
    assert numbers == list(range(numbers[0], -1, -1))


def test_the_floors_are_those_of_the_import_contract() -> None:
    project = (SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    layers = project.split("layers = [")[1].split("]")[0]
    contract = [sorted(re.findall(r"\w+", line)) for line in re.findall(r'"([^"]+)"', layers)]
    assert contract == [sorted(names) for _, names in floors()]


def test_every_folder_of_tests_is_a_room() -> None:
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders - rooms() == {WHOLE_PACKAGE}
    assert [path.name for path in TESTS.glob("*.py")] == [], "they lie in the folder of their room"


def test_every_room_that_decides_or_spends_has_tests() -> None:
    assert rooms() >= DECIDE_OR_SPEND
    assert [room for room in sorted(DECIDE_OR_SPEND) if not any((TESTS / room).rglob("test_*.py"))] == []


def test_the_coverage_gate_looks_at_the_rooms_that_decide_or_spend() -> None:
    gate = (SOURCE.parents[1] / "scripts" / "coverage_gate.py").read_text(encoding="utf-8")
    named = re.findall(r'"(\w+)(?:/|\.py)"', gate.split("ROOMS = (")[1].split(")")[0])
    assert set(named) == DECIDE_OR_SPEND


def test_no_two_files_of_tests_have_one_name() -> None:
    names = [path.name for path in TESTS.parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names)), "pytest takes the second for the first"
