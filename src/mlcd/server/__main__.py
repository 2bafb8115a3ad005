"""`python -m mlcd.server MODEL`: serve one model until SIGTERM, Ctrl-C, or the end of standard input."""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mlcd.errors import BadInput, MlcdError
from mlcd.server.limits import Limits, flag
from mlcd.server.options import Device, Engine, Precision, ServerOptions
from mlcd.server.tensors import input_of
from mlcd.untrusted import whole_number

if TYPE_CHECKING:
    from mlcd.server.model import Model


def main() -> int:
    """Serve; returns the exit code. Prints one line of JSON on standard output once it can answer requests."""
    begun = time.monotonic()
    arguments = _parser().parse_args()
    output = _own_output()
    try:
        options = _options(arguments)
        _pin(options.cpus)
        from mlcd.server.running import allow_descriptors, listen  # noqa: PLC0415

        allow_descriptors(options.limits)
        # Binding comes before the model is read, so that a port in use is reported at once.
        with listen(options.host, options.port) as listener:
            model = _loaded(options)
            _serve(options, model, listener, begun=begun, until_stdin=arguments.until_stdin_closes, output=output)
    except MlcdError as error:
        print(f"mlcd.server: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _own_output() -> int | None:
    """A descriptor of standard output for this module alone; None where it is closed. Other output is standard error's.

    A model may print, before the server is ready and in every run: what reads the line with the address must not take
    it for that line, and need not read on. No child inherits the descriptor.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:  # in the place of standard streams that are closed
        pass
    os.close(free)
    own = None if sys.stdout is None else os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # in one order with the messages
    return own


def _loaded(options: ServerOptions) -> "Model":
    """The model in its engine, after a run of the smallest and the largest batch. Raises BadInput."""
    if options.engine is Engine.PYTORCH:
        from mlcd.server.torch_model import TorchModel  # noqa: PLC0415

        return TorchModel(options)
    from mlcd.server.model import OnnxModel  # noqa: PLC0415

    return OnnxModel(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mlcd.server", description="Serve one ONNX or PyTorch model over HTTP."
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX, torch.export or TorchScript file")
    parser.add_argument("--name", default="", help="name of the model in the URL; default: the file's name")
    parser.add_argument("--batch", type=int, default=1, help="the most items in one batch")
    parser.add_argument("--threads", type=int, default=1, help="threads of one run of the model")
    parser.add_argument("--replicas", type=int, default=1, help="batches that run at the same time")
    parser.add_argument("--precision", choices=[p.value for p in Precision], default="fp32")
    parser.add_argument("--device", choices=[d.value for d in Device], default="cpu", help="what runs the model")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile first")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FP32:3x224x224", help="an input of a TorchScript file"
    )
    parser.add_argument("--delay-ms", type=float, default=1.0, help="how long a request waits for a full batch")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free port")
    parser.add_argument("--cpus", default="", help="processors to use, such as 0,1; default: all")
    parser.add_argument("--size", action="append", default=[], metavar="AXIS=N", help="size of a dynamic axis")
    parser.add_argument("--queue", type=int, default=4096, help="the most requests that may wait")
    parser.add_argument("--request-bytes", type=int, default=64 * 2**20, help="the longest body that is accepted")
    for field in fields(Limits):
        parser.add_argument(flag(field.name), type=type(field.default), default=field.default, help=_HELP[field.name])
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name for this server besides localhost"
    )
    parser.add_argument("--cache", type=Path, help="folder for quantised models")
    parser.add_argument("--until-stdin-closes", action="store_true", help="exit when standard input is closed")
    return parser


_HELP = {
    "connections": "the most connections that are open at once",
    "header_bytes": "the longest headers of a request",
    "header_seconds": "the longest time until the headers of a request are complete",
    "body_seconds": "the longest time until the body of a request is complete, and until an answer is read",
    "idle_seconds": "how long a connection is kept without a request",
    "in_flight_bytes": "the most memory of requests and answers at once",
}


def _options(arguments: argparse.Namespace) -> ServerOptions:
    sizes = {}
    for text in arguments.size:
        axis, _, size = text.rpartition("=")
        number = whole_number(size)
        if not axis or number is None:
            raise BadInput(f"--size: must have the form AXIS=N, such as sequence=128 (got {text[:100]!r})")
        sizes[axis] = number
    cpus = [whole_number(cpu) for cpu in arguments.cpus.split(",")] if arguments.cpus else []
    if None in cpus:
        raise BadInput(f"--cpus: must be comma-separated numbers (got {arguments.cpus[:100]!r})")
    inputs = [input_of(text) for text in arguments.input]
    if None in inputs:
        raise BadInput(f"--input: must have the form NAME=FP32:3x224x224 (got {arguments.input[inputs.index(None)]!r})")
    return ServerOptions(
        model=arguments.model,
        name=arguments.name,
        batch=arguments.batch,
        threads=arguments.threads,
        replicas=arguments.replicas,
        precision=Precision(arguments.precision),
        device=Device(arguments.device),
        compiled=arguments.compile,
        inputs=tuple(spec for spec in inputs if spec is not None),
        delay_seconds=arguments.delay_ms / 1000,
        host=arguments.host,
        port=arguments.port,
        cpus=tuple(cpu for cpu in cpus if cpu is not None),
        sizes=sizes,
        queue=arguments.queue,
        request_bytes=arguments.request_bytes,
        limits=Limits(**{field.name: getattr(arguments, field.name) for field in fields(Limits)}),
        allowed_hosts=tuple(name.lower() for name in arguments.allow_host),
        cache=arguments.cache,
    )


def _pin(cpus: tuple[int, ...]) -> None:
    """Restrict this process to `cpus`. Must be called before any thread starts: threads inherit it."""
    if not cpus:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise BadInput("--cpus: this system cannot pin a process to processors; omit it")
    if unknown := set(cpus) - os.sched_getaffinity(0):
        raise BadInput(
            f"--cpus: not available here (got {sorted(unknown)}); allowed: {sorted(os.sched_getaffinity(0))}"
        )
    os.sched_setaffinity(0, cpus)


def _serve(
    options: ServerOptions,
    model: "Model",
    listener: socket.socket,
    *,
    begun: float,
    until_stdin: bool,
    output: int | None,
) -> None:
    from mlcd.server.app import make_app  # noqa: PLC0415
    from mlcd.server.memory import Memory  # noqa: PLC0415
    from mlcd.server.running import address_of, run_app  # noqa: PLC0415

    memory = Memory(options.limits.in_flight_bytes)
    ready = {
        "address": address_of(listener),
        "model": options.model_name,
        "pid": os.getpid(),
        "startup_seconds": round(time.monotonic() - begun, 3),
        "batch": options.batch,
        "threads": options.threads,
        "replicas": options.replicas,
        "precision": options.precision.value,
        "device": options.device.value,
        "inputs": [spec.as_json() for spec in model.inputs],
        "outputs": [spec.as_json() for spec in model.outputs],
    }
    # The thread that reads requests and those that run the model share the interpreter; its default switch interval of
    # 5 ms would show in every latency.
    sys.setswitchinterval(0.0005)
    if until_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    run_app(
        make_app(options, model, memory),
        listener,
        options.limits,
        memory=memory,
        ready=lambda: _announce(json.dumps(ready), output),
    )


def _announce(line: str, output: int | None) -> None:
    if output is not None:
        with os.fdopen(output, "w", encoding="utf-8") as file:
            file.write(line + "\n")


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
