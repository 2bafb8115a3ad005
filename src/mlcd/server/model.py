"""A model in ONNX Runtime; serving imports it only here."""

import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput
from mlcd.memory import free_memory_bytes
from mlcd.server.options import Precision, ServerOptions
from mlcd.server.quantise import quantised
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


class ModelRefused(Exception):
    """The model rejected its inputs; the text is ONNX Runtime's reason."""


class OnnxModel:
    """A loaded model that runs `replicas` batches at the same time.

    With one thread, a run computes on the calling thread, so that all replicas share one session and one copy of the
    weights. With more threads, every replica has its own session, because the runs of a session share its threads.
    """

    def __init__(self, options: ServerOptions) -> None:
        """Reads the file and runs it once with the smallest and once with the largest batch. Raises BadInput."""
        self.options = options
        path = _existing(options.model)
        if options.precision is Precision.INT8:
            path = quantised(path, options.cache)
        self._sessions = [_session(path, options) for _ in range(1 if options.threads == 1 else options.replicas)]
        self.inputs = tuple(_spec(node, options.model) for node in self._sessions[0].get_inputs())
        self.outputs = tuple(_spec(node, options.model) for node in self._sessions[0].get_outputs())
        self._names = [output.name for output in self.outputs]
        self._check_batch_axis()
        self._warm_up()

    def run(self, replica: int, feeds: Feeds) -> list[Array]:
        """The outputs in the order of `outputs`. Raises ModelRefused."""
        with _refusals():
            found: list[Array] = self._sessions[replica % len(self._sessions)].run(self._names, feeds)
            return found

    def _check_batch_axis(self) -> None:
        batch, fixed = self.options.batch, {spec.shape[0] for spec in self.inputs if spec.shape} - {-1}
        if any(not spec.shape for spec in self.inputs):
            raise BadInput(f"{self.options.model}: an input without axes has no batch axis; give every input one first")
        if fixed and fixed != {batch}:
            sizes = ", ".join(str(size) for size in sorted(fixed))
            raise BadInput(
                f"{self.options.model}: the batch axis is fixed at {sizes}, --batch is {batch}; export the model with a"
                f" dynamic first axis{f', or serve it with --batch {sizes}' if len(fixed) == 1 else ''}"
            )

    def _warm_up(self) -> None:
        """Run the smallest and the largest batch in every session: allocates memory, chooses kernels, tests it."""
        for rows in sorted(
            {1 if -1 in {spec.shape[0] for spec in self.inputs} else self.options.batch, self.options.batch}
        ):
            feeds = {spec.name: self._zeros(spec, rows) for spec in self.inputs}
            for replica in range(len(self._sessions)):
                try:
                    outputs = self.run(replica, feeds)
                except ModelRefused as error:
                    raise BadInput(f"{self.options.model}: does not run with a batch of {rows}: {error}") from error
            for spec, output in zip(self.outputs, outputs, strict=True):
                if rows > 1 and output.shape[:1] != (rows,):
                    raise BadInput(
                        f"{self.options.model}: output {spec.name} does not have the batch as its first axis, so that"
                        " batches cannot be split; serve the model with --batch 1"
                    )

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


def _existing(path: Path) -> Path:
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
            return onnxruntime.InferenceSession(os.fspath(path), settings, providers=["CPUExecutionProvider"])
    except ModelRefused as error:
        raise BadInput(f"{options.model}: not an ONNX model that can be served: {error}") from error


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
