"""The trained model of a serverless run: written when it ends, shown everywhere, loaded by numpy and PyTorch."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report_kind_samples import serverless_run

from mlcd.api.results import ServerlessResult
from mlcd.engine.epochs import EpochPerformer
from mlcd.errors import ProviderError
from mlcd.findings import shown
from mlcd.report.serverless import serverless_verdict
from mlcd.report.serverless_html import serverless_html
from mlcd.report.serverless_json import serverless_json

MODEL = np.array([1.0, 2.0, 3.0], dtype="<f4").tobytes()


@dataclass
class Trains:
    """A cloud that has trained a model of three parameters."""

    data: Any = MODEL
    name: str = "lithops/localhost"
    simulated: bool = False

    def parameters(self, run_id: str, number: int) -> bytes:
        if isinstance(self.data, Exception):
            raise self.data
        assert (run_id, number) == (serverless_run().run_id, serverless_run().epochs[-1].number)
        return self.data  # type: ignore[no-any-return]

    def run_epoch(self, order: Any) -> Any:
        raise NotImplementedError


def hand_over(cloud: Any, folder: Path) -> None:
    EpochPerformer(cloud=cloud).hand_over(serverless_run(), folder)


def test_numpy_and_pytorch_load_it(tmp_path: Path) -> None:
    hand_over(Trains(), tmp_path / "outputs")
    found = np.load(tmp_path / "outputs" / "model.npy")
    assert found.dtype == np.float32
    assert found.tolist() == [1.0, 2.0, 3.0]
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1)
    torch.nn.utils.vector_to_parameters(torch.from_numpy(found), module.parameters())
    assert module.weight.tolist() == [[1.0, 2.0]]
    assert module.bias.tolist() == [3.0]


def test_a_simulated_training_has_no_model(tmp_path: Path) -> None:
    hand_over(Trains(simulated=True), tmp_path / "outputs")
    assert not (tmp_path / "outputs").exists()
    run = shown(serverless_run())
    assert serverless_json(run)["model_file"] is None
    assert ServerlessResult(run).model is None


@pytest.mark.parametrize("wrong", [b"", b"abc", "text", None, ProviderError("gone"), ValueError("broken")])
def test_what_is_no_model_is_said(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ProviderError):
        hand_over(Trains(data=wrong), tmp_path / "outputs")


def test_text_page_json_and_python_say_where_it_is() -> None:
    run = shown(replace(serverless_run(), outputs="/home/work/run/outputs"))
    path = "/home/work/run/outputs/model.npy"
    assert f"The trained model: {path} (numpy.load)" in serverless_verdict(run)
    assert path in serverless_html(run)
    assert serverless_json(run)["model_file"] == path
    assert ServerlessResult(run).model == Path(path)


def test_one_call_is_not_calls() -> None:
    run = serverless_run()
    first = replace(run.steps[0], outcome=replace(run.epochs[0], calls=1))
    text = serverless_verdict(shown(replace(run, steps=(first,), findings=None)))
    assert "  1 call, " in text
