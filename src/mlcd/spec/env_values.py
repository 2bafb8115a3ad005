"""Values of environment variables, taken out of a job's text before it is stored: they may be keys."""

import yaml
from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from mlcd.errors import SpecError
from mlcd.spec.document import document
from mlcd.spec.mapping import as_text, tree

FIELD = "envs"


def without_env_values(source: str) -> tuple[str, dict[str, str]]:
    """The text of a job with null in place of each value of `envs`, every other line as it was; and those values.

    Raises SpecError for text that is not a job file's.
    """
    job = document(source, file="")
    fields = job.plain()
    given = fields.get(FIELD) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(given, dict):
        return source, {}
    scalars = {name: found for name, found in _scalars(source).items() if given.get(name) is not None}
    text = source
    for start, end, _ in sorted(scalars.values(), reverse=True):
        lines = text.count("\n", start, end)
        text = f"{text[:start]}null{chr(10) * lines}{text[end:]}"
    expected: dict[str, object] = {**fields, FIELD: dict.fromkeys(given)}
    if _plain(text) != expected:  # a form of value that ends elsewhere than it says: comments and lines go, values too
        text = as_text(tree(expected))
    return text, {name: value for name, (_, _, value) in scalars.items()}


def _plain(text: str) -> object:
    try:
        return document(text, file="").plain()
    except SpecError:
        return None


def _scalars(source: str) -> dict[str, tuple[int, int, str]]:
    """The values of `envs` that are scalars, by name: where each starts and ends in the text, and what it says."""
    found: dict[str, tuple[int, int, str]] = {}
    path: list[str | None] = []  # the key that each open mapping or list is the value of
    keys: list[str | None] = []  # the last key of each; None where a key comes next
    is_mapping: list[bool] = []
    for event in yaml.parse(source, Loader=yaml.BaseLoader):
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            path.append(keys[-1] if keys else None)
            keys.append(None)
            is_mapping.append(isinstance(event, MappingStartEvent))
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            path.pop()
            keys.pop()
            is_mapping.pop()
            if keys:
                keys[-1] = None
        elif isinstance(event, ScalarEvent) and keys and is_mapping[-1]:
            if keys[-1] is None:
                keys[-1] = event.value
            else:
                start, end = event.start_mark, event.end_mark
                if len(path) == 2 and path[-1] == FIELD and start is not None and end is not None:
                    found[keys[-1]] = (start.index, end.index, event.value)
                keys[-1] = None
    return found
