"""The tables of docs/, written from the committed records.

    .venv/bin/python benchmarks/pages.py            # every table of every page
    .venv/bin/python benchmarks/pages.py --check    # exit code 1 where a page does not say what its record says

Each of the scripts below measures, keeps a record in benchmarks/results, and has a function `parts`: what it writes
into which page; some have `pictures`: the files of docs/images that follow from the record. A page keeps its own words
around `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = (
    "record_strategies",
    "reported_trials",
    "trial_reports",
    "economics",
    "record_protocols",
    "losses",
    "earlier_jobs",
    "peers.run",
    "suggestions",
    "record_paper",
    "record_scavenger",
    "record_serve",
    "record_serve_tables",
    "record_llm",
    "record_serverless",
    "minicloud_search",
    "serve_wrk",
    "final_speed",
    "guarantee",
    "chaos",
    "noise_overhead",
    "serve_loadgen",
    "chat_guidellm",
    "chat_streams",
    "serve_real",
    "serve_verify",
    "serve_nodes",
    "record_serve_gpu",
    "serverless_sync",
    "ask_tell",
    "scale",
    "physical_prior",
    "ui_page",
    "spot_market",
    "choice_protocols",
    "minicloud_spot",
)

UNCOMMITTED = " with changes"
"""Follows the commit where the working tree differs from it."""

Parts = Mapping[Path, Mapping[str, str]]
"""Page -> name of a part -> its text."""


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with the text of each part between its marks. Raises ValueError where a mark is missing."""
    for name, text in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"there is no place for {name}: the page needs {begin} and {end}")
        page = f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"
    return page


def changed(parts: Parts) -> dict[Path, str]:
    """The pages that do not say what their records say, as they should be."""
    texts = {page: filled(page.read_text(encoding="utf-8"), of) for page, of in parts.items()}
    return {page: text for page, text in texts.items() if page.read_text(encoding="utf-8") != text}


def pictures_of(script: str) -> dict[Path, str]:
    """The pictures that follow from a script's record; none where it draws none."""
    draw: Callable[[], dict[Path, str]] = getattr(import_module(script), "pictures", dict)
    return draw()


def stale(pictures: Mapping[Path, str]) -> dict[Path, str]:
    """The pictures that do not show what their records say, as they should be."""
    return {path: text for path, text in pictures.items() if not path.exists() or path.read_text("utf-8") != text}


def write(parts: Parts) -> None:
    """Write the pages that differ."""
    for page, text in changed(parts).items():
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.relative_to(ROOT)}")


def sources(*folders: str) -> str:
    """The commit that last changed these folders (all of the product by default), and whether they differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    paths = folders or ("src",)
    changes = git("status", "--porcelain", "--", *paths)
    return f"{git('log', '-1', '--format=%h', '--', *paths) or 'unknown'}{UNCOMMITTED if changes else ''}"


def main() -> int:
    """Write or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    wrong: list[Path] = []
    for script in SCRIPTS:
        parts = import_module(script).parts()
        drawn = stale(pictures_of(script))
        wrong += [*changed(parts), *drawn]
        if not arguments.check:
            write(parts)
            for path, text in drawn.items():
                path.write_text(text, encoding="utf-8")
    if arguments.check:
        for page in wrong:
            print(f"{page.relative_to(ROOT)} does not say what its record says: run benchmarks/pages.py")
    return 1 if arguments.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
