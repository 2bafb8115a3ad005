"""Models with 8-bit weights."""

from pathlib import Path

import pytest
from tests.tiny_onnx import write_exported


def test_a_model_of_pytorchs_exporter(tmp_path: Path) -> None:
    """It notes the shapes of transposed weights, which the quantiser changes; nothing is written beside the model."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from mlcd.server.quantise import quantised

    model = write_exported(tmp_path / "m.onnx")
    made = quantised(model, tmp_path / "cache")
    assert [each.name for each in onnxruntime.InferenceSession(made).get_inputs()] == ["x"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cache", "m.onnx"]
