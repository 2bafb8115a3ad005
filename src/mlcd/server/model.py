"""A model in ONNX Runtime; serving imports it only here."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.memory import free_memory_bytes
from mlcd.server.options import Device, Precision, ServerOptions
from mlcd.server.quantise import quantised, weights_of
from mlcd.server.tensors import DATATYPES, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = NDArray[Any]
Feeds = Mapping[str, Array]

_ORT_TYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
}

_CUDA = "CUDAExecutionProvider"


class ModelRefused(Exception):
    """The model rejected its inputs; the text is the engine's reason."""


class Model(Protocol):
    """A loaded model: what the server needs of an engine."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What a request gives."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What an answer has."""
        ...

    def run(self, replica: int, feeds: Feeds) -> list[Array]:
        """The outputs in the order of `outputs`, on the calling thread. Raises ModelRefused."""
        ...

    def gpu_bytes(self) -> int | None:
        """The most GPU memory that the model has taken; None where it runs on processors or that is not known."""
        ...


class OnnxModel:
    """A loaded model that runs `replicas` batches at the same time.

    With one thread, a run computes on the calling thread, so that all replicas share one session and one copy of the
    weights. With more threads, every replica has its own session, because the runs of a session share its threads.
    """

    def __init__(self, options: ServerOptions) -> None:
        """Reads the file and runs it once with the smallest and once with the largest batch. Raises BadInput."""
        self.options = options
        path = existing(options.model)
        weights_of(path)  # raises where reading them would read other files
        if options.precision is Precision.INT8:
            path = quantised(path, options.cache)
        self._sessions = [_session(path, options) for _ in range(1 if options.threads == 1 else options.replicas)]
        self.inputs = tuple(_spec(node, options.model) for node in self._sessions[0].get_inputs())
        self.outputs = tuple(_spec(node, options.model) for node in self._sessions[0].get_outputs())
        self._names = [output.name for output in self.outputs]
        check_batch_axis(options, self.inputs)
        warm_up(self, options, self._zeros, times=len(self._sessions))

    def gpu_bytes(self) -> int | None:
        """See Model: ONNX Runtime does not tell."""
        return None

    def run(self, replica: int, feeds: Feeds) -> list[Array]:
        """The outputs in the order of `outputs`. Raises ModelRefused."""
        with _refusals():
            found: list[Array] = self._sessions[replica % len(self._sessions)].run(self._names, feeds)
            return found

    def _zeros(self, spec: TensorSpec, rows: int) -> Array:
        return np.zeros((rows, *self._sized(spec)[1:]), dtype=DATATYPES[spec.datatype])

    def _sized(self, spec: TensorSpec) -> Sequence[int]:
        node = next(node for node in self._sessions[0].get_inputs() if node.name == spec.name)
        sizes = list(spec.shape)
        for axis, size in enumerate(sizes):
            if size == -1 and axis > 0:
                symbol = node.shape[axis] if isinstance(node.shape[axis], str) else f"{spec.name}.{axis}"
                if symbol not in self.options.sizes:
                    raise BadInput(
                        f"{self.options.model}: input {spec.name}: axis {axis} ({symbol}) has no size; give one, e.g."
                        f" --size {symbol}=128"
                    )
                sizes[axis] = self.options.sizes[symbol]
        return sizes


def check_batch_axis(options: ServerOptions, inputs: Sequence[TensorSpec]) -> None:
    """Raises BadInput where an input has no batch axis, or one of another size than the batch."""
    batch, fixed = options.batch, {spec.shape[0] for spec in inputs if spec.shape} - {-1}
    if any(not spec.shape for spec in inputs):
        raise BadInput(f"{options.model}: an input without axes has no batch axis; give every input one first")
    if fixed and fixed != {batch}:
        sizes = ", ".join(str(size) for size in sorted(fixed))
        raise BadInput(
            f"{options.model}: the batch axis is fixed at {sizes}, --batch is {batch}; export the model with a"
            f" dynamic first axis{f', or serve it with --batch {sizes}' if len(fixed) == 1 else ''}"
        )


def warm_up(model: Model, options: ServerOptions, zeros: Callable[[TensorSpec, int], Array], *, times: int) -> None:
    """Run the smallest and the largest batch: allocates memory, chooses kernels, tests the model. Raises BadInput.

    zeros  (input, items) -> a tensor of so many items
    times  replicas to run it in
    """
    for rows in sorted({1 if -1 in {spec.shape[0] for spec in model.inputs} else options.batch, options.batch}):
        feeds = {spec.name: zeros(spec, rows) for spec in model.inputs}
        for replica in range(times):
            try:
                outputs = model.run(replica, feeds)
            except ModelRefused as error:
                raise BadInput(f"{options.model}: does not run with a batch of {rows}: {error}") from error
        for spec, output in zip(model.outputs, outputs, strict=True):
            if rows > 1 and output.shape[:1] != (rows,):
                raise BadInput(
                    f"{options.model}: output {spec.name} does not have the batch as its first axis, so that"
                    " batches cannot be split; serve the model with --batch 1"
                )


def existing(path: Path) -> Path:
    """The path, if a file is there that fits into memory. Raises BadInput."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; give the path of an ONNX model")
    free = free_memory_bytes()
    if (size := path.stat().st_size) > free:
        raise BadInput(
            f"{path}: the model is larger than memory ({size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free);"
            " serve it on a larger machine"
        )
    return path


def _session(path: Path, options: ServerOptions) -> Any:
    import onnxruntime  # noqa: PLC0415

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = 3
    # A thread that spins while it waits takes processor time from the thread that reads requests.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        with _refusals():
            session = onnxruntime.InferenceSession(os.fspath(path), settings, providers=_providers(options))
    except ModelRefused as error:
        raise BadInput(f"{options.model}: not an ONNX model that can be served: {error}") from error
    if options.device is Device.CUDA and _CUDA not in session.get_providers():  # it falls back without a word
        raise BadInput("--device: ONNX Runtime cannot use the GPU here: its CUDA libraries do not load")
    return session


def _providers(options: ServerOptions) -> list[Any]:
    """What runs the model's nodes, the preferred first. Raises BadInput where ONNX Runtime was built without CUDA."""
    import onnxruntime  # noqa: PLC0415

    if options.device is Device.CPU:
        return ["CPUExecutionProvider"]
    if _CUDA not in onnxruntime.get_available_providers():
        raise BadInput(
            "--device: this ONNX Runtime was built without CUDA; install onnxruntime-gpu in place of onnxruntime"
        )
    tf32 = "1" if options.precision is Precision.TF32 else "0"
    return [(_CUDA, {"device_id": "0", "use_tf32": tf32}), "CPUExecutionProvider"]


def _spec(node: Any, path: Path) -> TensorSpec:
    if node.type not in _ORT_TYPES:
        raise BadInput(f"{path}: {node.name} is a {node.type}; only tensors of numbers can be served")
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
    return TensorSpec(name=node.name, datatype=_ORT_TYPES[node.type], shape=shape)


@contextmanager
def _refusals() -> "Iterator[None]":
    """Raise ONNX Runtime's errors, which have no common base class, as ModelRefused with their first line."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415

    try:
        yield
    except (
        state.EPFail,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoModel,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
        MemoryError,
        ValueError,
    ) as error:
        raise ModelRefused(
            str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        ) from error
