"""Every field that a job file may have, found by walking the tables that read job files.

A table is reached from its reader's fields, from the cells of a function's closure, from the names that a function
uses, or from the fields of a value of `mlcd.spec` among those. A field that is added to a job file is therefore found
without a change here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import CodeType, FunctionType
from typing import Any

from mlcd.spec.functions import SERVERLESS
from mlcd.spec.job_file import JobFile
from mlcd.spec.parse import TRAIN
from mlcd.spec.record import FieldTable
from mlcd.spec.serving import SERVE

JOB_FILES: tuple[JobFile[Any], ...] = (TRAIN, SERVE, SERVERLESS)
ANY_NAME = "ANY_NAME"
"""Stands for a name that the job chooses, such as a knob's."""
MOST_DEPTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """A table that reads whole job files of a command. `fields` are the paths of all fields, at any depth."""

    command: str
    names: frozenset[str]
    fields: tuple[tuple[str, ...], ...]


def job_tables() -> tuple[JobTable, ...]:
    """The tables of all kinds of job files: `mlcd serve` has one each for a model, a chat server and a plain server."""
    return tuple(
        JobTable(command=job.command, names=frozenset(table.fields), fields=tuple(dict.fromkeys(_paths(table))))
        for job in JOB_FILES
        for table in _tables(job.record(None))
        if {"name", "goal"} <= set(table.fields)  # others read a part of a file
    )


def _paths(table: FieldTable[Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in table.fields.items():
        here = (*before, name)
        yield here
        below = _tables(field.read) if len(here) < MOST_DEPTH else ()
        for each in below:
            yield from _paths(each, here)
            if not isinstance(field.read, FieldTable):  # it may read what is below a name of the job's own
                yield from _paths(each, (*here, ANY_NAME))


def _tables(reader: object) -> tuple[FieldTable[Any], ...]:
    """The tables that a reader uses, those within tables left out."""
    found: dict[int, FieldTable[Any]] = {}
    seen: set[int] = set()

    def look(value: object) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, FieldTable):
            found[id(value)] = value
        elif isinstance(value, FunctionType) and value.__module__.startswith("mlcd.spec"):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            for each in (*cells, *(value.__globals__.get(name) for name in _names(value.__code__))):
                look(each)
        elif is_dataclass(value) and type(value).__module__.startswith("mlcd.spec"):
            for each in fields(value):
                look(getattr(value, each.name))

    look(reader)
    return tuple(found.values())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def with_value(job: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """The job with this value at `path`; what is on the way there and is no mapping becomes one."""
    name, below = path[0], path[1:]
    inner = job.get(name)
    return {**job, name: with_value(inner if isinstance(inner, dict) else {}, below, value) if below else value}


def hostile_values(text: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each form that the text can have in this field, as (path, value): itself, in a list, as a name, under a name."""
    yield path, text
    yield path, [text]
    yield path, [text, f"{text}2"]
    yield path, {text: text}
    yield path, {text: 1}
    yield path, {text: [text]}
    yield path, [{text: text}]
    yield (*path, ANY_NAME), text
    yield (*path, ANY_NAME), [text, f"{text}2"]
    yield (*path, ANY_NAME), {text: text}
