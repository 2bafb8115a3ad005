"""The docs say what the product does: generated pages are up to date, examples run, links lead somewhere."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest
from coverage import CoverageData

import mlcd
from mlcd.catalog import load_catalog
from mlcd.catalog.load import FIELDS
from mlcd.cli.main import cli
from mlcd.clouds.replay import load_workloads
from mlcd.space import Config
from mlcd.trial.outcome import Status

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks" / "notes").glob("*.md")])


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_merge_left_no_marks(page: Path) -> None:
    assert not re.findall(r"^(?:<<<<<<<|>>>>>>>)", text(page), re.MULTILINE)


def test_every_command_is_documented() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert f"## mlcd {name}\n" in text(DOCS / "cli.md")


def test_the_help_page_is_up_to_date() -> None:
    assert text(DOCS / "cli.md") == script("make_docs").cli_page(), "run .venv/bin/python scripts/make_docs.py"


def test_the_page_of_the_python_api_is_up_to_date() -> None:
    page = text(DOCS / "reference" / "api.md")
    assert page == script("make_docs").api_page(), "run .venv/bin/python scripts/make_docs.py"
    for name in ("train", "serve", "serverless", "steps", "Search"):
        assert f"### mlcd.{name}\n" in page


def test_the_shipped_schemas_are_those_of_the_types() -> None:
    made = script("make_docs")
    for kind, name in made.SCHEMA_FILES.items():
        assert text(made.REPORT / name) == made.schema_text(kind), "run .venv/bin/python scripts/make_docs.py"


def test_the_output_page_is_up_to_date() -> None:
    page = text(DOCS / "output.md")
    assert page == script("make_docs").output_page(page), "run .venv/bin/python scripts/make_docs.py"


def test_every_exit_code_is_documented() -> None:
    page = text(DOCS / "exit-codes.md")
    for code in {0, 1, 2, 7, 130} | {status.exit_code for status in Status}:
        assert f"| {code} |" in page


@pytest.mark.nodes  # one example is a real load test
def test_the_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text(DOCS / "python.md"), re.S)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert (tmp_path / "speed.svg").exists()
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "served.html").exists()
    assert (tmp_path / "epochs.svg").exists()


def test_the_tables_of_the_replay_page_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = text(DOCS / "replay.md")
    (tmp_path / "tables").mkdir()
    for name, table in re.findall(r"```csv (\S+)\n(.*?)```", page, re.S):
        (tmp_path / name).write_text(table)
    workloads = load_workloads(tmp_path / "tables")
    assert set(workloads) == {"als", "cnn-b16-lr0.001-sync", "cnn-b256-lr0.001-async"}
    assert all(f"`{name}`" in page for name in workloads)
    assert workloads["als"].seconds[Config.deployment("c4.large", 8)] == 1330
    assert workloads["als"].seconds[Config.deployment("m4.large", 4)] is None
    jobs = re.findall(r"```yaml job\n(.*?)```", page, re.S)
    results = [mlcd.train(job, home=tmp_path / "home") for job in jobs]
    assert [result.status for result in results] == [Status.DONE, Status.DONE]
    assert [len(result.record.problem.space) for result in results] == [7, 4]


def test_the_code_of_the_plug_in_page_is_that_of_the_example() -> None:
    blocks = re.findall(r"```(?:python|toml) (examples/\S+)\n(.*?)```", text(DOCS / "plugins.md"), re.S)
    assert len({file for file, _ in blocks}) == 5
    for file, code in blocks:
        assert code in text(ROOT / file), file


def test_the_files_of_the_catalog_page_are_catalogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCD_CATALOG", raising=False)
    page = text(DOCS / "catalog.md")
    packaged = load_catalog()
    for kind in ("csv", "yaml"):
        (example,) = re.findall(rf"```{kind}\n(.*?)```", page, re.S)
        (tmp_path / f"own.{kind}").write_text(example)
        own = load_catalog(tmp_path / f"own.{kind}")
        assert len(own.instances) == len(packaged.instances) + 1
        assert len(own.for_cloud("lab")) == 1
    assert f"{len(packaged.instances)} types, as of\n{packaged.date}" in page
    for name in (*packaged.sets, *FIELDS):
        assert f"`{name}`" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", text(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_coverage_gate_can_fail(tmp_path: Path) -> None:
    gate = script("coverage_gate")
    rooms = tuple(f"{room}a.py" if room.endswith("/") else room for room in gate.ROOMS)

    def verdict(branches: int, names: tuple[str, ...] = rooms) -> int:
        summary = {"num_statements": 100, "covered_lines": 100, "num_branches": 100, "covered_branches": branches}
        files = {f"src/mlcd/{name}": {"summary": summary} for name in names}
        (tmp_path / "c.json").write_text(f'{{"files": {files}}}'.replace("'", '"'))
        code: int = gate.main([str(tmp_path / "c.json")])
        return code

    least = round(100 * gate.LEAST)
    assert verdict(least) == 0
    assert verdict(least - 1) == 1
    assert verdict(100, rooms[1:]) == 1
    assert verdict(100, tuple(room for room in rooms if room != "ledger.py")) == 1, "epoch_ledger.py is another room"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (None, "cannot be read"),
        ('{"files": {', "cannot be read"),
        ("[]", "is not a report"),
        ('{"files": {"src/mlcd/ledger.py": []}}', "no num_statements of src/mlcd/ledger.py"),
        (
            '{"files": {"src/mlcd/ledger.py": {"summary": {"num_statements": 1, "covered_lines": 1}}}}',
            "no branches of src/mlcd/ledger.py",
        ),
    ],
)
def test_the_coverage_gate_fails_on_a_file_that_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str | None, says: str
) -> None:
    if written is not None:
        (tmp_path / "c.json").write_text(written)
    assert script("coverage_gate").main([str(tmp_path / "c.json")]) == 1
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "code", "says"),
    [
        (lambda whole: b"no database", 1, "cannot be read"),
        (lambda whole: whole[: len(whole) // 2], 1, "cannot be read"),
        (lambda whole: whole.replace(b"CREATE TABLE meta", b"CREATE TABLE atem"), 1, "cannot be read"),
        (lambda whole: b"", 0, "has no measurement"),
    ],
    ids=["no database", "cut", "damaged", "killed before it wrote"],
)
def test_the_coverage_gate_fails_on_more_unreadable_data_than_kills_explain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes], code: int, says: str
) -> None:
    """`coverage combine` leaves a data file that it cannot read, warns, and ends with 0."""
    gate = script("coverage_gate")
    summary = dict.fromkeys(gate.COUNTS, 1)
    files = {f"src/mlcd/{room}{'a.py' if room.endswith('/') else ''}": {"summary": summary} for room in gate.ROOMS}
    report = tmp_path / ".coverage.json"
    report.write_text(json.dumps({"files": files}))
    whole = CoverageData(str(tmp_path / ".coverage.host.1.late"))
    whole.add_lines({"a.py": [1]})
    whole.write()
    whole.close()
    assert gate.main([str(report)]) == 0, "a file that can be read is of a process that ended late"
    assert "not counted" not in capsys.readouterr().out
    bad = damage((tmp_path / ".coverage.host.1.late").read_bytes())
    for number in range(gate.MOST_UNREADABLE):
        (tmp_path / f".coverage.host.2.{number}").write_bytes(bad)
    assert gate.main([str(report)]) == 0, "tests kill processes"
    assert f"not counted: {tmp_path / '.coverage.host.2.0'} {says}" in capsys.readouterr().out
    (tmp_path / ".coverage.host.3.more").write_bytes(bad)
    assert gate.main([str(report)]) == code


def test_the_coverage_gate_needs_a_report() -> None:
    assert script("coverage_gate").main([]) == 1


def test_the_coverage_gate_knows_every_room() -> None:
    for room in script("coverage_gate").ROOMS:
        assert (Path(mlcd.__file__).parent / room).exists(), room


FOREIGN_MESSAGES = ("can't open file", "train.py", "ModuleNotFoundError", "No module named 'mlcd'")
"""Messages on the page of troubleshooting that are Python's, or a job's."""


def test_the_messages_of_the_troubleshooting_page_are_ours() -> None:
    """What people search the page for is what mlcd says; source lines are joined, as messages are."""
    sources = " ".join(file.read_text(encoding="utf-8") for file in Path(mlcd.__file__).parent.rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", sources)
    quoted = re.findall(r"^\| ((?:[^|])+) \|", text(DOCS / "troubleshooting.md"), re.M)
    messages = [message for cell in quoted for message in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 15
    for message in messages:
        parts = [part.strip(" :;") for part in re.split(r"\.\.\.|\bRUN\b", message)]
        for part in (part for part in parts if part and part not in FOREIGN_MESSAGES):
            assert part in said, f"{message!r}: mlcd says no such thing as {part!r}"
