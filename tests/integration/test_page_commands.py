"""The commands of the pages are run as they are written, and print what the pages show."""

from pathlib import Path

import pytest
from tests.integration.test_docs import DOCS, script, text

pages = script("run_pages")
QUICK = [DOCS / "index.md"]
"""Pages whose commands are simulated: they take seconds."""


@pytest.mark.parametrize("page", QUICK, ids=lambda page: page.stem)
def test_the_commands_run_and_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ran = pages.run(text(page), tmp_path / "work", pages.environment(tmp_path / "home"))
    assert ran
    for each in ran:
        if each.shown is not None:
            again = f"run .venv/bin/python scripts/run_pages.py --write {page.relative_to(DOCS.parent)}"
            assert pages.masked(each.shown.text) == pages.masked(each.printed), again


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
