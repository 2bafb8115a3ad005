"""The page's own files, and those of others: all inside the package, and as they were fetched."""

import hashlib
import re
from importlib.resources import files

from mlcd.web.app import STATIC

FOLDER = files("mlcd.web") / "static"


def test_files_of_others_are_as_they_were_fetched() -> None:
    rows = re.findall(r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 2
    for name, digest in rows:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest


def test_every_file_is_served_and_loads_nothing_from_elsewhere() -> None:
    own = {each.name for each in FOLDER.iterdir() if each.name.endswith((".js", ".css"))}
    assert own == set(STATIC)
    for name in own - {"uPlot.iife.min.js"}:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.search(r"innerHTML\s*\+?=(?!=)", text), name
        assert not re.search(r"\beval\(|new Function|document\.write|insertAdjacentHTML|outerHTML", text), name


def test_templates_have_no_inline_script_or_style() -> None:
    for each in (files("mlcd.web") / "templates").iterdir():
        text = each.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), each.name
        assert not re.search(r"\son[a-z]+=|\sstyle=|<style|\| *safe\b|javascript:", text), each.name
