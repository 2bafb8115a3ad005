"""Every table of docs/ that comes from a record says what the record says."""

import re
from importlib import import_module
from pathlib import Path

import pages
import pytest

DOCS = pages.ROOT / "docs"
BY_DOCS_SCRIPT = "scripts/make_docs.py "


@pytest.fixture(scope="module")
def parts() -> dict[Path, dict[str, str]]:
    found: dict[Path, dict[str, str]] = {}
    for script in pages.SCRIPTS:
        for page, of in import_module(script).parts().items():
            found[page] = found.get(page, {}) | dict(of)
    return found


def test_the_pages_say_what_the_records_say(parts: dict[Path, dict[str, str]]) -> None:
    assert list(pages.changed(parts)) == [], "run: benchmarks/pages.py"


def test_the_pictures_show_what_the_records_say() -> None:
    for script in pages.SCRIPTS:
        assert list(pages.stale(pages.pictures_of(script))) == [], "run: benchmarks/pages.py"


def test_a_picture_that_is_missing_or_differs_is_stale(tmp_path: Path) -> None:
    same, other, missing = (tmp_path / name for name in ("same.svg", "other.svg", "missing.svg"))
    same.write_text("a")
    other.write_text("b")
    assert pages.stale({same: "a", other: "a", missing: "a"}) == {other: "a", missing: "a"}


def test_every_mark_belongs_to_a_record(parts: dict[Path, dict[str, str]]) -> None:
    notes = pages.ROOT / "benchmarks" / "notes"
    for page in (pages.ROOT / "README.md", *DOCS.rglob("*.md"), *notes.glob("*.md")):
        names = re.findall(r"<!-- begin: (.*?) -->", page.read_text(encoding="utf-8"))
        assert {name for name in names if not name.startswith(BY_DOCS_SCRIPT)} == set(parts.get(page, {})), page


def test_a_page_without_the_marks_is_refused() -> None:
    assert pages.filled("a <!-- begin: x --> b <!-- end: x --> c", {"x": "new"}) == (
        "a <!-- begin: x -->\n\nnew\n\n<!-- end: x --> c"
    )
    with pytest.raises(ValueError, match="no place for y"):
        pages.filled("a <!-- begin: x --> b <!-- end: x --> c", {"y": "new"})
