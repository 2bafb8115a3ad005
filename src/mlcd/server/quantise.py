"""Weights as 8-bit integers: ONNX Runtime's dynamic quantisation, done once per model and cached."""

import hashlib
import tempfile
from pathlib import Path, PurePosixPath

from mlcd.errors import BadInput
from mlcd.home import home, private_folder
from mlcd.untrusted import Malformed, weights_beside


def quantised(path: Path, cache: Path | None = None) -> Path:
    """The path of the model with 8-bit weights; quantises the model unless the cache has it.

    The file's name contains the hash of the model and the version of ONNX Runtime. The file is written to a temporary
    folder and moved into place, so that a killed process leaves no partial file. Raises BadInput where the model
    cannot be quantised.
    """
    import onnxruntime  # noqa: PLC0415

    folder = cache or home() / "quantised"
    found = folder / f"{path.stem}-{_digest(path, onnxruntime.__version__)}.onnx"
    if not found.exists():
        private_folder(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as making:
            made = Path(making) / "model.onnx"
            _quantise(path, made)
            made.replace(found)
    return found


def _quantise(path: Path, made: Path) -> None:
    import logging  # noqa: PLC0415

    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
    from onnx import checker, shape_inference  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    quiet, before = logging.getLogger(), logging.getLogger().level
    quiet.setLevel(logging.ERROR)  # it recommends a preprocessing step that dynamic quantisation does not need
    try:
        model = onnx.load(path)
        # PyTorch notes the shapes of weights too. The quantiser transposes some weights, and then refuses the old
        # shapes; it infers those that it needs.
        del model.graph.value_info[:]
        quantize_dynamic(model, made, weight_type=QuantType.QInt8, extra_options={"DefaultTensorType": 1})
    except (
        DecodeError,
        checker.ValidationError,
        shape_inference.InferenceError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise BadInput(f"{path}: cannot be quantised to int8: {error}; serve it in fp32") from error
    finally:
        quiet.setLevel(before)


def _digest(path: Path, version: str) -> str:
    digest = hashlib.sha256(f"dynamic QInt8, ONNX Runtime {version}\n".encode())
    for part in (path, *(path.parent / name for name in weights_of(path))):
        with part.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()[:16]


def weights_of(path: Path) -> list[PurePosixPath]:
    """The files that hold the model's weights besides its own, relative to its folder.

    Raises BadInput where one of them leads out of the folder (untrusted.weights_beside): nothing may read such a model,
    nor copy what belongs to it.
    """
    try:
        return weights_beside(path)
    except Malformed as error:
        raise BadInput(str(error)) from error
