"""Write the deployment files of a recommended configuration, together with its model."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from mlcd.catalog import Instance
from mlcd.cli.output import place_in
from mlcd.cli.own_wheel import WHEEL_NAME, write_wheel
from mlcd.clouds.serving import CommandServing, LocalServing
from mlcd.clouds.serving.local import cores_of
from mlcd.clouds.skypilot import SkyPilotEngine
from mlcd.errors import BadInput
from mlcd.findings import shown
from mlcd.gpus import find_gpus
from mlcd.jobs.serve_nodes import Leasable
from mlcd.report.command_files import CommandDeployment, command_files
from mlcd.report.deploy_files import Deployment, deploy_files, model_path
from mlcd.report.service_files import Rented
from mlcd.report.wording import speed_text
from mlcd.run.run import SearchRun
from mlcd.server.quantise import quantised, weights_of
from mlcd.space import Config
from mlcd.spec.serve import ServeSpec
from mlcd.trial.replicas import settings_of
from mlcd.units import latency_text


def write_files(
    kind: str, folder: Path, record: SearchRun, cloud: LocalServing, nodes: Leasable | None = None
) -> list[Path]:
    """Write the files of a kind into `folder`, created if missing. Returns their paths. Raises BadInput.

    nodes  on which it was measured; None: this machine
    """
    choice = shown(record).serve_findings.choice
    if choice is None:
        return []
    if "gpu_share" in choice.config.as_dict() or cloud.model.suffix.lower() != ".onnx":
        raise BadInput("--write: files are written for ONNX models on processors; start this one with --deploy")
    source = _source(cloud, str(choice.config["precision"]))
    weights = weights_of(source)
    held = f"{speed_text(choice.requests_per_second)} requests/s at p99 {latency_text(choice.load.p99_seconds)}"
    machine = _machine(nodes, choice.config)
    cpus = len(cloud.cpus) if machine is None else max(int(machine.vcpus), 1)
    deployment = Deployment(
        name=record.problem.name,
        model_file=source.name,
        weights=tuple(str(name) for name in weights),
        wheel=WHEEL_NAME,
        config=choice.config,
        cpus=cores_of(choice.config, cpus),
        memory_gib=choice.load.memory_gib,
        sizes=cloud.sizes,
        promise=f"held {held} {_where(machine, choice.config) or f'on {cpus} processors'}",
        servers=choice.config.nodes,
        rate=choice.requests_per_second,
        start_seconds=start_seconds(record, choice.config),
        day=shown(record).serve_findings.day,
        rented=rented(nodes, choice.config),
    )
    files, target = deploy_files(kind, deployment), model_path(kind, deployment)
    models = {target: source, **{target.parent / name: source.parent / name for name in weights}}
    _check_names([*files, WHEEL_NAME], models, of=source)
    try:
        written = _written(folder, files)
        for name, file in models.items():
            place = folder / name
            if not (place.exists() and place.samefile(file)):
                shutil.copyfile(file, place_in(folder, name))
            written.append(place)
        if kind != "triton":
            written.append(write_wheel(folder))
    except OSError as error:
        raise BadInput(f"--write: {error.filename or folder} cannot be written: {error.strerror or error}") from error
    return written


def _check_names(own: Sequence[str], models: Mapping[PurePosixPath, Path], *, of: Path) -> None:
    """Raises BadInput where a model's weights would take the place of a file that mlcd writes, such as Dockerfile."""
    taken = {name.lower() for name in own}
    for name, file in models.items():
        if str(name).lower() in taken or any(str(parent).lower() in taken for parent in name.parents):
            problem = f"its weights are in {file.name!r}, which is the name of a file that mlcd writes"
            raise BadInput(f"--write: {of}: {problem}; save the model again with its weights in another file")


def write_command_files(
    kind: str,
    folder: Path,
    record: SearchRun,
    cloud: CommandServing,
    *,
    spec: ServeSpec,
    nodes: Leasable | None = None,
) -> list[Path]:
    """Write the files of a kind that start the chosen configuration of a command. Raises BadInput.

    nodes  on which it was measured; None: this machine
    """
    found = shown(record).serve_findings
    choice = found.choice
    if choice is None:
        return []
    tokens = choice.load.tokens
    flight = f", with at most {choice.most_in_flight:.0f} in flight" if choice.most_in_flight else ""
    first = f", time to first token p95 {latency_text(tokens.ttft[1])}" if tokens is not None else ""
    machine = _machine(nodes, choice.config)
    where = f" {_where(machine, choice.config)}" if machine is not None else ""
    if machine is not None:
        cpus = max(int(machine.vcpus), 1)
        gpus = [machine.accelerator or ""] * (machine.accelerators if machine.has_gpu else 0)
    else:
        here = [gpu.model for gpu in find_gpus()]
        cpus, gpus = len(cloud.cpus), here[: 1 if cloud.gpu is not None else None]
    deployment = CommandDeployment(
        name=record.problem.name,
        run=cloud.run,
        config=choice.config,
        knobs=cloud.knobs(choice.config.of_node),
        image=spec.server.image if spec.server is not None else "",
        model=cloud.model,
        model_is_here=Path(cloud.model).is_absolute() and Path(cloud.model).exists(),
        ready=cloud.ready,
        cpus=cpus,
        gpus=len(gpus),
        gpu=gpus[0] if gpus else "",
        memory_gib=choice.load.memory_gib,
        promise=f"held {speed_text(choice.requests_per_second)} requests/s{first}{flight}{where}",
        servers=choice.config.nodes,
        rate=choice.requests_per_second,
        start_seconds=start_seconds(record, choice.config),
        day=found.day,
        rented=rented(nodes, choice.config, spec=spec, workdir=cloud.workdir),
        setup=cloud.setup,
    )
    try:
        return _written(folder, command_files(kind, deployment))
    except OSError as error:
        raise BadInput(f"--write: {error.filename or folder} cannot be written: {error.strerror or error}") from error


def start_seconds(record: SearchRun, config: Config) -> float:
    """The longest that a server of this configuration took to become ready."""
    trials = (trial for trial in record.history.measured if settings_of(trial.config) == settings_of(config))
    return max((trial.startup_seconds for trial in trials), default=0.0)


def rented(
    nodes: Leasable | None, config: Config, *, spec: ServeSpec | None = None, workdir: Path | None = None
) -> Rented | None:
    """The nodes of SkyPilot's that the choice was measured on; None: other ones.

    spec, workdir  of a server that is a command
    """
    if nodes is None or not isinstance(nodes.engine, SkyPilotEngine):
        return None
    place = nodes.engine.settings.sky_infra
    if spec is None:
        return Rented(infra=place, instance_type=config.instance)
    return Rented(
        infra=place,
        instance_type=config.instance,
        image_id=spec.resources.image_id,
        workdir=str(workdir) if workdir is not None else "",
        secrets=spec.secrets,
        file_mounts=spec.file_mounts,
    )


def _machine(nodes: Leasable | None, config: Config) -> Instance | None:
    """The type of the leased nodes; None: this machine."""
    return next((each for each in nodes.instances if each.name == config.instance), None) if nodes else None


def _where(machine: Instance | None, config: Config) -> str:
    return f"on {config.nodes} x {machine.name}" if machine is not None else ""


def _written(folder: Path, files: Mapping[str, str]) -> list[Path]:
    written = []
    for name, text in files.items():
        path = place_in(folder, name)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _source(cloud: LocalServing, precision: str) -> Path:
    """The model's file as it is served: quantised if the choice is int8."""
    if precision == "fp32":
        return cloud.model
    return quantised(cloud.model, cloud.home / "quantised")
