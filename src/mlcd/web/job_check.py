"""A job file as it is typed: for which command it is, and its first mistake in the words of the command line."""

from collections.abc import Callable, Mapping
from typing import Any

from mlcd.errors import MlcdError, SpecError
from mlcd.run.kind import Kind
from mlcd.spec.document import document
from mlcd.spec.functions import SERVERLESS
from mlcd.spec.job_file import OWN_FIELDS
from mlcd.spec.parse import TRAIN
from mlcd.spec.serving import SERVE
from mlcd.web.api_types import CheckJson
from mlcd.web.processes import FILE, is_free

_PARSERS: Mapping[Kind, Callable[..., Any]] = {
    Kind.TRAIN: TRAIN.parse,
    Kind.SERVE: SERVE.parse,
    Kind.SERVERLESS: SERVERLESS.parse,
}


def checked(text: str) -> CheckJson:
    """Whether the text is a job file. The text is data: nothing in it is run, and no file that it names is read."""
    kind: Kind | None = None
    try:
        kind = command_of(text)
        job = _PARSERS[kind](text, file=FILE)
    except SpecError as error:
        return CheckJson(
            kind=None if kind is None else str(kind),
            name=None,
            infra=None,
            free=False,
            error=str(error),
            line=error.line,
            field=error.field or None,
        )
    except MlcdError as error:
        return CheckJson(kind=None, name=None, infra=None, free=False, error=str(error), line=None, field=None)
    infra = str(job.resources.infra)
    return CheckJson(kind=str(kind), name=job.name, infra=infra, free=is_free(infra), error=None, line=None, field=None)


def command_of(text: str) -> Kind:
    """The command whose own fields the text has most of. Raises SpecError where it is no YAML."""
    root = document(text, file=FILE)
    given = set(root.value) if isinstance(root.value, Mapping) else set()
    return max(Kind, key=lambda kind: len(given & OWN_FIELDS[str(kind)]))
