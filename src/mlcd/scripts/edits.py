"""Edits that several kinds of scripts need."""

import ast
from collections.abc import Iterable, Sequence

from mlcd.scripts.reading import Source, keyword, text_constant
from mlcd.scripts.script import Edit, Save

MOST_OPTIONS = 5
MOST_SHOWN = 60


def import_edit(source: Source, modules: Sequence[str]) -> Edit:
    """The line that imports mlcd, after the last import at the top level."""
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    first = source.tree.body[0] if source.tree.body else None
    is_docstring = isinstance(first, ast.Expr) and text_constant(first.value) is not None
    last = imports[-1] if imports else first if is_docstring else None
    line = 1 if last is None else (last.end_lineno or last.lineno) + 1
    return Edit(line=line, last=line - 1, new=tuple(f"import {module}" for module in modules), why="mlcd itself")


def with_inserted(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits in order; those that insert at one place are joined, so that their order is kept."""
    joined: dict[tuple[int, int], Edit] = {}
    for edit in edits:
        key = edit.line, edit.last
        before = joined.get(key)
        if before is None:
            joined[key] = edit
        elif edit.last < edit.line:
            joined[key] = Edit(line=edit.line, last=edit.last, new=(*before.new, *edit.new), why=before.why)
    return tuple(sorted(joined.values(), key=lambda edit: (edit.line, edit.last)))


def outside_notes(saves: Iterable[Save]) -> list[str]:
    """A note for each file that is saved where it cannot be an output."""
    return [
        f"line {save.line}: {save.path} is outside the working folder, so it is not brought back; give a relative path"
        for save in saves
        if save.path and not save.is_inside
    ]


def option_notes(source: Source) -> list[str]:
    """A note for each argument of argparse that the script does not run without."""
    notes = []
    for call in source.calls("add_argument"):
        name = text_constant(call.args[0]) if call.args else None
        required = keyword(call, "required")
        if name is None or keyword(call, "default") is not None:
            continue
        is_optional = text_constant(keyword(call, "nargs")) in ("?", "*")
        if isinstance(required, ast.Constant) and required.value is True if name.startswith("-") else not is_optional:
            notes.append(f"line {call.lineno}: the script needs {name[:MOST_SHOWN]}: add it to `run` in the job file")
    return notes[:MOST_OPTIONS]
