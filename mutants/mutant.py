"""A fault of one line: which text of which file it replaces, and which tests must notice."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

LIST = Path(__file__).parent / "list"
"""One TOML file for each room of src/mlcd."""


class Unfit(Exception):
    """A mutant that cannot be judged: its text is not there any more, its tests are not, or it is no Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault.

    room        name of the list's file
    file        relative to the repository
    old, new    `old` must occur exactly once in the file, and is replaced by `new`
    what        the fault in words
    tests       files of tests, one of which must fail
    equivalent  why no test can tell the fault from the original; "" where one can
    """

    name: str
    room: str
    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]
    equivalent: str = ""

    def applied(self, root: Path) -> str:
        """The text of the file with the fault. Raises Unfit, which says why, where that is not possible."""
        path = root / self.file
        if not path.is_file():
            raise Unfit(f"{self.file}: no such file")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise Unfit(f"{self.file}: has {self.old!r} {count} times, not once")
        if missing := [test for test in self.tests if not (root / test).is_file()]:
            raise Unfit(f"{missing[0]}: no such file of tests")
        changed = text.replace(self.old, self.new)
        if changed == text:
            raise Unfit(f"{self.file}: the fault changes nothing")
        try:
            compile(changed, self.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Unfit(f"{self.file}: is no Python with the fault: {error}") from error
        return changed


def read_list(folder: Path = LIST) -> tuple[Mutant, ...]:
    """All mutants of a folder, in the order of its files. Raises ValueError naming file and mutant."""
    known = {field.name for field in fields(Mutant)} - {"room"}
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            where = f"{path.name}: {entry.get('name', 'a mutant without a name')}"
            missing = known - {"equivalent"} - set(entry)
            if missing or not set(entry) <= known or not entry["tests"]:
                raise ValueError(f"{where}: needs {', '.join(sorted(known - {'equivalent'}))}, and may have equivalent")
            if entry["name"] in found:
                raise ValueError(f"{where}: the name is taken")
            found[entry["name"]] = Mutant(room=path.stem, **{**entry, "tests": tuple(entry["tests"])})
    return tuple(found.values())
