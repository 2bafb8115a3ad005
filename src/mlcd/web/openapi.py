"""The operations of the JSON API in one table: the routes and the OpenAPI document both come from it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcd.errors import BadInput
from mlcd.report.result_types import result_schema
from mlcd.untrusted import printable, whole_number
from mlcd.version import __version__
from mlcd.web.api_types import ErrorJson

Json = dict[str, Any]
MOST_TEXT = 255
"""Characters of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value in the path or the query.

    choices      the texts that are allowed; empty: any text
    least, most  of a number; None: it is a text
    """

    name: str
    what: str
    in_path: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = True
    default: Any = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return self.least is not None

    def read(self, given: str | None) -> Any:
        """Its value. Raises BadInput."""
        if given is None or given == "":
            return self.default
        if self.is_number:
            return self._number(given)
        if len(given) > MOST_TEXT:
            raise BadInput(f"{self.name}: has more than {MOST_TEXT} characters")
        if self.choices and given not in self.choices:
            shown = printable(given, most_characters=60)
            raise BadInput(f"{self.name}: unknown value {shown!r}; allowed: {', '.join(self.choices)}")
        return given

    def _number(self, given: str) -> float | int:
        least, most = self.least or 0, self.most
        number: float | int | None = whole_number(given) if self.whole else _decimal(given)
        if number is None or number < least or (most is not None and number > most):
            kind = "a whole number" if self.whole else "a number"
            upto = "" if most is None else f" to {most:g}"
            shown = printable(given, most_characters=60)
            raise BadInput(f"{self.name}: must be {kind} from {least:g}{upto} (got {shown!r})")
        return number

    def schema(self) -> Json:
        """Its JSON Schema."""
        if self.is_number:
            upto = {} if self.most is None else {"maximum": self.most}
            made: Json = {"type": "integer" if self.whole else "number", "minimum": self.least, **upto}
        else:
            made = {"type": "string", "maxLength": MOST_TEXT, **({"enum": list(self.choices)} if self.choices else {})}
        return made if self.default is None else {**made, "default": self.default}

    def described(self) -> Json:
        """Its entry in the document."""
        where = "path" if self.in_path else "query"
        return {
            "name": self.name,
            "in": where,
            "required": self.in_path,
            "description": self.what,
            "schema": self.schema(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One endpoint.

    answer   the class of its JSON answer; a JSON Schema; or the media type of another answer
    body     the JSON Schema of what is sent; None for nothing
    call     makes the answer from the parameters, by name, and `body`; None where the route does it itself
    status   of an answer that is no error
    """

    name: str
    method: str
    path: str
    what: str
    answer: type | Json | str
    parameters: Sequence[Parameter] = ()
    body: Json | None = None
    call: Callable[..., Any] | None = None
    status: int = 200

    def described(self, defs: dict[str, Json]) -> Json:
        """Its entry in the document; `defs` collects the schemas it refers to."""
        if isinstance(self.answer, str):
            content: Json = {self.answer: {"schema": {"type": "string"}}}
        else:
            content = {"application/json": {"schema": _answer_schema(self.answer, defs)}}
        problem = {"application/json": {"schema": _answer_schema(ErrorJson, defs)}}
        errors = {
            400: "a parameter or the body is wrong",
            401: "the token is missing",
            403: "refused",
            503: "try later",
        }
        if any(parameter.in_path for parameter in self.parameters):
            errors[404] = "there is no such thing"
        if self.body is not None:
            errors |= {413: "the body is too long", 415: "the body is not JSON"}
        return {
            "operationId": self.name,
            "summary": self.what,
            "parameters": [parameter.described() for parameter in self.parameters],
            **({} if self.body is None else {"requestBody": _request(self.body)}),
            "responses": {
                str(self.status): {"description": "the answer", "content": content},
                **{str(code): {"description": text, "content": problem} for code, text in sorted(errors.items())},
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The OpenAPI document of these operations."""

    operations: Sequence[Operation] = field(default_factory=tuple)

    def as_json(self) -> Json:
        """OpenAPI 3.1."""
        defs: dict[str, Json] = {}
        paths: dict[str, Json] = {}
        for operation in self.operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described(defs)
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "mlcd",
                "version": __version__,
                "description": "Runs of mlcd: what the page of `mlcd ui` shows. Money is in US dollars.",
            },
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(defs.items())),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }


def _request(body: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": body}}}


def _answer_schema(answer: type | Json, defs: dict[str, Json]) -> Json:
    if isinstance(answer, Mapping):
        return _moved(answer, defs)
    name = answer.__name__.removesuffix("Json")
    if name not in defs:
        defs[name] = {}
        defs[name] = _moved(result_schema(answer, name), defs)
    return {"$ref": f"#/components/schemas/{name}"}


def _moved(schema: Mapping[str, Any], defs: dict[str, Json]) -> Json:
    """The schema with its $defs among those of the document."""
    for name, each in schema.get("$defs", {}).items():
        defs.setdefault(name, _moved(each, defs))
    kept = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    return {key: _referring(value) for key, value in kept.items()}


def _referring(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _referring(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_referring(item) for item in value]
    return value.replace("#/$defs/", "#/components/schemas/") if isinstance(value, str) else value


def _decimal(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", text) else None
