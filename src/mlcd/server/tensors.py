"""A model's inputs and outputs, with the protocol's type names."""

import re
from dataclasses import dataclass
from typing import Any

DATATYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
"""The Open Inference Protocol's datatypes that a tensor of numbers can have, and numpy's names for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a model; -1 is a size that may vary, and axis 0 is the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """As the protocol's metadata has it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TensorSpec":
        """The opposite of `as_json`."""
        return cls(name=value["name"], datatype=value["datatype"], shape=tuple(value["shape"]))


_INPUT = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.]{0,99})=(?P<type>[A-Za-z0-9]+):(?P<sizes>[0-9]{1,9}(x[0-9]{1,9})*)?"
)


def input_text(spec: TensorSpec) -> str:
    """An input as on the command line: `image=FP32:3x224x224`, sizes of one item."""
    return f"{spec.name}={spec.datatype}:{'x'.join(str(size) for size in spec.shape[1:])}"


def input_of(text: str) -> TensorSpec | None:
    """The opposite of `input_text`, with any batch; None where the text has another form."""
    match = _INPUT.fullmatch(text)
    if match is None or match["type"].upper() not in DATATYPES:
        return None
    sizes = tuple(int(size) for size in (match["sizes"] or "").split("x") if size)
    return TensorSpec(name=match["name"], datatype=match["type"].upper(), shape=(-1, *sizes))
