"""A model in PyTorch, by torch.export or TorchScript; serving imports torch only here."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcd.errors import BadInput, MissingExtra
from mlcd.extras import missing_text
from mlcd.server.model import Feeds, ModelRefused, check_batch_axis, existing, warm_up
from mlcd.server.options import SCRIPTED, Device, Precision, ServerOptions
from mlcd.server.tensors import DATATYPES, TensorSpec
from mlcd.untrusted import Malformed, only_weights

Array = NDArray[Any]

_NAMES = {numpy: protocol for protocol, numpy in DATATYPES.items()}
_OUT_OF_MEMORY = ("out of memory", "alloc_failed")
_MIXED_TYPES = ("dtype", "scalar type", "input type", "same type")
"""What PyTorch says where a graph computes with types that were written into it when it was exported."""
_BROKEN_CONTEXT_EXIT = 70


class TorchModel:
    """A loaded model that runs `replicas` batches at the same time: on a GPU each in a stream of its own.

    A compiled model runs full batches only, because another number of items would be compiled again; what is missing is
    filled with repeated items, whose outputs are dropped.
    """

    def __init__(self, options: ServerOptions) -> None:
        """Reads the file and runs it once with the smallest and once with the largest batch. Raises BadInput."""
        self.options = options
        self._torch = _torch()
        self._device = _device(self._torch, options)
        self._autocast = False
        self._least = 1
        self._set_precision()
        path = existing(options.model)
        self._call, self.inputs = self._scripted(path) if _is_scripted(options) else self._exported(path)
        self._streams = [
            self._torch.cuda.Stream() if options.device is Device.CUDA else None for _ in range(options.replicas)
        ]
        check_batch_axis(options, self.inputs)
        self._check_sizes()
        self.outputs = self._probe(path)
        warm_up(self, options, self._zeros, times=options.replicas if options.device is Device.CUDA else 1)

    def run(self, replica: int, feeds: Feeds) -> list[Array]:
        """See Model."""
        rows = len(next(iter(feeds.values())))
        wanted = self.options.batch if self.options.compiled else max(rows, self._least)
        with self._running(replica):
            tensors = [self._tensor(_filled(feeds[spec.name], wanted)) for spec in self.inputs]
            return [_numbers(output, rows, wanted) for _, output in self._outputs(self._call(tensors))]

    def gpu_bytes(self) -> int | None:
        """See Model: by PyTorch's own allocator."""
        if self.options.device is not Device.CUDA:
            return None
        return int(self._torch.cuda.max_memory_reserved())

    def _set_precision(self) -> None:
        torch = self._torch
        torch.set_num_threads(self.options.threads)
        tf32 = self.options.precision is Precision.TF32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32

    @property
    def _type(self) -> Any:
        """The 16-bit type of weights and inputs; None where the file's own types stay."""
        of = {Precision.BF16: self._torch.bfloat16, Precision.FP16: self._torch.float16}
        return of.get(self.options.precision)

    def _placed(self, module: Any) -> Any:
        module = module.to(self._device)
        return module if self._type is None or self._autocast else module.to(self._type)

    def _exported(self, path: Path) -> tuple[Callable[[list[Any]], Any], tuple[TensorSpec, ...]]:
        torch = self._torch
        with _reading(path, "torch.export"):
            program = torch.export.load(path)
        module = moved(torch, program, self._device)
        if self._type is not None and not self._autocast:
            rewrite(module, {torch.float32: self._type})
        module = self._placed(module)
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        names = [name for name in program.graph_signature.user_inputs if name in nodes]
        values = [nodes[name].meta.get("val") for name in names]
        if not all(hasattr(value, "shape") for value in values):
            raise BadInput(f"{path}: an input is not a tensor; export a module whose inputs are tensors alone")
        specs = tuple(_spec(path, name, value) for name, value in zip(names, values, strict=True))
        self._least = _least_items(program, values)
        by_name = _by_name(program, len(names))
        if self.options.compiled:
            module = torch.compile(module)

        def call(tensors: list[Any]) -> Any:
            first = len(tensors) - len(by_name)
            return module(*tensors[:first], **dict(zip(by_name, tensors[first:], strict=True)))

        return call, specs

    def _scripted(self, path: Path) -> tuple[Callable[[list[Any]], Any], tuple[TensorSpec, ...]]:
        if self.options.compiled:
            raise BadInput(f"--compile: {path} is TorchScript; torch.compile needs a file of torch.export (.pt2)")
        if not self.options.inputs:
            raise BadInput(
                f"{path}: TorchScript does not tell its inputs; give each, e.g. --input image=FP32:3x224x224"
            )
        with _reading(path, "TorchScript"):
            module = self._placed(self._torch.jit.load(os.fspath(path), map_location=self._device).eval())
        return lambda tensors: module(*tensors), self.options.inputs

    def _check_sizes(self) -> None:
        for spec in self.inputs:
            for axis, size in enumerate(spec.shape):
                if axis and size == -1 and f"{spec.name}.{axis}" not in self.options.sizes:
                    raise BadInput(
                        f"{self.options.model}: input {spec.name}: axis {axis} ({spec.name}.{axis}) has no size; give"
                        f" one, e.g. --size {spec.name}.{axis}=128"
                    )

    def _probe(self, path: Path) -> tuple[TensorSpec, ...]:
        """The outputs, from a run. A graph with types of its own runs in 16 bits by autocast. Raises BadInput."""
        rows = max(2 if self.options.batch > 1 else 1, self._least)
        rows = self.options.batch if self.options.compiled else rows
        feeds = {spec.name: self._zeros(spec, rows if spec.shape[0] == -1 else spec.shape[0]) for spec in self.inputs}
        try:
            return self._seen(feeds)
        except ModelRefused as error:
            mixed = any(words in str(error).lower() for words in _MIXED_TYPES)
            if self._type is None or self._autocast or not mixed:
                raise BadInput(f"{path}: does not run: {error}") from error
        self._autocast = True
        self._call, _ = self._scripted(path) if _is_scripted(self.options) else self._exported(path)
        return self._probe(path)

    def _seen(self, feeds: Feeds) -> tuple[TensorSpec, ...]:
        with self._running(0):
            outputs = self._outputs(self._call([self._tensor(feeds[spec.name]) for spec in self.inputs]))
            arrays = [(name, _plain(tensor)) for name, tensor in outputs]
        if not arrays:
            raise ModelRefused("it has no output that is a tensor")
        if odd := [name for name, array in arrays if str(array.dtype) not in _NAMES or not array.ndim]:
            raise ModelRefused(f"output {odd[0]} cannot be served: it has no axis, or numbers of an unknown type")
        return tuple(
            TensorSpec(name=name, datatype=_NAMES[str(array.dtype)], shape=(-1, *array.shape[1:]))
            for name, array in arrays
        )

    def _outputs(self, found: Any) -> list[tuple[str, Any]]:
        """The tensors of what the model returned, under their keys."""
        from torch.utils._pytree import tree_flatten_with_path  # noqa: PLC0415

        leaves = [(path, leaf) for path, leaf in tree_flatten_with_path(found)[0] if hasattr(leaf, "dtype")]
        if len(leaves) == 1 and not leaves[0][0]:
            return [("output", leaves[0][1])]
        return [(_key(path, number), leaf) for number, (path, leaf) in enumerate(leaves)]

    def _tensor(self, array: Array) -> Any:
        writable = array if array.flags.writeable else array.copy()
        tensor = self._torch.from_numpy(writable).to(self._device)
        return tensor.to(self._type) if self._type is not None and tensor.is_floating_point() else tensor

    def _zeros(self, spec: TensorSpec, rows: int) -> Array:
        sizes = [
            self.options.sizes[f"{spec.name}.{axis}"] if size == -1 else size
            for axis, size in enumerate(spec.shape)
            if axis
        ]
        return np.zeros((rows, *sizes), dtype=DATATYPES[spec.datatype])

    @contextmanager
    def _running(self, replica: int) -> "Iterator[None]":
        """In this replica's stream, without gradients; PyTorch's errors as ModelRefused with their first line."""
        torch = self._torch
        try:
            with ExitStack() as stack:
                stack.enter_context(torch.inference_mode())
                if (stream := self._streams[replica % len(self._streams)]) is not None:
                    stack.enter_context(torch.cuda.stream(stream))
                if self._autocast:
                    stack.enter_context(torch.autocast(self._device.type, dtype=self._type))
                yield
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, MemoryError) as error:
            text = _first_line(error)
            if "cuda error" in text.lower() and not any(words in text.lower() for words in _OUT_OF_MEMORY):
                # Nothing runs any more in a process whose CUDA context is broken: whoever started it must know.
                print(f"mlcd.server: the GPU failed: {text}", file=sys.stderr, flush=True)  # noqa: T201
                os._exit(_BROKEN_CONTEXT_EXIT)
            raise ModelRefused(text) from error


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(missing_text("serve-torch", "a PyTorch model")) from error
    return torch


def _device(torch: Any, options: ServerOptions) -> Any:
    if options.device is Device.CPU:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise BadInput("--device: PyTorch finds no GPU here that it can use; choose cpu")
    return torch.device("cuda", 0)


def _is_scripted(options: ServerOptions) -> bool:
    return options.model.suffix.lower() in SCRIPTED


@contextmanager
def _reading(path: Path, how: str) -> "Iterator[None]":
    """What goes wrong while a file is read, as BadInput: PyTorch raises almost anything."""
    try:
        with only_weights(path, how):
            yield
    except Malformed as error:
        raise BadInput(str(error)) from error


def _spec(path: Path, name: str, value: Any) -> TensorSpec:
    datatype = _NAMES.get(str(value.dtype).removeprefix("torch."))
    if datatype is None:
        raise BadInput(f"{path}: input {name} has {value.dtype}; only plain numbers can be served")
    return TensorSpec(
        name=name, datatype=datatype, shape=tuple(size if isinstance(size, int) else -1 for size in value.shape)
    )


def _least_items(program: Any, values: Sequence[Any]) -> int:
    """The fewest items that the exported graph takes in a batch."""
    least = 1
    for value in values:
        size = value.shape[0] if len(value.shape) else 1
        symbol = None if isinstance(size, int) else size.node.expr
        for of, bounds in program.range_constraints.items():
            if of == symbol:
                least = max(least, int(bounds.lower))
    return least


def moved(torch: Any, program: Any, device: Any) -> Any:
    """The program's module on a device: its weights, its constants, and what its graph makes while it runs."""
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass  # noqa: PLC0415

        program = move_to_device_pass(program, str(device))
    module = program.module()
    rewrite(module, {torch.device("cpu"): device})
    return module


def rewrite(module: Any, changes: Mapping[Any, Any]) -> None:
    """Replace types or devices that were written into a graph when it was exported: in casts, constants and masks."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.args = _replaced(node.args, changes)
            node.kwargs = _replaced(node.kwargs, changes)
    module.recompile()


def _replaced(value: Any, changes: Mapping[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(each, changes) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(each, changes) for each in value)
    of_torch = type(value).__module__ == "torch"  # a torch.dtype or torch.device; nodes need not be hashable
    return changes.get(value, value) if of_torch else value


def _by_name(program: Any, count: int) -> tuple[str, ...]:
    """The names of the inputs that the module takes by name; the others come first, by position."""
    given = program.example_inputs
    names = tuple((given[1] or {}).keys()) if given is not None else ()
    return names if len(names) <= count else ()


def _filled(array: Array, rows: int) -> Array:
    if len(array) == rows:
        return array
    return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])


def _plain(tensor: Any) -> Array:
    """As numpy has it: 16-bit floats as 32-bit ones."""
    whole = tensor.detach()
    whole = whole.float() if whole.is_floating_point() and whole.element_size() < 4 else whole
    found: Array = whole.cpu().numpy()
    return found


def _numbers(tensor: Any, rows: int, run: int) -> Array:
    found = _plain(tensor)
    return found[:rows] if run > rows and len(found) == run else found


def _key(path: Sequence[Any], number: int) -> str:
    parts = [str(getattr(part, "key", getattr(part, "name", ""))) for part in path]
    plain = ".".join(part for part in parts if part)
    return plain if plain.replace(".", "").replace("_", "").isalnum() else f"output_{number}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__
