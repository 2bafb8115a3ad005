"""Tensors on the wire: the Open Inference Protocol's JSON and its extension for binary tensors.

A request is a JSON object. With the extension, the tensors' bytes follow it in the body, the header
`Inference-Header-Content-Length` gives the length of the JSON, and an input has `"parameters": {"binary_data_size": N}`
in place of its `data`. Outputs are returned as bytes where the request asks for that: `binary_data` of an output, or
`binary_data_output` of the request.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.server.numbers import numbers, span_of, split, text_of
from mlcd.server.tensors import DATATYPES, TensorSpec
from mlcd.untrusted import Malformed, parse_json

Array = NDArray[Any]
HEADER = "Inference-Header-Content-Length"
_MOST_LENGTH_DIGITS = 15


class BadRequest(Exception):
    """A request that cannot be answered, with the HTTP status and one line for the client."""

    def __init__(self, problem: str, *, status: int = 400) -> None:
        super().__init__(problem)
        self.problem, self.status = problem, status


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested output, and whether it is returned as bytes."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A checked request: every input of the model, `rows` items each, and the outputs to return."""

    id: str
    feeds: Mapping[str, Array]
    rows: int
    outputs: tuple[Wanted, ...]

    @property
    def feed_bytes(self) -> int:
        """The memory of its inputs."""
        return sum(array.nbytes for array in self.feeds.values())


Body = bytes | bytearray


def json_length(body: Body, header_length: str | None) -> int:
    """How many bytes of the body are JSON. Raises BadRequest."""
    if header_length is None:
        return len(body)
    # Compared by its digits first: Python refuses to convert thousands of them.
    is_number = header_length.isascii() and header_length.isdigit() and len(header_length) <= _MOST_LENGTH_DIGITS
    if not is_number or int(header_length) > len(body):
        raise BadRequest(f"{HEADER}: must be a number of bytes within the body (got {header_length[:40]!r})")
    return int(header_length)


def parse(
    body: Body, header_length: str | None, *, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch: int
) -> InferRequest:
    """The request, checked against the model. Raises BadRequest."""
    length = json_length(body, header_length)
    try:
        text, spans = split(body, length)
        document = parse_json(text)
    except Malformed as error:
        raise BadRequest(f"the body {error.problem}") from error
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object with inputs")
    given = document.get("inputs")
    if not isinstance(given, list) or not given:
        raise BadRequest("inputs: must be a list with every input of the model")
    feeds = _feeds(given, _Data(body, length, spans), {spec.name: spec for spec in inputs})
    rows = {name: len(array) for name, array in feeds.items()}
    if len(set(rows.values())) != 1:
        raise BadRequest(f"inputs: the first axis is the batch and must agree (got {rows})")
    count = next(iter(rows.values()))
    if not 1 <= count <= batch:
        raise BadRequest(f"inputs: a request holds 1 to {batch} items (got {count})")
    identity = document.get("id", "")
    if not isinstance(identity, str):
        raise BadRequest("id: must be a string")
    return InferRequest(id=identity, feeds=feeds, rows=count, outputs=_wanted(document, outputs))


class _Data:
    """The numbers of a body: those in its JSON, and the bytes after it."""

    def __init__(self, body: Body, length: int, spans: list[tuple[int, int]]) -> None:
        self.body, self.spans = body, spans
        self.tail = memoryview(body)[length:]

    def in_json(self, value: object, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
        """The tensor of an input's `data`. Raises BadRequest."""
        body, span = self.body, span_of(value, self.spans)
        if span is None:
            if not isinstance(value, list):
                raise BadRequest(f"inputs: {spec.name}: needs data, a list of numbers, or binary_data_size")
            body = json.dumps(value).encode()  # it has more than numbers, or its key is written in another way
            span = (0, len(body))
        try:
            return numbers(body, span, name=spec.name, datatype=spec.datatype, shape=shape)
        except Malformed as error:
            raise BadRequest(str(error)) from error


def _feeds(given: list[Any], data: _Data, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    offset = 0
    for tensor in given:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise BadRequest("inputs: every input needs a name")
        name = tensor["name"]
        if name not in specs:
            raise BadRequest(f"inputs: the model has no input {name[:100]!r}; it has {', '.join(specs)}")
        if name in feeds:
            raise BadRequest(f"inputs: {name} is given twice")
        shape = _shape(tensor, specs[name])
        parameters = _parameters(tensor, name)
        if "binary_data_size" in parameters:
            size = parameters["binary_data_size"]
            if not _is_count(size) or offset + size > len(data.tail):
                raise BadRequest(f"inputs: {name}: binary_data_size must lie within the body (got {str(size)[:40]})")
            feeds[name] = _from_bytes(data.tail[offset : offset + size], specs[name], shape)
            offset += size
        else:
            feeds[name] = data.in_json(tensor.get("data"), specs[name], shape)
    if missing := [name for name in specs if name not in feeds]:
        raise BadRequest(f"inputs: {', '.join(missing)} missing")
    if offset != len(data.tail):
        raise BadRequest(f"the body has {len(data.tail) - offset} bytes that belong to no input")
    return feeds


def _shape(tensor: dict[str, Any], spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a tensor in the request. Raises BadRequest where the model does not accept it."""
    if tensor.get("datatype") != spec.datatype:
        raise BadRequest(
            f"inputs: {spec.name}: datatype must be {spec.datatype} (got {str(tensor.get('datatype'))[:40]})"
        )
    shape = tensor.get("shape")
    if not isinstance(shape, list) or not all(_is_count(size) for size in shape):
        raise BadRequest(f"inputs: {spec.name}: shape must be a list of whole numbers")
    if len(shape) != len(spec.shape) or any(e not in (-1, s) for s, e in zip(shape, spec.shape, strict=True)):
        raise BadRequest(f"inputs: {spec.name}: shape must be {list(spec.shape)}, -1 for any (got {_short(shape)})")
    return tuple(shape)


def _from_bytes(data: memoryview, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    dtype = np.dtype(DATATYPES[spec.datatype])
    # Sizes are Python integers: the product of absurdly large ones does not overflow.
    needed = dtype.itemsize * math.prod(shape)
    if len(data) != needed:
        raise BadRequest(f"inputs: {spec.name}: shape {_short(shape)} needs {_short(needed)} bytes (got {len(data)})")
    found = np.frombuffer(data, dtype=dtype).reshape(shape)
    if dtype.kind == "b" and found.size and int(found.view(np.uint8).max()) > 1:
        raise BadRequest(f"inputs: {spec.name}: a byte of BOOL must be 0 or 1")
    return found


def _short(value: object) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _wanted(document: dict[str, Any], outputs: Sequence[TensorSpec]) -> tuple[Wanted, ...]:
    everything = _parameters(document, "request").get("binary_data_output", False) is True
    given = document.get("outputs")
    if given is None or given == []:
        return tuple(Wanted(name=spec.name, binary=everything) for spec in outputs)
    if not isinstance(given, list):
        raise BadRequest("outputs: must be a list")
    names, found = {spec.name for spec in outputs}, []
    for output in given:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str) or name not in names:
            raise BadRequest(f"outputs: the model has no output {str(name)[:100]!r}; it has {', '.join(sorted(names))}")
        parameters = _parameters(output, name)
        if "classification" in parameters:
            raise BadRequest(f"outputs: {name}: classification is not offered")
        found.append(Wanted(name=name, binary=parameters.get("binary_data", everything) is True))
    return tuple(found)


def _parameters(value: dict[str, Any], name: str) -> dict[str, Any]:
    parameters = value.get("parameters", {})
    if not isinstance(parameters, dict):
        raise BadRequest(f"{name}: parameters must be an object")
    return parameters


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def answer(
    request: InferRequest, outputs: Mapping[str, Array], specs: Sequence[TensorSpec], model: str
) -> tuple[list[bytes], int | None]:
    """The parts of the response's body, and the length of its JSON where bytes follow it, else None.

    Raises BadRequest where an output has no form in JSON.
    """
    datatypes = {spec.name: spec.datatype for spec in specs}
    head: dict[str, Any] = {"model_name": model, "model_version": "1"}
    if request.id:
        head["id"] = request.id
    parts = [json.dumps(head).encode()[:-1] + b', "outputs": [']
    tail: list[bytes] = []
    for number, wanted in enumerate(request.outputs):
        array = outputs[wanted.name]
        tensor: dict[str, Any] = {"name": wanted.name, "datatype": datatypes[wanted.name], "shape": list(array.shape)}
        if wanted.binary:
            tail.append(array.tobytes())
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        text = json.dumps(tensor).encode()
        parts.append(b", " + text if number else text)
        if not wanted.binary:
            parts[-1] = parts[-1][:-1] + b', "data": '
            try:
                parts += [*text_of(array, wanted.name), b"}"]
            except Malformed as error:
                raise BadRequest(str(error)) from error
    parts.append(b"]}")
    return [*parts, *tail], sum(map(len, parts)) if tail else None
