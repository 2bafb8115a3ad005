"""The files of a recommended configuration: valid, quoted, and saying the same as the choice."""

import json

import pytest
import yaml

from mlcd.report.deploy_files import KINDS, Deployment, deploy_files, model_path
from mlcd.server.limits import Limits
from mlcd.space import Config


def deployment(**changes: object) -> Deployment:
    config = Config.of({"batch": 8, "threads": 1, "replicas": 2, "precision": "fp32"})
    given = {"name": "ResNet_50 on", "model_file": 'a "b": #c.onnx', "config": config, "cpus": 2, "memory_gib": 0.5}
    given["wheel"] = "mlcd-1.0-py3-none-any.whl"
    return Deployment(**{**given, **changes})  # type: ignore[arg-type]


def test_compose_is_yaml_that_builds_and_limits_the_server() -> None:
    files = deploy_files("compose", deployment(sizes={"sequence": 128}))
    service = yaml.safe_load(files["compose.yaml"])["services"]["resnet-50-on"]
    assert service["cpus"] == 2
    assert service["mem_limit"] == f"{768 + 512}m"  # 1.5 x its own, and twice what clients may have in flight
    assert service["ulimits"]["nofile"] >= Limits().connections
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    command = next(line for line in files["Dockerfile"].splitlines() if line.startswith("CMD "))
    words = json.loads(command.removeprefix("CMD "))
    assert words[:5] == ["python", "-m", "mlcd.server", '/models/a "b": #c.onnx', "--name"]
    assert {"--batch=8", "--threads=1", "--replicas=2", "sequence=128", "--port=8000"} <= set(words)
    assert set(Limits().arguments()) <= set(words)
    copied = [line.removeprefix("COPY ") for line in files["Dockerfile"].splitlines() if line.startswith("COPY ")]
    assert [json.loads(line)[0] for line in copied] == ["mlcd-1.0-py3-none-any.whl", 'a "b": #c.onnx']
    assert 'RUN pip install --no-cache-dir "/wheels/mlcd-1.0-py3-none-any.whl[serve]"' in files["Dockerfile"]


def test_kubernetes_has_a_deployment_and_a_service_that_selects_it() -> None:
    made, service = yaml.safe_load_all(deploy_files("kubernetes", deployment())["kubernetes.yaml"])
    assert (made["kind"], service["kind"]) == ("Deployment", "Service")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": f"{768 + 512}Mi"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert service["spec"]["selector"] == made["spec"]["template"]["metadata"]["labels"]


def test_triton_batches_and_counts_its_instances() -> None:
    files = deploy_files("triton", deployment())
    text = files["resnet-50-on/config.pbtxt"]
    assert "max_batch_size: 8" in text
    assert "count: 2, kind: KIND_CPU" in text
    assert 'key: "intra_op_thread_count", value: { string_value: "1" }' in text
    assert "dynamic_batching" in text
    assert text.count("{") == text.count("}")
    assert str(model_path("triton", deployment())) == "resnet-50-on/1/model.onnx"
    alone = Config.of({"batch": 1, "threads": 2, "replicas": 1, "precision": "fp32"})
    assert "dynamic_batching" not in deploy_files("triton", deployment(config=alone))["resnet-50-on/config.pbtxt"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_promise_text_stays_inside_its_comment(kind: str) -> None:
    for text in deploy_files(kind, deployment(promise="120/s\nat p99: {8 ms}")).values():
        assert "120/s at p99: {8 ms}" in text.splitlines()[1]
        assert text.splitlines()[1].startswith("# ")


def test_no_memory_is_asked_for_where_none_was_seen() -> None:
    assert "mem_limit" not in deploy_files("compose", deployment(memory_gib=None))["compose.yaml"]


def test_a_name_without_letters_is_still_a_name() -> None:
    assert deployment(name="___").label == "model"
    assert len(deployment(name="a" * 80).label) == 63
