"""The HTML pages of all kinds: one base page, self-contained, and no text of a record becomes markup."""

import dataclasses
import html
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from jinja2 import UndefinedError
from tests.rendered import html_of, serverless_html_of, serving_html_of
from tests.report_kind_samples import SERVERLESS, SERVING
from tests.report_samples import SAMPLES

from mlcd.report.page import Page, render

PAGES: dict[str, tuple[Callable[[], Any], Callable[[Any], str]]] = {
    **{f"train-{name}": (make, html_of) for name, make in SAMPLES.items()},
    **{f"serve-{name}": (make, serving_html_of) for name, make in SERVING.items()},
    **{f"serverless-{name}": (make, serverless_html_of) for name, make in SERVERLESS.items()},
}
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'&{{ 7 * 7 }}"


class Tags(HTMLParser):
    """The tags and the attributes that a page has, which must balance."""

    VOID = frozenset({"meta", "br", "img", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(text: str) -> None:
    page = Tags(text)
    assert not page.open
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base"}
    assert not page.attributes & {"src", "href", "style"}
    assert not {name for name in page.attributes if name.startswith("on")}
    for loads in ("@import", "url("):
        assert loads not in text


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_one_frame_and_needs_nothing_beside_it(name: str) -> None:
    make, page = PAGES[name]
    record, css = make(), (files("mlcd.report") / "templates" / "report.css").read_text(encoding="utf-8")
    text = page(record)
    check(text)
    assert text.startswith('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n')
    assert text.endswith("</body>\n</html>\n")
    assert text.count("<main>") == text.count("<footer>") == text.count("<h1>") == 1
    assert css.strip() in text
    head = f"<span>{html.escape(record.created)}</span><span>"
    assert f'<header class="top"><b>mlcd</b>{head}' in text
    assert f"<footer>mlcd {record.version}" in text


def texts(value: object) -> Iterator[str]:
    """The texts inside a record. Names of knobs and kinds are the program's own."""
    if type(value) is str:
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if (type(value).__name__, field.name) not in (("Knob", "name"), ("RunRecord", "kind")):
                yield from texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)


def with_text(value: Any, old: str, new: str) -> Any:
    """The record with another text wherever it has `old`."""
    if type(value) is str:
        return new if value == old else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: with_text(getattr(value, name), old, new) for name in fields})
    if isinstance(value, Mapping):
        return {with_text(key, old, new): with_text(item, old, new) for key, item in value.items()}
    return tuple(with_text(item, old, new) for item in value) if isinstance(value, tuple) else value


OWN_WORDS = {"instance", "nodes", "batch", "threads", "replicas", "precision", ""}


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("train-both-limits", 12),
        ("train-run-failed", 12),
        ("train-nothing-fits", 8),
        ("serve-fallen", 12),
        ("serve-nothing-fits", 9),
        ("serverless-done", 8),
    ],
)
def test_no_text_of_a_record_becomes_markup(name: str, least: int) -> None:
    make, page = PAGES[name]
    record, shown = make(), 0
    for old in sorted(set(texts(record)) - OWN_WORDS):
        text = page(with_text(record, old, old + HOSTILE))
        check(text)
        assert "<img" not in text
        assert "<script" not in text
        assert "49" not in text.partition("onerror")[2][:40]
        shown += "&lt;img src=x" in text
    assert shown >= least


@pytest.mark.parametrize("name", PAGES)
def test_all_texts_of_a_record_together_do_not_become_markup(name: str) -> None:
    make, page = PAGES[name]
    record = make()
    for old in sorted(set(texts(record)) - OWN_WORDS):
        record = with_text(record, old, old + HOSTILE)
    text = page(record)
    check(text)
    assert text.count("&lt;img src=x") > 4


def test_a_missing_template_value_raises() -> None:
    page = Page(name="a", run_id="a-1", created="now", asked="?", answer="!", footer="mlcd")
    with pytest.raises(UndefinedError, match=r"pictures|decisions"):
        render("tables.html.j2", page, tables=())


def test_templates_are_read_only_for_a_page() -> None:
    code = "import mlcd.cli.main, mlcd.report.html, sys; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
