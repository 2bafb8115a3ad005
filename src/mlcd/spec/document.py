"""YAML text as data with line numbers. Tags, aliases, second documents and duplicate keys are refused."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from mlcd.errors import SpecError, nearest
from mlcd.spec.node import YamlNode
from mlcd.spec.scalar import scalar
from mlcd.untrusted import Malformed, TooLarge, read_named

MOST_BYTES = 256 * 1024
MOST_DEPTH = 20

# (fragment of PyYAML's message, advice for the user); the first fragment that matches is used.
_HINTS = (
    ("scanning an alias", "a glob that begins with * needs quotes"),
    ("'\\t' that cannot start any token", "indent with spaces, not tabs"),
    ("cannot start any token", "put the value in quotes"),
    ("could not find expected ':'", "every field is written as NAME: VALUE"),
    ("unexpected end of stream", "a quote that is opened here is never closed"),
    ("expected ',' or", "a bracket or a comma is missing"),
    ("<block end>", "lines of one block begin in the same column"),
)
_NO_SPACE = re.compile(r"\s*[A-Za-z_][\w.-]*:[^\s:/]")
"""A field without the space after its colon, and no address."""
_ONE_FIELD = re.compile(r"\s*[^\s:]+:(?:\s[^:]*)?")
_INDENT = re.compile(r" *")

STANDARD_INPUT = "-"
"""The name of a job file that is read from standard input; its paths are relative to the current folder."""


def read_text(path: str | Path, *, missing: str = "there is no such file") -> str:
    """The file's text. Raises SpecError if the file cannot be read, is too large, or is not UTF-8."""
    file = Path(path)
    try:
        if file.is_dir():
            raise SpecError("is a directory, not a job file", file=str(path))
        data = _standard_input() if str(path) == STANDARD_INPUT else read_named(file, most_bytes=MOST_BYTES)
    except FileNotFoundError:
        raise SpecError(missing, file=str(path), nearest=_neighbour(file)) from None
    except TooLarge:
        allowed = f"at most {MOST_BYTES // 1024} KiB"
        raise SpecError("is too large for a job file", file=str(path), allowed=allowed) from None
    except Malformed as error:
        raise SpecError(f"cannot be read: {error.problem}", file=str(path)[:200]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot be read: {reason}", file=str(path)) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start : error.end]
        allowed = "a file that your editor saves as UTF-8"
        raise SpecError("is not UTF-8 text", file=str(path), line=line, value=bad, allowed=allowed) from None


def _standard_input() -> bytes:
    """All of it. Raises TooLarge."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TooLarge("standard input", "is too large")
    return data


def document(text: str, *, file: str, path: str = "") -> YamlNode:
    """The only document in `text`, of any type, with its fields named below `path`. Raises SpecError with the line."""
    if len(text) > MOST_BYTES:
        raise SpecError("is too large for a job file", file=file, allowed=f"at most {MOST_BYTES // 1024} KiB")
    builder = _Builder(text, YamlNode(value=None, file=file, line=1, path=path))
    try:
        return builder.document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError("not YAML: contains a character that is not allowed in text", file=file, line=line) from error
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, text, file) from error


def _not_yaml(error: yaml.MarkedYAMLError, text: str, file: str) -> SpecError:
    """PyYAML's error in one sentence, at the line that the user has to fix."""
    words = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark
    if "unexpected end of stream" in words and error.context_mark is not None:
        mark = error.context_mark
    line = mark.line + 1 if mark is not None else None
    hint = next((advice for fragment, advice in _HINTS if fragment in words), "")
    if line is not None and "mapping values are not allowed here" in words:
        line, hint = _misread_mapping(text.splitlines(), line)
    return SpecError(f"not YAML: {words}" + (f"; {hint}" if hint else ""), file=file, line=line)


def _misread_mapping(lines: list[str], line: int) -> tuple[int, str]:
    """Where YAML met a field in the middle of a value, from 1: the line to fix, and how."""
    before = next((n for n in range(line - 1, 0, -1) if lines[n - 1].strip()), 0)
    if before and _NO_SPACE.match(lines[before - 1]):
        return before, "write a space after the colon"
    is_deeper = before and len(_INDENT.match(lines[line - 1])[0]) > len(_INDENT.match(lines[before - 1])[0])
    if is_deeper and _ONE_FIELD.fullmatch(lines[line - 1]):
        return line, "it is indented more than the line before: fields of one block begin in the same column"
    return line, "a value with ': ' in it needs quotes"


def _neighbour(file: Path) -> str:
    """The YAML file in the same folder with the name most similar to the missing one (suffixes ignored), or ""."""
    try:
        names = {other.stem: other.name for other in file.parent.iterdir() if other.suffix in (".yaml", ".yml")}
    except OSError:
        return ""
    found = nearest(file.name.removesuffix(file.suffix), list(names))
    return str(file.with_name(names[found])) if found else ""


class _Builder:
    """Builds nodes from PyYAML's events. It does not use PyYAML's composer and constructor, which are not safe."""

    def __init__(self, text: str, root: YamlNode) -> None:
        self._events: Iterator[Event] = iter(yaml.parse(text, Loader=yaml.BaseLoader))
        self._root, self._file = root, root.file

    def document(self) -> YamlNode:
        root = self._root
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                root = self._node(next(self._events), root, depth=0)
            elif isinstance(event, DocumentEndEvent):
                break
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                raise self._error("only one document is allowed in a job file; remove the ---", event)
        return root

    def _error(self, problem: str, event: Event, field: str = "", value: object = None) -> SpecError:
        return SpecError(problem, file=self._file, line=_line(event), field=field, value=value)

    def _node(self, event: Event, place: YamlNode, depth: int) -> YamlNode:
        """The node that begins with `event`, at the path and line of `place`."""
        if isinstance(event, AliasEvent):
            problem = "YAML aliases are not allowed; write the value out, or put a glob that begins with * in quotes"
            raise self._error(problem, event, place.path, f"*{event.anchor}")
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if anchor is not None:
            raise self._error("YAML anchors are not allowed; write the value out", event, place.path, f"&{anchor}")
        if tag is not None:
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            raise self._error("YAML tags are not allowed: a job file is data only", event, place.path, shown)
        if depth > MOST_DEPTH:
            raise self._error(f"nested deeper than {MOST_DEPTH} levels", event, place.path[:80])
        if isinstance(event, SequenceStartEvent):
            return self._list(place, depth)
        if isinstance(event, MappingStartEvent):
            return self._mapping(place, depth)
        written: str = getattr(event, "value", "")
        value = scalar(written) if getattr(event, "style", None) is None else written
        return replace(place, value=value, written=written)

    def _list(self, place: YamlNode, depth: int) -> YamlNode:
        items: list[YamlNode] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            path = f"{place.path}[{len(items)}]"
            items.append(
                self._node(event, YamlNode(value=None, file=self._file, line=_line(event), path=path), depth + 1)
            )
        return replace(place, value=tuple(items))

    def _mapping(self, place: YamlNode, depth: int) -> YamlNode:
        fields: dict[str, YamlNode] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            name = self._node(
                event, YamlNode(value=None, file=self._file, line=_line(event), path=place.path), depth + 1
            )
            if not isinstance(event, ScalarEvent):
                raise self._error("a field's name must be text", event, place.path, name.shown())
            key = name.written
            path = place.child_path(key)
            if key in fields:
                raise self._error(f"given twice; first on line {fields[key].line}", event, path)
            below = YamlNode(value=None, file=self._file, line=_line(event), path=path)
            fields[key] = self._node(next(self._events), below, depth + 1)
        return replace(place, value=fields)


def _line(event: Event) -> int:
    """The line where `event` begins, from 1; PyYAML marks every event that comes from text."""
    return 1 if event.start_mark is None else event.start_mark.line + 1
