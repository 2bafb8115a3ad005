"""What mkdocs does beside rendering docs/: pages from outside it, links that leave it, a search index of bounded size.

A link from docs/ to a file of the repository that the site does not have is shown as that file's path, without a link:
the site works from disk, where there is nothing at the other end.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {name: f"develop/{name.lower()}" for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")} | {
    f"benchmarks/notes/{page.name}": f"notes/{page.name}"
    for page in sorted((ROOT / "benchmarks" / "notes").glob("*.md"))
}
"""Pages that are kept outside docs/ -> where the site has them."""
INDEXED_LETTERS = 600
"""The search index keeps so much of each section: its words, not its tables. 70 pages then take 400 kB."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for name, place in FROM_ROOT.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page with links that lead somewhere on the site."""
    place = page.file.src_uri
    source = next((name for name, target in FROM_ROOT.items() if target == place), f"docs/{place}")
    parts: list[str] = []
    at = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_linked(markdown[at : fence.start()], source, place), _titled(fence.group())]
        at = fence.end()
    return "".join([*parts, _linked(markdown[at:], source, place)])


def _titled(fence: str) -> str:
    """A block whose first line has a file's name has it as its title; words that only tests read are left out."""
    mark, language, words = re.match(r"(```|~~~)(\S*)(.*)", fence).groups()  # type: ignore[union-attr]
    name = next((word for word in words.split() if "." in word), None)
    title = f' title="{name}"' if name else ""
    return f"{mark}{language}{title}{fence[len(mark + language + words) :]}"


def _linked(text: str, source: str, place: str) -> str:
    return _LINK.sub(lambda link: _target(link, source, place), text)


def _target(link: re.Match[str], source: str, place: str) -> str:
    """The link as the site has it: `source` is the page's path in the repository, `place` its path on the site."""
    picture, words, target = link.groups()
    path, mark, anchor = target.partition("#")
    if "://" in target or not path:
        return link.group()
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if wanted in FROM_ROOT:
        there = FROM_ROOT[wanted]
    elif wanted == "README.md":
        there = "index.md"
    elif wanted.startswith("docs/"):
        there = wanted.removeprefix("docs/")
        if (ROOT / wanted).is_dir():
            there += "/README.md"
    else:
        shown = words if words.startswith("`") or words == wanted else f"{words} (`{wanted}`)"
        return shown if words != wanted else f"`{wanted}`"
    return f"{picture}[{words}]({posixpath.relpath(there, posixpath.dirname(place) or '.')}{mark}{anchor})"


def on_page_content(html: str, **_: Any) -> str:
    """Pictures link to themselves: opened alone, an SVG says more of each mark that one points at."""
    return re.sub(r'<img [^>]*src="([^"]+\.svg)"[^>]*/?>', r'<a href="\1">\g<0></a>', html)


def on_post_build(config: MkDocsConfig) -> None:
    """Shorten the search index, which every page loads, and leave out the maps of the theme's own sources."""
    site = Path(config.site_dir)
    index = site / "search" / "search_index.json"
    found: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    for entry in found["docs"]:
        words = re.sub(r"<(table|pre).*?</\1>|<[^>]+>", " ", entry["text"], flags=re.S)
        entry["text"] = " ".join(words.split())[:INDEXED_LETTERS]
    index.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    for path in site.rglob("*.map"):
        path.unlink()
