"""Any server as a command: each configuration is the user's command with its knobs as environment variables."""

import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcd.clouds.gpu_share import on_share
from mlcd.clouds.serving.local import LOOPBACK, Launch, ServersHere
from mlcd.clouds.serving.node_program import MODEL_FOLDER, NodeProgram
from mlcd.gpus import Gpu
from mlcd.home import job_environment
from mlcd.space import UNSET, Config, value_text
from mlcd.space.settings import of_node

SHELL = "/bin/sh"
GPU_SHARE_VARIABLE = "GPU_SHARE"
"""The knob that mlcd itself carries out: how many percent of the GPU the server has."""


class CommandServing(ServersHere):
    """A server that the user's command starts on this machine. It gets $PORT, $HOST, $MODEL and the knobs.

    run          the command, for the shell
    model        $MODEL
    served_name  the model's name in requests
    ready        the path that answers 200 when the server is ready
    envs         further variables
    gpu          for configurations with a share of it (GPU_SHARE)
    folder       where the command runs
    nodes        over which one server is spread, on leased nodes
    per_node     knobs of which each of these has a value of its own
    setup, workdir  for rented nodes: what the shell there runs first, and the folder that is copied to where the
                 command runs; None: an empty one
    """

    def __init__(
        self,
        run: str,
        *,
        home: Path,
        noise: float,
        folder: Path,
        model: str = "",
        served_name: str = "",
        ready: str = "/health",
        envs: Mapping[str, str] | None = None,
        cpus: tuple[int, ...] | None = None,
        gpu: Gpu | None = None,
        setup: str = "",
        workdir: Path | None = None,
        nodes: int = 1,
        per_node: Sequence[str] = (),
    ) -> None:
        super().__init__(home=home, noise=noise, cpus=cpus)
        self.gpu, self.setup, self.workdir = gpu, setup, workdir
        self.nodes, self.per_node = nodes, tuple(per_node)
        self.run, self.folder, self.model = run, folder, model
        self.served_name, self.ready, self.envs = served_name or model, ready, envs or {}

    def launch(self, config: Config, *, host: str = LOOPBACK, port: int = 0) -> Launch:
        """See ServersHere: on a port that is free now, with all CPUs."""
        port = port or free_port()
        command = [SHELL, "-c", self._script]
        env = self.environment(config, host=host, port=port)
        if self.gpu is not None and (share := config.as_dict().get(GPU_SHARE_VARIABLE)) is not None:
            command, env = on_share(command, env, gpu=self.gpu, percent=int(share))
        return Launch(
            command=command,
            env=env,
            gpu=self.gpu,
            cores=len(self.cpus),
            address=f"http://{host}:{port}",
            model=self.served_name,
            ready=self.ready,
        )

    def on_node(self, config: Config, *, shares_files: bool = True) -> NodeProgram:
        """See ServersHere. Where files are shared, the job file's folder must be there."""
        env = {**self.envs, **self.knobs(config)}
        node_env = [
            {name: env[n] for name in self.per_node if (n := of_node(name, rank)) in env} for rank in range(self.nodes)
        ]
        if shares_files:
            env["MODEL"] = self.model
            return NodeProgram(
                run=self._script,
                env=env,
                model=self.served_name,
                ready=self.ready,
                nodes=self.nodes,
                node_env=node_env,
            )
        here = Path(self.model) if self.model else None
        goes_along = here is not None and here.is_absolute() and here.exists()
        there = f"{MODEL_FOLDER}/{here.name}" if here is not None and goes_along else self.model
        return NodeProgram(
            run=f"exec {SHELL} -c {shlex.quote(self.run)}",
            env={**env, "MODEL": there},
            model=there if self.served_name == self.model else self.served_name,
            ready=self.ready,
            setup=self.setup,
            folder=self.workdir,
            files={there: here} if here is not None and goes_along else {},
            nodes=self.nodes,
            node_env=node_env,
        )

    @property
    def _script(self) -> str:
        return f"cd -- {shlex.quote(str(self.folder))} && exec {SHELL} -c {shlex.quote(self.run)}"

    def knobs(self, config: Config) -> dict[str, str]:
        """The command's variables that a configuration sets: of the knobs that apply."""
        return {name: value_text(value) for name, value in config.as_dict().items() if value != UNSET}

    def environment(self, config: Config, *, host: str, port: int) -> dict[str, str]:
        """The command's variables; not where mlcd keeps its records."""
        return {
            **job_environment(),
            **self.envs,
            **self.knobs(config),
            "MODEL": self.model,
            "HOST": host,
            "PORT": str(port),
        }


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
