"""Where the fields of a job were given, so that errors found later can name the position."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mlcd.errors import SpecError
from mlcd.spec.node import YamlNode, shortened
from mlcd.untrusted import Malformed, expanded


@dataclass(frozen=True, slots=True)
class Place:
    """Where a field was given, and its name there (`--on` for `resources.infra`)."""

    field: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSpec:
    """What every kind of job has in addition to its fields.

    file          the file's name in messages; "" if the job is not from a file
    source        the job's text, stored with the run so that the run can be repeated
    overrides     flags that override values of the text, as (flag, value); source and overrides recreate the job
    places        positions of the fields that were given, by dotted name
    counted_from  the moment from which a deadline that is a point in time was counted
    """

    file: str = ""
    source: str = ""
    overrides: tuple[tuple[str, object], ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    counted_from: datetime | None = field(default=None, compare=False, repr=False)

    def error(
        self, name: str, problem: str, *, value: object = None, allowed: str = "", nearest: str = ""
    ) -> SpecError:
        """The error about the field `name`, at its line or its section's line. The caller raises it."""
        value = shortened(value)
        place = self.places.get(name)
        if place is None:
            sections = (self.places.get(name[:end]) for end in range(len(name) - 1, 0, -1) if name[end] in ".[")
            above = next((section for section in sections if section is not None), None)
            place = Place(name, self.file, None if above is None or not above.file else above.line)
        return SpecError(
            problem,
            file=place.file,
            line=place.line,
            field=place.field,
            value=value,
            allowed=allowed,
            nearest=nearest,
        )

    def path(self, name: str, text: str) -> Path:
        """The path that the field `name` gives, with `~` replaced. Raises the field's error for what is no path."""
        try:
            return expanded(text)
        except Malformed as error:
            raise self.error(name, error.problem, value=shortened(text)) from error


def places_of(node: YamlNode) -> dict[str, Place]:
    """The position of each field below `node`, by dotted name; for lists, of the elements that are text."""
    found: dict[str, Place] = {}
    below = tuple(node.value.values()) if isinstance(node.value, Mapping) else node.items()
    for child in below:
        if child is node or not (isinstance(node.value, Mapping) or isinstance(child.value, str)):
            continue
        found[child.path] = Place(child.path, child.file, child.line)
        found.update(places_of(child))
    return found
