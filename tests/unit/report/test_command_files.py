"""The files of servers that are commands, and of traffic that changes: what they start, and how it scales."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlcd.report.autoscaling import on_schedule
from mlcd.report.command_files import CommandDeployment, command_files
from mlcd.report.deploy_files import Deployment, deploy_files
from mlcd.report.service_files import Rented
from mlcd.run.findings import DayPlan
from mlcd.space import Config
from mlcd.units import Usd

ROOT = Path(__file__).resolve().parents[3]
SKYPILOT = ROOT / ".venvs" / "skypilot" / "bin" / "python"
RUN = 'exec serve "$MODEL" --port $PORT --seqs $SEQS; echo $(date)'


def day(*replicas: int, start_seconds: float = 90.0) -> DayPlan:
    return DayPlan(
        rates=tuple(2.5 * count for count in replicas),
        replicas=replicas,
        replica_requests_per_second=2.5,
        start_seconds=start_seconds,
        usd=Usd.of(1),
        fixed_usd=Usd.of(2),
        changes=(),
        follow_seconds=150.0,
    )


DAY = day(*(1,) * 8, *(4,) * 10, *(2,) * 6)


def deployment(**changes: Any) -> CommandDeployment:
    given: dict[str, Any] = {
        "name": "Llama 8B",
        "run": RUN,
        "config": Config.of({"instance": "g6.xlarge", "SEQS": 16, "DTYPE": "bf16"}),
        "knobs": {"SEQS": "16", "DTYPE": "bf16"},
        "image": "vllm/vllm-openai:latest",
        "model": "/home/me/llama",
        "model_is_here": True,
        "ready": "/health",
        "rate": 2.5,
        "cpus": 8,
        "gpus": 2,
        "gpu": "L4",
        "memory_gib": 10.0,
        "promise": "held 2.5/s: {all}",
        "start_seconds": 90.0,
        "day": DAY,
    }
    return CommandDeployment(**{**given, **changes})


def loaded(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


KNOWN = {"SEQS": "16", "DTYPE": "bf16", "MODEL": "/models/llama", "HOST": "0.0.0.0", "PORT": "8000"}


def test_compose_starts_the_command_with_its_variables() -> None:
    ((made,),) = [
        list(each["services"].values()) for each in loaded(command_files("compose", deployment())["compose.yaml"])
    ]
    assert made["image"] == "vllm/vllm-openai:latest"
    assert made["environment"] == KNOWN
    assert made["entrypoint"] == ["/bin/sh", "-c", RUN.replace("$", "$$")], "Compose would replace $PORT itself"
    assert made["volumes"] == ["/home/me/llama:/models/llama:ro"]
    assert made["mem_limit"] == "15360m"
    assert made["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


def test_values_with_dollars_arrive_as_they_are() -> None:
    """Compose replaces $NAME in every value, and Kubernetes $(NAME)."""
    odd = deployment(knobs={"SEQS": "$(id) ${HOME}"}, model="/data/$USER/llama")
    (made,) = loaded(command_files("compose", odd)["compose.yaml"])[0]["services"].values()
    assert made["environment"]["SEQS"] == "$$(id) $${HOME}"
    assert made["volumes"] == ["/data/$$USER/llama:/models/llama:ro"]
    made, _ = loaded(command_files("kubernetes", odd)["kubernetes.yaml"])
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert environment(container)["SEQS"] == "$$(id) ${HOME}"


def test_as_many_servers_as_held_the_rate() -> None:
    config = Config.of({"instance": "g6.xlarge", "nodes": 3, "SEQS": 16})
    three = deployment(config=config, knobs={"SEQS": "16"}, servers=3, day=None)
    made, _ = loaded(command_files("kubernetes", three)["kubernetes.yaml"])
    assert made["spec"]["replicas"] == 3
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert set(environment(container)) == {"SEQS", "MODEL", "HOST", "PORT"}, "not what mlcd chose for the nodes"
    (made,) = loaded(command_files("kserve", three)["inferenceservice.yaml"])
    assert (made["spec"]["predictor"]["minReplicas"], made["spec"]["predictor"]["maxReplicas"]) == (3, 3)
    (made,) = loaded(command_files("skyserve", three)["service.yaml"])
    assert made["service"]["replicas"] == 3


def test_kubernetes_starts_the_command_and_waits_for_it() -> None:
    files = command_files("kubernetes", deployment())
    made, service = loaded(files["kubernetes.yaml"])
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["/bin/sh", "-c", RUN.replace("$(", "$$(")]
    assert environment(container) == KNOWN
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "15360Mi", "nvidia.com/gpu": "2"}
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 3 * 90
    assert container["volumeMounts"][0]["mountPath"] == "/models"
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "llama-8b-model"
    assert service["spec"]["selector"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["replicas"] == 1
    assert "&id" not in files["kubernetes.yaml"]
    named = command_files("kubernetes", deployment(model="org/llama", model_is_here=False, day=None))
    assert set(named) == {"kubernetes.yaml"}
    assert "volumes" not in loaded(named["kubernetes.yaml"])[0]["spec"]["template"]["spec"]


def test_replicas_by_the_hour_start_early_by_the_clock() -> None:
    files = command_files("kubernetes", deployment())
    (keda,), (hpa,) = loaded(files["keda.yaml"]), loaded(files["hpa.yaml"])
    assert keda["spec"]["scaleTargetRef"]["name"] == hpa["spec"]["scaleTargetRef"]["name"] == "llama-8b"
    assert (keda["spec"]["minReplicaCount"], keda["spec"]["maxReplicaCount"]) == (1, 4)
    assert [each["metadata"] for each in keda["spec"]["triggers"]] == [
        {"timezone": "Etc/UTC", "start": "58 7 * * *", "end": "0 18 * * *", "desiredReplicas": "4"},
        {"timezone": "Etc/UTC", "start": "58 17 * * *", "end": "0 0 * * *", "desiredReplicas": "2"},
    ]
    (metric,) = hpa["spec"]["metrics"]
    assert metric["pods"]["target"]["averageValue"] == "2500m"
    assert "not both" in files["keda.yaml"].splitlines()[0]


def test_a_week_has_days_and_other_profiles_have_no_clock() -> None:
    week = on_schedule("x", {}, day(*(1,) * 30, 3, *(1,) * 136, 2))
    assert week is not None
    assert [each["metadata"]["start"] for each in week["spec"]["triggers"]] == ["58 5 * * 2", "58 22 * * 0"]
    assert [each["metadata"]["end"] for each in week["spec"]["triggers"]] == ["0 7 * * 2", "0 0 * * 1"]
    assert on_schedule("x", {}, day(*(1,) * 29, 2)) is None
    assert on_schedule("x", {}, day(*(2,) * 24)) is None, "nothing changes"


def test_kserve_has_the_container_as_its_predictor() -> None:
    files = command_files("kserve", deployment())
    (made,) = loaded(files["inferenceservice.yaml"])
    assert (made["apiVersion"], made["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor = made["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 4)
    assert predictor["containers"][0]["name"] == "kserve-container"
    assert environment(predictor["containers"][0]) == KNOWN
    (keda,) = loaded(files["keda.yaml"])
    assert keda["spec"]["scaleTargetRef"]["name"] == "llama-8b-predictor"


ONNX = Deployment(
    name="ResNet",
    model_file="a b.onnx",
    wheel="mlcd-1.0-py3-none-any.whl",
    config=Config.of({"batch": 8, "threads": 1, "replicas": 2, "precision": "fp32"}),
    cpus=2,
    memory_gib=0.5,
    day=DAY,
)


def test_skyserve_has_a_policy_and_the_command() -> None:
    (made,) = loaded(command_files("skyserve", deployment())["service.yaml"])
    assert made["service"]["replica_policy"] == {
        "min_replicas": 1,
        "max_replicas": 4,
        "target_qps_per_replica": 2.5,
        "upscale_delay_seconds": 20,
        "downscale_delay_seconds": 600,
    }
    assert made["service"]["readiness_probe"] == {"path": "/health", "initial_delay_seconds": 270}
    assert made["run"] == RUN
    assert made["envs"] == KNOWN
    assert made["file_mounts"] == {"/models/llama": "/home/me/llama"}
    assert made["resources"]["accelerators"] == {"L4": 2}
    (onnx,) = loaded(deploy_files("skyserve", ONNX)["service.yaml"])
    assert "'./a b.onnx'" in onnx["run"]
    assert onnx["run"].startswith('"$HOME/.mlcd-server"/bin/python -m mlcd.server ')
    assert "uv venv --quiet --python '>=3.11'" in onnx["setup"]  # SkyPilot's nodes have Python 3.10
    assert "mlcd-1.0-py3-none-any.whl[serve]" in onnx["setup"]


RENTED = Rented(
    infra="aws/us-east-1",
    instance_type="g6.xlarge",
    workdir="/home/me/code",
    secrets=("HF_TOKEN",),
    file_mounts={"/d": "s3://d"},
)


def test_skyserve_has_the_nodes_that_were_measured() -> None:
    (made,) = loaded(command_files("skyserve", deployment(rented=RENTED, setup="pip install x"))["service.yaml"])
    assert made["resources"] == {
        "ports": 8000,
        "infra": "aws/us-east-1",
        "instance_type": "g6.xlarge",
        "image_id": "docker:vllm/vllm-openai:latest",
    }
    assert made["secrets"] == {"HF_TOKEN": None}  # `sky serve up --secret HF_TOKEN` tells it
    assert made["file_mounts"] == {"/d": "s3://d", "/models/llama": "/home/me/llama"}
    assert (made["workdir"], made["setup"]) == ("/home/me/code", "pip install x")
    (onnx,) = loaded(deploy_files("skyserve", replace(ONNX, rented=RENTED))["service.yaml"])
    assert onnx["resources"]["instance_type"] == "g6.xlarge"
    assert onnx["workdir"] == "."


def test_kserve_and_scaling_of_an_onnx_model() -> None:
    files = deploy_files("kserve", ONNX)
    assert set(files) == {"inferenceservice.yaml", "hpa.yaml", "keda.yaml", "Dockerfile"}
    (made,) = loaded(files["inferenceservice.yaml"])
    assert made["spec"]["predictor"]["containers"][0]["image"] == "resnet:latest"
    assert "command" not in made["spec"]["predictor"]["containers"][0], "the image has it"


LOAD = """
import sys, yaml
from sky import Task
for file in sys.argv[1:]:
    task = Task.from_yaml_config(yaml.safe_load(open(file)))
    policy = task.service
    print(policy.min_replicas, policy.max_replicas, policy.target_qps_per_replica, policy.readiness_path, len(task.run))
"""


@pytest.mark.skipif(not SKYPILOT.exists(), reason=".venvs/skypilot is missing; run: scripts/setup-skypilot")
def test_skypilot_reads_the_service(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    here = deployment(model=str(tmp_path / "model"))
    texts = {
        "day": command_files("skyserve", here)["service.yaml"],
        "alone": command_files("skyserve", deployment(day=None, model="org/x", model_is_here=False))["service.yaml"],
        "onnx": deploy_files("skyserve", ONNX)["service.yaml"],
        "rented": command_files(
            "skyserve",
            deployment(rented=Rented(infra="kubernetes", instance_type="4CPU--16GB"), model="x", model_is_here=False),
        )["service.yaml"],
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command = [str(SKYPILOT), "-c", LOAD, *(str(tmp_path / f"{name}.yaml") for name in texts)]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr[-2000:]
    lines = found.stdout.strip().splitlines()[-4:]
    assert lines[0].startswith("1 4 2.5 /health")
    assert lines[1].startswith("1 1 None /health") or lines[1].startswith("1 None None /health")
    assert lines[2].startswith("1 4 2.5 /v2/health/ready")
    assert lines[3].startswith("1 4 2.5 /health")
