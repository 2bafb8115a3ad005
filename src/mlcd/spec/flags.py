"""Flags in place of a job file's values, for jobs whose text is kept: it then says what the flags said."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from mlcd.errors import SpecError
from mlcd.spec.document import document
from mlcd.spec.serve import ServeSpec
from mlcd.spec.serverless import ServerlessSpec
from mlcd.spec.train import Place

Job = TypeVar("Job", ServeSpec, ServerlessSpec)


def with_fields(
    spec: Job,
    flags: Mapping[str, object],
    *,
    paths: Mapping[str, str],
    value: Callable[[str, object], object],
    read: Callable[[Mapping[str, object]], Job],
    mark: str,
) -> Job:
    """`spec` read again with the flags that are not None at their paths in its text.

    paths  of each flag, such as goal.slo
    value  (flag, what was given) to what a job file would have there
    read   makes a job of a mapping

    Raises SpecError whose field is the flag after `mark`, such as `--slo`.
    """
    given = {name: said for name, said in flags.items() if said is not None}
    if not given:
        return spec
    fields = document(spec.source, file=spec.file).plain()
    if not isinstance(fields, dict):  # parsed before, so that it is one
        raise SpecError("must be a mapping of fields to values", file=spec.file)
    for name, said in given.items():
        *sections, field = paths[name].split(".")
        place = fields
        for section in sections:
            place = place.setdefault(section, {})
        place[field] = value(name, said)
        if name == "maximize":  # a goal has one of the two
            place.pop("minimize", None)
    try:
        changed = read(fields)
    except SpecError as error:
        raise _named(error, given, paths, mark) from error
    places = {**spec.places, **{paths[name]: Place(mark + name) for name in given}}
    return replace(changed, file=spec.file, places=places)


def _named(error: SpecError, given: Mapping[str, object], paths: Mapping[str, str], mark: str) -> SpecError:
    """The same error about the flag that gave the value, where one did."""
    for name, said in given.items():
        if error.field == paths[name] or error.field.startswith((f"{paths[name]}.", f"{paths[name]}[")):
            return SpecError(error.problem, field=mark + name, value=said, allowed=error.allowed, nearest=error.nearest)
    return error
