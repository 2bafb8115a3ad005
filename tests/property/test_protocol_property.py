"""For any input, the parser either returns a request or raises BadRequest with one line, nothing else."""

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcd.server.protocol import BadRequest, answer, parse
from mlcd.server.tensors import DATATYPES, TensorSpec

INPUTS = (
    TensorSpec(name="x", datatype="FP32", shape=(-1, 3)),
    TensorSpec(name="ids", datatype="INT32", shape=(-1, -1)),
)
OUTPUTS = (TensorSpec(name="y", datatype="FP32", shape=(-1, 2)),)

names = st.sampled_from(["x", "ids", "y", "z", ""])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | names
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": names | trees,
        "datatype": st.sampled_from(sorted(DATATYPES)) | trees,
        "shape": st.lists(st.integers(-1, 5), max_size=3) | trees,
        "data": st.lists(st.integers(-(2**70), 2**70) | st.floats(), max_size=6) | trees,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(-5, 50) | trees}) | trees,
    },
)
documents = trees | st.fixed_dictionaries(
    {},
    optional={
        "id": trees,
        "inputs": st.lists(tensors | trees, max_size=3) | trees,
        "outputs": st.lists(st.fixed_dictionaries({"name": names}, optional={"parameters": trees}) | trees, max_size=2)
        | trees,
        "parameters": trees,
    },
)


def check(body: bytes, length: str | None) -> None:
    problem = ""
    try:
        asked = parse(body, length, inputs=INPUTS, outputs=OUTPUTS, batch=4)
    except BadRequest as refused:
        problem = refused.problem
    else:
        assert 1 <= asked.rows <= 4
    assert "\n" not in problem
    assert len(problem) < 1000


@settings(max_examples=300, deadline=None)
@given(
    document=documents,
    tail=st.binary(max_size=60),
    length=st.none() | st.text(max_size=5) | st.integers(-3, 200).map(str),
)
def test_any_document(document: Any, tail: bytes, length: str | None) -> None:
    check(json.dumps(document).encode() + tail, length)


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200), length=st.none() | st.integers(0, 300).map(str))
def test_any_bytes(body: bytes, length: str | None) -> None:
    check(body, length)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 4), width=st.integers(1, 5), binary=st.booleans(), identity=st.text(max_size=5), data=st.data()
)
def test_requests_round_trip(rows: int, width: int, binary: bool, identity: str, data: st.DataObject) -> None:
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = np.array(data.draw(st.lists(floats, min_size=3 * rows, max_size=3 * rows)), dtype=np.float32).reshape(rows, 3)
    whole = st.integers(-(2**31), 2**31 - 1)
    ids = np.array(data.draw(st.lists(whole, min_size=rows * width, max_size=rows * width)), dtype=np.int32)
    arrays = {"x": x, "ids": ids.reshape(rows, width)}
    described: list[dict[str, Any]] = []
    tail = b""
    for spec in INPUTS:
        array = arrays[spec.name]
        tensor: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": list(array.shape)}
        if binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            tail += array.tobytes()
        else:
            tensor["data"] = array.tolist()
        described.append(tensor)
    text = json.dumps({"id": identity, "inputs": described, "parameters": {"binary_data_output": binary}}).encode()
    asked = parse(text + tail, str(len(text)) if binary else None, inputs=INPUTS, outputs=OUTPUTS, batch=4)
    assert asked.rows == rows
    for name, array in arrays.items():
        assert np.array_equal(asked.feeds[name], array)
    y = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    parts, length = answer(asked, {"y": y}, OUTPUTS, "m")
    content = b"".join(parts)
    document = json.loads(content[:length])
    assert document.get("id", "") == identity
    assert document["outputs"][0]["shape"] == [rows, 2]
    assert (content[length:] == y.tobytes()) if binary else (document["outputs"][0]["data"] == y.ravel().tolist())
