"""How a server is started on a node: a command for its shell, and what a node without this machine's files needs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from mlcd.errors import BadInput
from mlcd.server.options import Engine, Precision, ServerOptions
from mlcd.server.quantise import weights_of

MODEL_FOLDER = "mlcd-model"
"""Where a rented node has the model's files, below the folder in which its server starts."""
READY = "/v2/health/ready"
"""Of mlcd's own server."""
SERVER_PACKAGES = ("httptools", "numpy", "onnxruntime", "starlette", "uvicorn")
"""What mlcd's own server needs for ONNX files, besides the modules that are copied (shipping.SERVER)."""
SERVER_PYTHON = ">=3.11"
_ENVIRONMENT = '"$HOME/.mlcd-server-$MLCD_RANK"'
"""Of each node: on some clusters nodes share a home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgram:
    """How a configuration's server is started on a node.

    run    for the shell, which knows $HOST and $PORT: where the server must listen
    env    further variables
    model  the name in requests
    ready  the path that answers 200 when it is ready
    setup  for the shell of the node, before `run`
    folder, files  for a node without this machine's files: what is copied into the folder where `run` starts, and
           files or folders by their path there
    nodes, node_env  over how many nodes one server is spread, and further variables of each of them
    copies  files for such a node that must be real copies, by their path there: a server reads no weights that have
            another name (a hard link)
    """

    run: str
    env: Mapping[str, str]
    model: str
    ready: str
    setup: str = ""
    folder: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    copies: Mapping[str, Path] = field(default_factory=dict)
    nodes: int = 1
    node_env: Sequence[Mapping[str, str]] = ()


def on_rented_node(options: ServerOptions, quantised: Path | None, *, env: Mapping[str, str]) -> NodeProgram:
    """mlcd's own server on a node that has none of this machine's files, with the packages of this environment.

    quantised  the model with 8-bit weights, where `options` ask for them: it is served as it is. Raises BadInput.
    """
    if options.engine is not Engine.ONNX_RUNTIME:
        raise BadInput(f"{options.model}: files of PyTorch are served on local, minicloud and slurm")
    model = quantised or options.model
    folder = model.parent
    weights = {f"{MODEL_FOLDER}/{name}": folder / name for name in weights_of(model)}
    there = replace(
        options,
        model=Path(MODEL_FOLDER) / model.name,
        name=options.model_name,
        precision=Precision.FP32 if quantised else options.precision,
        cache=None,
    )
    packages = shlex.join(f"{name}=={version(name)}" for name in SERVER_PACKAGES)
    arguments = shlex.join(there.arguments())
    return NodeProgram(
        run=f'exec {_ENVIRONMENT}/bin/python -m mlcd.server {arguments} --host "$HOST" --port "$PORT"',
        env=env,
        model=there.model_name,
        ready=READY,
        setup=f'export PATH="$HOME/.local/bin:$PATH"\n'  # where SkyPilot puts uv
        f"uv venv --quiet --python {shlex.quote(SERVER_PYTHON)} {_ENVIRONMENT}"
        f" && uv pip install --quiet --python {_ENVIRONMENT}/bin/python {packages}",
        files={f"{MODEL_FOLDER}/{model.name}": model},
        copies=weights,
    )
