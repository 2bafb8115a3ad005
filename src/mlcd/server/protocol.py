"""Tensors on the wire: the Open Inference Protocol's JSON and its extension for binary tensors.

A request is a JSON object. With the extension, the tensors' bytes follow it in the body, the header
`Inference-Header-Content-Length` gives the length of the JSON, and an input has `"parameters": {"binary_data_size": N}`
in place of its `data`. Outputs are returned as bytes where the request asks for that: `binary_data` of an output, or
`binary_data_output` of the request.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.server.tensors import DATATYPES, TensorSpec

Array = NDArray[Any]
HEADER = "Inference-Header-Content-Length"


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


def parse(
    body: bytes, header_length: str | None, *, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch: int
) -> InferRequest:
    """The request, checked against the model. Raises BadRequest."""
    document, tail = _split(body, header_length)
    given = document.get("inputs")
    if not isinstance(given, list) or not given:
        raise BadRequest("inputs: must be a list with every input of the model")
    feeds = _feeds(given, tail, {spec.name: spec for spec in inputs})
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


def _split(body: bytes, header_length: str | None) -> tuple[dict[str, Any], memoryview]:
    """The JSON object and the bytes after it."""
    length = len(body)
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdigit()) or int(header_length) > length:
            raise BadRequest(f"{HEADER}: must be a number of bytes within the body (got {header_length[:40]!r})")
        length = int(header_length)
    try:
        document = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object with inputs")
    return document, memoryview(body)[length:]


def _feeds(given: list[Any], tail: memoryview, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
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
            if not _is_count(size) or offset + size > len(tail):
                raise BadRequest(f"inputs: {name}: binary_data_size must lie within the body (got {str(size)[:40]})")
            feeds[name] = _from_bytes(tail[offset : offset + size], specs[name], shape)
            offset += size
        else:
            feeds[name] = _from_json(tensor.get("data"), specs[name], shape)
    if missing := [name for name in specs if name not in feeds]:
        raise BadRequest(f"inputs: {', '.join(missing)} missing")
    if offset != len(tail):
        raise BadRequest(f"the body has {len(tail) - offset} bytes that belong to no input")
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
        raise BadRequest(f"inputs: {spec.name}: shape must be {list(spec.shape)}, -1 for any (got {str(shape)[:100]})")
    return tuple(shape)


def _from_bytes(data: memoryview, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    dtype = np.dtype(DATATYPES[spec.datatype])
    # Sizes are Python integers: the product of absurdly large ones does not overflow.
    needed = dtype.itemsize * _product(shape)
    if len(data) != needed:
        raise BadRequest(f"inputs: {spec.name}: shape {list(shape)} needs {needed} bytes (got {len(data)})")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _from_json(data: Any, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Numbers, flat or nested by rows. Text is not converted to numbers; numbers are not truncated to their type."""
    if not isinstance(data, list):
        raise BadRequest(f"inputs: {spec.name}: needs data, a list of numbers, or binary_data_size")
    try:
        found = np.asarray(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"inputs: {spec.name}: data must be a list of numbers, flat or nested by rows") from error
    dtype = np.dtype(DATATYPES[spec.datatype])
    if found.dtype.kind not in {"b": "b", "f": "iuf"}.get(dtype.kind, "iu"):
        raise BadRequest(f"inputs: {spec.name}: data must be numbers of {spec.datatype}")
    if found.size != _product(shape) or (found.ndim > 1 and found.shape != shape):
        raise BadRequest(f"inputs: {spec.name}: shape is {list(shape)}, data has {found.size} numbers")
    if dtype.kind in "iu" and found.size:
        limits = np.iinfo(dtype)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise BadRequest(f"inputs: {spec.name}: a number does not fit {spec.datatype}")
    with np.errstate(over="ignore"):
        return found.astype(dtype).reshape(shape)


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


def _product(shape: tuple[int, ...]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def answer(
    request: InferRequest, outputs: Mapping[str, Array], specs: Sequence[TensorSpec], model: str
) -> tuple[bytes, int | None]:
    """The body of the response, and the length of its JSON where bytes follow it, else None."""
    datatypes = {spec.name: spec.datatype for spec in specs}
    tensors: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for wanted in request.outputs:
        array = outputs[wanted.name]
        tensor: dict[str, Any] = {"name": wanted.name, "datatype": datatypes[wanted.name], "shape": list(array.shape)}
        if wanted.binary:
            tail.append(array.tobytes())
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    document: dict[str, Any] = {"model_name": model, "model_version": "1", "outputs": tensors}
    if request.id:
        document["id"] = request.id
    text = json.dumps(document).encode()
    return (b"".join([text, *tail]), len(text)) if tail else (text, None)
