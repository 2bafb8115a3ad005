"""The documentation site: built strictly, complete on disk, every link leads somewhere, no page is heavy."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.together("the site")

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1_000_000
"""The most that opening one page may load, the search included."""


class Links(HTMLParser):
    """What a page links to (`a`), what it loads (everything else), and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.goes: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.goes.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Links]) -> None:
    assert len(pages) > 50
    dead = []
    for page, links in pages.items():
        for link in [*links.goes, *links.loads]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            there = target.is_file() and (
                not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
            )
            if not there:
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_every_asset_is_local(pages: dict[Path, Links]) -> None:
    for page, links in pages.items():
        assert [link for link in links.loads if urlsplit(link).netloc or link.startswith("/")] == [], page


def test_no_page_is_heavy(site: Path, pages: dict[Path, Links]) -> None:
    search = [*site.glob("search/search_index.js"), *site.glob("assets/javascripts/workers/search*.js")]
    assert len(search) == 2, "the theme has changed what its search loads"
    weights = {}
    for page, links in pages.items():
        loaded = {(page.parent / unquote(urlsplit(link).path)).resolve() for link in links.loads}
        weights[str(page.relative_to(site))] = sum(file.stat().st_size for file in {page, *loaded, *search})
    assert {name: weight for name, weight in weights.items() if weight >= MOST_BYTES} == {}
