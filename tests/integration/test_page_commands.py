"""The commands of the pages are run as they are written, and print what the pages show."""

import re
from pathlib import Path

import pytest
from tests.integration.test_docs import DOCS, ROOT, script, text

from mlcd.spec import parse_train

pages = script("run_pages")
README = ROOT / "README.md"
TUTORIALS = DOCS / "tutorials"
OWN_SCRIPT = TUTORIALS / "own-script.md"
SIMULATED = [DOCS / "index.md", TUTORIALS / "functions.md", TUTORIALS / "ci.md", TUTORIALS / "aws.md"]
"""Pages whose commands take seconds, and need nothing."""
SERVING = TUTORIALS / "serving.md"


def check(page: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ran = pages.run(text(page), tmp_path / "work", pages.environment(tmp_path / "home"))
    assert ran
    for each in ran:
        if each.shown is not None:
            again = f"run .venv/bin/python scripts/run_pages.py --write {page.relative_to(DOCS.parent)}"
            assert each.shown.is_like(each.printed), again


@pytest.mark.parametrize("page", SIMULATED, ids=lambda page: page.stem)
def test_the_commands_run_and_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.nodes
@pytest.mark.waits
@pytest.mark.parametrize("page", [README, pytest.param(SERVING, marks=pytest.mark.extra)], ids=lambda page: page.stem)
def test_the_commands_run_on_this_machine(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.nodes
@pytest.mark.waits
def test_the_script_of_the_tutorial_is_searched_and_trained(tmp_path: Path) -> None:
    """Its commands as written, on a fraction of its training."""
    page = text(OWN_SCRIPT)
    for written, short in (("20_000 * 60", "20_000 * 2"), ("epochs: 60", "epochs: 2"), ("minutes: 0.25", "minutes: 1")):
        assert page.count(written) == 1
        page = page.replace(written, short)
    (tmp_path / "work").mkdir()
    ran = pages.run(page, tmp_path / "work", pages.environment(tmp_path / "home"))
    assert (Path(ran[-1].printed.strip().replace("~/.mlcd", str(tmp_path / "home"))) / "model.pt").exists()


@pytest.mark.extra
@pytest.mark.nodes
def test_the_tutorial_runs_whole(tmp_path: Path) -> None:
    check(OWN_SCRIPT, tmp_path)


def test_the_readme_is_short_and_its_jobs_are_jobs() -> None:
    page = text(README)
    assert len(page.splitlines()) < 150
    jobs = [block.text for block in pages.blocks(page) if block.language == "yaml"]
    assert len(jobs) == 2
    for job in jobs:
        parse_train(job)


def test_every_tutorial_is_run_or_needs_a_cluster() -> None:
    run = {*SIMULATED, SERVING, OWN_SCRIPT, TUTORIALS / "slurm.md"}
    assert set(TUTORIALS.glob("*.md")) <= run
    for page in TUTORIALS.glob("*.md"):
        jobs = [block for block in pages.blocks(text(page)) if block.file and block.file.endswith(".yaml")]
        assert jobs, page
    (slurm,) = [block.text for block in pages.blocks(text(TUTORIALS / "slurm.md")) if block.file]
    assert parse_train(slurm).resources.infra == "slurm"


def test_the_notebook_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCD_HOME", str(tmp_path))
    names: dict[str, object] = {}
    for block in pages.blocks(text(DOCS / "how-to" / "notebooks.md")):
        exec(compile(block.text, "notebooks.md", "exec"), names)
    assert len(names["frame"]) == len(names["result"].trials)  # type: ignore[arg-type,attr-defined]


def test_a_command_that_fails_fails_the_page(tmp_path: Path) -> None:
    page = "```python a.py\nimport sys\nsys.exit(3)\n```\n\n```sh\npython3 a.py\n```\n"
    with pytest.raises(pages.PageFailed, match="ended with 3"):
        pages.run(page, tmp_path, {})


def test_output_is_told_from_what_is_only_shown(tmp_path: Path) -> None:
    page = "```sh install\nfalse\n```\n```sh\necho run-1a2b3c took 3.5 s\n```\n"
    page += "```text\nelse\n```\n```text output\nold\n```\n"
    (ran,) = pages.run(page, tmp_path, {})
    assert ran.shown.text == "old\n"
    assert pages.written(page, [ran]).endswith("```text output\nrun-1a2b3c took 3.5 s\n```\n")
    assert pages.masked(ran.printed) == pages.masked("run-ffffff took 17 s\n")
    assert pages.masked(ran.printed) != pages.masked("run-ffffff took 17 min\n")


def test_install_lines_work_from_a_clone() -> None:
    """mlcd is not on an index yet: `pip install mlcd[...]` finds nothing there."""
    wrong = re.compile(r"pip install ['\"]?mlcd\b")
    assert [
        page.name for page in (README, *sorted(DOCS.rglob("*.md"))) if wrong.search(page.read_text(encoding="utf-8"))
    ] == []
