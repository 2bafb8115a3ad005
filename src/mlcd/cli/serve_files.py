"""Write the deployment files of a recommended configuration, together with its model."""

import shutil
from pathlib import Path

from mlcd.cli.own_wheel import WHEEL_NAME, write_wheel
from mlcd.clouds.serving import LocalServing
from mlcd.clouds.serving.local import cores_of
from mlcd.errors import BadInput
from mlcd.findings import shown
from mlcd.report.deploy_files import Deployment, deploy_files, model_path
from mlcd.report.wording import speed_text
from mlcd.run.run import SearchRun
from mlcd.server.quantise import quantised, weights_beside
from mlcd.units import latency_text


def write_files(kind: str, folder: Path, record: SearchRun, cloud: LocalServing) -> list[Path]:
    """Write the files of a kind into `folder`, created if missing. Returns their paths. Raises BadInput."""
    choice = shown(record).serve_findings.choice
    if choice is None:
        return []
    if "gpu_share" in choice.config.as_dict() or cloud.model.suffix.lower() != ".onnx":
        raise BadInput("--write: files are written for ONNX models on processors; start this one with --deploy")
    source = _source(cloud, str(choice.config["precision"]))
    held = f"{speed_text(choice.requests_per_second)} requests/s at p99 {latency_text(choice.load.p99_seconds)}"
    deployment = Deployment(
        name=record.problem.name,
        model_file=source.name,
        weights=tuple(file.name for file in weights_beside(source)),
        wheel=WHEEL_NAME,
        config=choice.config,
        cpus=cores_of(choice.config, len(cloud.cpus)),
        memory_gib=choice.load.memory_gib,
        sizes=cloud.sizes,
        promise=f"held {held} on {len(cloud.cpus)} processors",
    )
    try:
        written = []
        for name, text in deploy_files(kind, deployment).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        target = folder / model_path(kind, deployment)
        target.parent.mkdir(parents=True, exist_ok=True)
        for file, place in ((source, target), *((w, target.parent / w.name) for w in weights_beside(source))):
            if not (place.exists() and place.samefile(file)):
                shutil.copyfile(file, place)
            written.append(place)
        if kind != "triton":
            written.append(write_wheel(folder))
    except OSError as error:
        raise BadInput(f"--write: {error.filename or folder} cannot be written: {error.strerror or error}") from error
    return written


def _source(cloud: LocalServing, precision: str) -> Path:
    """The model's file as it is served: quantised if the choice is int8."""
    if precision == "fp32":
        return cloud.model
    return quantised(cloud.model, cloud.home / "quantised")
