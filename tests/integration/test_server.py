"""The server from outside: a real process, a third-party client, malformed requests, failing starts."""

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unmeasured import UNMEASURED

from mlcd.errors import BadInput
from mlcd.loadgen import LoadInput, Scenario, measure_load
from mlcd.server import Precision, RunningServer, ServerOptions, start_server

pytestmark = pytest.mark.together("a server")

pytest.importorskip("onnxruntime")
pytest.importorskip("starlette")
serving_models = import_module("benchmarks.serving_models")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return dict(serving_models.build(folder, "mlp-small", "cnn-small", "dcn", "text-cnn"))


@pytest.fixture(scope="module")
def server(models: dict[str, Path]) -> Iterator[RunningServer]:
    with start_server(ServerOptions(model=models["mlp-small"], batch=8, replicas=2, request_bytes=10**6)) as found:
        yield found


@pytest.fixture(scope="module")
def tables(models: dict[str, Path]) -> Iterator[RunningServer]:
    with start_server(ServerOptions(model=models["text-cnn"], batch=4, delay_seconds=0.02)) as found:
        yield found


def send(server: RunningServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """(status, JSON of the response)."""
    host, port = server.address.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, content, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None
    finally:
        connection.close()


def infer(server: RunningServer, body: Any, **headers: str) -> tuple[int, Any]:
    return send(server, "POST", f"/v2/models/{server.model}/infer", body, **headers)


def one(**change: Any) -> dict[str, Any]:
    """A valid request for mlp-small, with changes."""
    return {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.5] * 256, **change}]}


class TestProtocol:
    def test_tritons_client_works(self, server: RunningServer) -> None:
        triton = pytest.importorskip("tritonclient.http")
        client = triton.InferenceServerClient(server.address.removeprefix("http://"))
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("mlp-small")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        assert client.get_model_metadata("mlp-small")["inputs"] == [
            {"name": "input", "datatype": "FP32", "shape": [-1, 256]}
        ]
        values = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
        given = triton.InferInput("input", [3, 256], "FP32")
        given.set_data_from_numpy(values)  # binary, its default
        binary = client.infer("mlp-small", [given], request_id="seven")
        given.set_data_from_numpy(values, binary_data=False)
        wanted = triton.InferRequestedOutput("output", binary_data=False)
        plain = client.infer("mlp-small", [given], outputs=[wanted])
        assert binary.get_response()["id"] == "seven"
        assert binary.as_numpy("output").shape == (3, 10)
        np.testing.assert_allclose(binary.as_numpy("output"), plain.as_numpy("output"), rtol=1e-5, atol=1e-6)
        with pytest.raises(triton.InferenceServerException, match="no model"):
            client.get_model_metadata("other")
        client.close()

    def test_responses_are_the_models_outputs(self, server: RunningServer, models: dict[str, Path]) -> None:
        onnxruntime = pytest.importorskip("onnxruntime")
        values = np.random.default_rng(1).standard_normal((5, 256)).astype(np.float32)
        expected = onnxruntime.InferenceSession(models["mlp-small"]).run(None, {"input": values})[0]
        status, answer = infer(server, one(shape=[5, 256], data=values.tolist()))
        assert status == 200
        assert answer["outputs"][0]["shape"] == [5, 10]
        np.testing.assert_allclose(answer["outputs"][0]["data"], expected.ravel(), rtol=1e-4, atol=1e-5)

    def test_concurrent_requests_share_a_batch_and_get_their_own_answers(self, tables: RunningServer) -> None:
        def ask(seed: int) -> list[float]:
            ids = np.random.default_rng(seed).integers(0, 8000, 64).tolist()
            given = {"name": "ids", "datatype": "INT64", "shape": [1, 64], "data": ids}
            status, answer = infer(tables, {"inputs": [given]})
            assert status == 200
            return list(answer["outputs"][0]["data"])

        alone = [ask(seed) for seed in range(8)]
        before = tables.stats()["batches"]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(ask, range(8)))
        assert tables.stats()["batches"] - before < 8
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)

    def test_versions_stats_and_metrics(self, server: RunningServer) -> None:
        assert send(server, "GET", "/v2/models/mlp-small/versions/1/ready")[0] == 200
        assert send(server, "GET", "/v2/models/mlp-small/versions/2/ready")[0] == 404
        stats = server.stats()
        assert stats["batch"] == 8
        assert stats["peak_memory_bytes"] >= stats["memory_bytes"] > 0
        host, port = server.address.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port))
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'mlcd_server_requests_total{model="mlp-small"}' in text


class TestMalformed:
    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"\xff\xfe\x00", "not UTF-8"),
            (b"[" * 100_000, "deeper than 32 levels"),
            (b"[]", "JSON object"),
            ({}, "inputs: must be a list"),
            ({"inputs": []}, "inputs: must be a list"),
            ({"inputs": [7]}, "needs a name"),
            (one(name="other"), "no input 'other'"),
            ({"inputs": one()["inputs"] * 2}, "given twice"),
            (one(datatype="FP64"), "datatype must be FP32"),
            (one(shape=[1, 255]), "shape must be"),
            (one(shape=[256]), "shape must be"),
            (one(shape=[1, -256]), "whole numbers"),
            (one(shape=[True, 256]), "whole numbers"),
            (one(shape="1x256"), "whole numbers"),
            (one(shape=[0, 256], data=[]), "1 to 8 items"),
            (one(shape=[9, 256], data=[0.5] * 9 * 256), "1 to 8 items"),
            (one(data=[0.5] * 255), "data has 255 numbers"),
            (one(data=["0.5"] * 256), "must be numbers"),
            (one(data=[[0.5] * 255, [0.5]]), "list of numbers"),
            (one(data=[None] * 256), "must be numbers"),
            (one(data={"a": 1}), "needs data"),
            (one(data=None), "needs data"),
            (one(parameters={"binary_data_size": 1024}), "within the body"),
            (one(parameters={"binary_data_size": -1}), "within the body"),
            (one(parameters=7), "parameters must be an object"),
            ({**one(), "outputs": [{"name": "nothing"}]}, "no output 'nothing'"),
            ({**one(), "outputs": 7}, "outputs: must be a list"),
            ({**one(), "outputs": [{"name": "output", "parameters": {"classification": 3}}]}, "classification"),
            ({**one(), "id": 7}, "id: must be a string"),
        ],
    )
    def test_is_answered_400_with_one_line(self, server: RunningServer, body: Any, problem: str) -> None:
        status, answer = infer(server, body)
        assert status == 400
        assert problem in answer["error"]
        assert "\n" not in answer["error"]

    def test_binary_parts_that_do_not_fit(self, server: RunningServer) -> None:
        text = json.dumps(one(data=None, parameters={"binary_data_size": 1024})).encode()
        for tail, length, problem in (
            (b"\0" * 1023, str(len(text)), "within the body"),
            (b"\0" * 1030, str(len(text)), "belong to no input"),
            (b"\0" * 1024, "-5", "number of bytes"),
            (b"\0" * 1024, "999999", "number of bytes"),
            (b"\0" * 1024, "abc", "number of bytes"),
        ):
            status, answer = infer(server, text + tail, Inference_Header_Content_Length=length)
            assert status == 400
            assert problem in answer["error"]
        assert infer(server, text + b"\0" * 1024, Inference_Header_Content_Length=str(len(text)))[0] == 200

    def test_other_refusals(self, server: RunningServer) -> None:
        assert send(server, "GET", "/nothing")[0] == 404
        assert send(server, "GET", "/v2/models/mlp-small/infer")[0] == 405
        assert send(server, "POST", "/v2/models/other/infer", one())[0] == 404
        assert infer(server, gzip.compress(json.dumps(one()).encode()), Content_Encoding="gzip")[0] == 415
        assert infer(server, b" " * (10**6 + 1))[0] == 413

    def test_only_inputs_that_the_model_rejects_are_refused(self, tables: RunningServer) -> None:
        """An index beyond the table fails inside the model, in a batch with other requests."""

        def ask(index: int) -> int:
            given = {"name": "ids", "datatype": "INT64", "shape": [1, 64], "data": [index] * 64}
            return infer(tables, {"inputs": [given]})[0]

        indices = [1, 999_999, 2, 3, -9_000, 4]
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(ask, indices)) == [200, 400, 200, 200, 400, 200]

    def test_partial_requests_and_random_bytes_do_no_harm(self, server: RunningServer) -> None:
        host, port = server.address.removeprefix("http://").split(":")
        for data in (
            b"\x00\x01\x02\r\n\r\n",
            b"POST /v2/models/mlp-small/infer HTTP/1.1\r\nContent-Length: 900\r\n\r\n{",
        ):
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(data)
        assert infer(server, one())[0] == 200
        assert server.is_alive


class TestStarting:
    def test_int8_is_made_once_and_close_to_the_original(self, models: dict[str, Path], tmp_path: Path) -> None:
        options = ServerOptions(model=models["mlp-small"], batch=2, precision=Precision.INT8, cache=tmp_path)
        for _ in range(2):
            with start_server(options) as server:
                status, answer = infer(server, one())
                assert status == 200
                stats = server.stats()
        assert stats["precision"] == "int8"
        made = list(tmp_path.iterdir())
        assert len(made) == 1
        assert made[0].stat().st_size < models["mlp-small"].stat().st_size / 2
        onnxruntime = pytest.importorskip("onnxruntime")
        values = np.full((1, 256), 0.5, dtype=np.float32)
        expected = onnxruntime.InferenceSession(models["mlp-small"]).run(None, {"input": values})[0].ravel()
        assert np.corrcoef(answer["outputs"][0]["data"], expected)[0, 1] > 0.98

    def test_int8_of_external_weights(self, models: dict[str, Path], tmp_path: Path) -> None:
        """Two models that differ only in their external weights are quantised separately."""
        onnx = pytest.importorskip("onnx")
        from mlcd.server.quantise import quantised

        model, made = onnx.load(models["mlp-small"]), set()
        for factor in (1, 2):
            folder = tmp_path / str(factor)
            folder.mkdir()
            weights = onnx.numpy_helper.to_array(model.graph.initializer[0]) * factor
            model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, model.graph.initializer[0].name))
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            onnx.save(copy, folder / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
            made.add(quantised(folder / "m.onnx", tmp_path / "cache").name)
        assert len(made) == 2

    def test_more_threads_and_a_load(self, models: dict[str, Path]) -> None:
        with start_server(ServerOptions(model=models["cnn-small"], batch=4, threads=2, replicas=2)) as server:
            inputs = [LoadInput(name=i.name, datatype=i.datatype, shape=(1, *i.shape[1:])) for i in server.inputs]
            result = measure_load(server.address, server.model, inputs, scenario=Scenario.OFFLINE, seconds=1)
            assert result.errors == 0
            assert server.stats()["requests"] >= result.requests

    def test_a_port_in_use(self, server: RunningServer, models: dict[str, Path]) -> None:
        port = int(server.address.rpartition(":")[2])
        with (
            pytest.raises(BadInput, match=f"--port: {port} .*0 for a free one"),
            start_server(ServerOptions(model=models["mlp-small"], port=port)),
        ):
            pass

    @pytest.mark.parametrize(
        ("content", "problem"), [(b"hello", "not an ONNX model"), (b"", "not an ONNX model"), (None, "no such file")]
    )
    def test_not_a_model(self, tmp_path: Path, content: bytes | None, problem: str) -> None:
        path = tmp_path / "m.onnx"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BadInput, match=problem), start_server(ServerOptions(model=path)):
            pass

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["--batch", "0"], "--batch: must be 1 or more"),
            (["--port", "70000"], "--port: must lie"),
            (["--size", "x"], "--size: must have the form AXIS=N"),
            (["--cpus", "a"], "--cpus: must be comma-separated numbers"),
            (["--cpus", "²"], "--cpus: must be comma-separated numbers"),
            (["--cpus", "4711"], "--cpus: not available here"),
            (["--delay-ms", "-1"], "--delay-ms"),
        ],
    )
    def test_bad_options_have_one_message_and_code_2(self, arguments: list[str], problem: str) -> None:
        command = [sys.executable, "-m", "mlcd.server", "m.onnx", *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 2
        assert problem in found.stderr
        assert len(found.stderr.strip().splitlines()) == 1

    def test_a_fixed_batch(self, models: dict[str, Path], tmp_path: Path) -> None:
        onnx = pytest.importorskip("onnx")
        model = onnx.load(models["mlp-small"])
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = 2
        onnx.save(model, tmp_path / "m.onnx")
        with (
            pytest.raises(BadInput, match=r"fixed at 2.*--batch 2"),
            start_server(ServerOptions(model=tmp_path / "m.onnx", batch=8)),
        ):
            pass
        with start_server(ServerOptions(model=tmp_path / "m.onnx", batch=2, name="m")) as server:
            assert infer(server, one(shape=[2, 256], data=[0.5] * 512))[0] == 200
            assert infer(server, one())[0] == 400


def test_the_load_generator_from_a_shell(server: RunningServer) -> None:
    command = [sys.executable, "-m", "mlcd.loadgen", server.address, "--scenario", "single-stream", "--seconds", "0.5"]
    found = subprocess.run([*command, "--model", server.model], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["errors"] == 0
    refused = subprocess.run([*command, "--model", "other"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "does not describe a model" in refused.stderr


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class TestEnding:
    @pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
    def test_by_signal_with_code_0(self, models: dict[str, Path], sign: signal.Signals) -> None:
        command = [sys.executable, "-m", "mlcd.server", str(models["mlp-small"])]
        env = {**os.environ, **UNMEASURED}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["model"] == "mlp-small"
            assert ready["address"].startswith("http://127.0.0.1:")
            process.send_signal(sign)
            assert process.wait(20) == 0

    def test_it_ends_with_the_process_that_started_it(self, models: dict[str, Path]) -> None:
        """However that process ends: here it is killed and cannot clean up."""
        code = (
            "import sys, time; from pathlib import Path; from mlcd.server import ServerOptions, start_server\n"
            "with start_server(ServerOptions(model=Path(sys.argv[1]))) as server:\n"
            "    print(server.process.pid, flush=True); time.sleep(60)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(models["mlp-small"])], stdout=subprocess.PIPE
        ) as starter:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            assert not gone(pid)
            os.kill(starter.pid, signal.SIGKILL)
        for _ in range(200):
            if gone(pid):
                break
            time.sleep(0.1)
        assert gone(pid)

    def test_no_process_remains_after_stop(self, models: dict[str, Path]) -> None:
        with start_server(ServerOptions(model=models["mlp-small"])) as server:
            pid = server.process.pid
            assert server.is_alive
        assert gone(pid)
        assert not server.is_alive
