"""What a request must have to be run: its items, its bytes, its types."""

import json
from typing import Any

import numpy as np
import pytest

from mlcd.server.protocol import BadRequest, InferRequest, parse
from mlcd.server.tensors import TensorSpec

X = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))
FLAG = TensorSpec(name="flag", datatype="BOOL", shape=(-1,))
SMALL = TensorSpec(name="small", datatype="INT8", shape=(-1,))


def sent(spec: TensorSpec, shape: list[int], data: Any, tail: bytes = b"") -> InferRequest:
    """A request with numbers in JSON, or with bytes."""
    tensor: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype, "shape": shape}
    if isinstance(data, bytes):
        tensor["parameters"] = {"binary_data_size": len(data)}
        tail = data + tail
    else:
        tensor["data"] = data
    text = json.dumps({"inputs": [tensor]}).encode()
    return parse(text + tail, str(len(text)), inputs=[spec], outputs=[X], batch=4)


def refused(*given: Any, **more: Any) -> str:
    with pytest.raises(BadRequest) as found:
        sent(*given, **more)
    return found.value.problem


def test_a_request_holds_as_many_items_as_a_batch() -> None:
    assert sent(X, [4, 2], [1.0] * 8).rows == 4
    assert "1 to 4 items (got 5)" in refused(X, [5, 2], [1.0] * 10)
    assert "1 to 4 items (got 0)" in refused(X, [0, 2], [])


def test_every_byte_belongs_to_an_input() -> None:
    numbers = np.ones(2, dtype=np.float32).tobytes()
    assert sent(X, [1, 2], numbers).feeds["x"].tolist() == [[1.0, 1.0]]
    assert "3 bytes that belong to no input" in refused(X, [1, 2], numbers, tail=b"abc")


def test_a_boolean_is_a_byte_of_0_or_1() -> None:
    assert sent(FLAG, [2], b"\x00\x01").feeds["flag"].tolist() == [False, True]
    assert "must be 0 or 1" in refused(FLAG, [2], b"\x00\x02")


@pytest.mark.parametrize("number", [128, -129, 300, 2**40, 2**70])
def test_a_whole_number_that_its_type_cannot_hold_is_refused_and_never_wrapped(number: int) -> None:
    assert sent(SMALL, [2], [127, -128]).feeds["small"].tolist() == [127, -128]
    assert "a number does not fit INT8" in refused(SMALL, [2], [1, number])
