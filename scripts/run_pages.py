"""Runs the commands of documentation pages, in order, each page in an empty folder.

    .venv/bin/python scripts/run_pages.py [--write] PAGE...

What a block is follows from the first line of its fence:

    sh                       commands, run by bash; the first that fails ends the page
    sh install, sh elsewhere not run: what the reader installs, and what needs an account or a cluster
    yaml job.yaml            a file of that name (any language), written before the next commands run
    text output              what the commands before it print to standard output
    text example             the same of a real run, which differs from time to time: written, not compared

With --write, `text output` blocks are written anew where the commands print something else, and pictures that they draw
and the page shows are kept in docs/images. Tests compare the blocks with numbers masked.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT, EXAMPLE = "output", "example"
_BLOCK = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.M | re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page: its language, the words after it, its text, and where the text is."""

    language: str
    words: tuple[str, ...]
    text: str
    start: int
    end: int

    @property
    def is_commands(self) -> bool:
        """Whether its lines are run."""
        return self.language == "sh" and not self.words

    @property
    def is_output(self) -> bool:
        """Whether it is what the commands before it print."""
        return self.language == "text" and self.words in ((OUTPUT,), (EXAMPLE,))

    def is_like(self, printed: str) -> bool:
        """Whether it shows what was printed, but for names of runs and numbers; an example shows something."""
        if self.words == (EXAMPLE,):
            return bool(self.text.strip())
        return masked(self.text) == masked(printed)

    @property
    def file(self) -> str | None:
        """The file that it is the content of."""
        named = self.language not in ("sh", "text") and len(self.words) == 1 and "." in self.words[0]
        return self.words[0] if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A block of commands, what it printed, and the block of the page that shows it."""

    commands: Block
    printed: str
    shown: Block | None


class PageFailed(Exception):
    """A command of a page did not end with 0."""


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _BLOCK.finditer(page):
        language, words = found.group(2), tuple(found.group(3).split())
        yield Block(language=language, words=words, text=found.group(4), start=found.start(4), end=found.end(4))


def run(page: str, folder: Path, environment: Mapping[str, str]) -> list[Ran]:
    """Write the page's files into `folder` and run its commands there. Raises PageFailed."""
    done: list[Ran] = []
    for block in blocks(page):
        if block.file is not None:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.is_commands:
            done.append(Ran(commands=block, printed=_printed(block.text, folder, environment), shown=None))
        elif block.is_output and done:
            done[-1] = Ran(commands=done[-1].commands, printed=done[-1].printed, shown=block)
    return done


def _printed(commands: str, folder: Path, environment: Mapping[str, str]) -> str:
    ended = subprocess.run(  # noqa: S603 - the commands of our own pages
        ["/bin/bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode != 0:
        raise PageFailed(f"{commands}\nended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout.replace(environment.get("MLCD_HOME", "\0"), "~/.mlcd")


def environment(home: Path) -> dict[str, str]:
    """What the commands run with: this checkout's mlcd, a state folder of their own, 100 columns, no colours."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "MLCD_HOME": str(home), "COLUMNS": "100", "NO_COLOR": "1"}


def masked(text: str) -> list[str]:
    """The lines of an output without what differs from run to run and machine to machine: names of runs, numbers."""
    text = re.sub(r"\b([a-z][\w.]*(?:-[\w.]+)*)-[0-9a-f]{6}\b", r"\1-RUN", text)
    lines = (re.sub(r"\d[\d,.]*", "0", line) for line in text.splitlines())
    return [" ".join(line.split()) for line in lines if line.strip()]


def written(page: str, ran: list[Ran]) -> str:
    """The page with every output block as its commands print it now."""
    for each in reversed(ran):
        if each.shown is not None and not each.shown.is_like(each.printed):
            page = page[: each.shown.start] + each.printed.strip("\n") + "\n" + page[each.shown.end :]
    return page


def _keep_pictures(page: str, folder: Path) -> None:
    """Take the pictures that the commands have drawn and that the page shows into docs/images."""
    for name in re.findall(r"\]\((?:\.\./|docs/)*images/([\w.-]+\.svg)\)", page):
        if (folder / name).exists():
            shutil.copy(folder / name, ROOT / "docs" / "images" / name)


def main(arguments: list[str]) -> int:
    """Run the pages; 1 where one fails or shows something else than is printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    failed = 0
    for page in given.pages:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "work").mkdir()
            ran = run(text, Path(folder) / "work", environment(Path(folder) / "home"))
            if given.write:
                _keep_pictures(text, Path(folder) / "work")
        new = written(text, ran)
        if given.write:
            page.write_text(new, encoding="utf-8")
        elif new != text:
            failed = 1
        print(f"{page}: {len(ran)} blocks of commands{'' if new == text else ', other output'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
