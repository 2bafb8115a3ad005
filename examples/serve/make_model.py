"""Writes digits-mlp.onnx beside this file: wide layers with random weights, which serve as fast as trained ones."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

WIDTHS = (784, 1024, 1024, 1024, 10)


def main() -> None:
    """Build, check and save the model."""
    rng = np.random.default_rng(7)
    nodes, weights, last = [], [], "image"
    for layer, (inside, outside) in enumerate(pairwise(WIDTHS)):
        values = (rng.standard_normal((inside, outside)) * np.sqrt(2 / inside)).astype(np.float32)
        weights += [
            numpy_helper.from_array(values, f"w{layer}"),
            numpy_helper.from_array(np.zeros(outside, np.float32), f"b{layer}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"w{layer}", f"b{layer}"], [f"h{layer}"], name=f"dense{layer}"))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"a{layer}"], name=f"relu{layer}"))
        last = f"a{layer}"
    nodes.append(helper.make_node("Softmax", [last], ["digit"], name="softmax", axis=-1))
    graph = helper.make_graph(
        nodes,
        "digits-mlp",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", WIDTHS[0]])],
        [helper.make_tensor_value_info("digit", TensorProto.FLOAT, ["batch", WIDTHS[-1]])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    path = Path(__file__).with_name("digits-mlp.onnx")
    path.write_bytes(model.SerializeToString())
    print(f"{path} is written.")  # noqa: T201


if __name__ == "__main__":
    main()
