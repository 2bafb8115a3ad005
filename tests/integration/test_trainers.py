"""The callbacks for Hugging Face's Trainer and for Lightning, with the real libraries on a tiny model."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_platform_examples import engine_python

pytestmark = pytest.mark.together("both trainers")

DRIVER = '''
import json, os, sys, warnings
from pathlib import Path
import torch, lightning, transformers
import mlcd.torch
from mlcd.training.training_progress import current_progress

warnings.filterwarnings("ignore")
HERE = Path.cwd()
DATA = [{"x": torch.eye(4)[i % 4] * 2, "labels": torch.tensor(i % 4 // 2)} for i in range(64)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, number):
        return self.net(**batch)["loss"]

    def validation_step(self, batch, number):
        self.log("val_loss", self.net(**batch)["loss"])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class StopIn(transformers.TrainerCallback, lightning.Callback):
    """Makes the stop file after so many steps, as mlcd does at the end of a trial."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, *ignored, **also):
        self.steps -= 1
        if self.steps == 0:
            (HERE / "stop").touch()

    def on_train_batch_end(self, *ignored, **also):
        self.on_step_end()


def hugging_face(epochs, callbacks):
    torch.manual_seed(0)
    args = transformers.TrainingArguments(
        output_dir=str(HERE / "out"), num_train_epochs=epochs, per_device_train_batch_size=4, learning_rate=0.1,
        gradient_accumulation_steps=2, report_to=[], save_strategy="no", use_cpu=True, eval_strategy="epoch",
        disable_tqdm=True, logging_strategy="no",
    )
    model = Net()
    trainer = transformers.Trainer(
        model=model, args=args, train_dataset=DATA, eval_dataset=DATA,
        callbacks=[*callbacks, mlcd.torch.TrainerProgress()],
    )
    return trainer.train, model


def pytorch_lightning(epochs, callbacks):
    torch.manual_seed(0)
    module = Module()
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[*callbacks, mlcd.torch.LightningProgress()],
    )
    loader = torch.utils.data.DataLoader(DATA, batch_size=8)
    return lambda: trainer.fit(module, loader, torch.utils.data.DataLoader(DATA, batch_size=64)), module.net


def training(made, *, epochs, stop_in=0, **env):
    for name in ("MLCD_SAMPLES", "MLCD_TARGET"):
        os.environ.pop(name, None)
    os.environ.update(env)
    for name in ("stop", "progress.jsonl"):
        (HERE / name).unlink(missing_ok=True)
    current_progress.cache_clear()
    fit, model = made(epochs, [StopIn(stop_in)] if stop_in else [])
    before = model(**torch.utils.data.default_collate(DATA))["loss"].item()
    ended = "returned"
    try:
        fit()
    except SystemExit as error:
        ended = f"exit {error.code}"
    after = model(**torch.utils.data.default_collate(DATA))["loss"].item()
    lines = [json.loads(line) for line in (HERE / "progress.jsonl").read_text().splitlines()]
    return {"ended": ended, "before": before, "after": after, "lines": lines}


found = {}
for made in (hugging_face, pytorch_lightning):
    os.environ.update(
        MLCD_PROGRESS_FILE=str(HERE / "progress.jsonl"), MLCD_STOP_FILE=str(HERE / "stop"),
        MLCD_CHECKPOINT_DIR=str(HERE / made.__name__),
    )
    metric = "eval_loss" if made is hugging_face else "val_loss"
    target = json.dumps({"metric": metric, "value": 0.9, "higher": False})
    found[made.__name__] = {
        "stopped": training(made, epochs=2, stop_in=11),
        "continued": training(made, epochs=2),
        "work of the file": training(made, epochs=9, MLCD_SAMPLES="192"),
        "target": training(made, epochs=9, MLCD_TARGET=target, MLCD_SAMPLES="960"),
    }
print("FOUND", json.dumps(found))
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Trainings of both libraries, all in one process, since importing them is what takes long."""
    folder = tmp_path_factory.mktemp("trainers")
    command = [engine_python("trainers"), "-c", DRIVER]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return result


LIBRARIES = ("hugging_face", "pytorch_lightning")


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_work_is_what_the_library_plans_and_a_trial_ends_with_a_checkpoint(
    found: dict[str, Any], library: str
) -> None:
    stopped = found[library]["stopped"]
    assert stopped["lines"][0]["samples"] == 0
    assert stopped["lines"][0]["total"] == 2 * 64
    assert stopped["ended"] == "exit 0"
    assert stopped["lines"][-1]["checkpoint"] == 11 * 8


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_next_one_continues_with_what_was_learnt(found: dict[str, Any], library: str) -> None:
    continued = found[library]["continued"]
    assert continued["ended"] == "returned"
    assert continued["lines"][0]["samples"] == 11 * 8
    assert max(line.get("samples", 0) for line in continued["lines"]) == 128
    assert continued["lines"][-1]["checkpoint"] == 128
    assert continued["after"] < found[library]["stopped"]["after"] < found[library]["stopped"]["before"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_job_files_work_ends_it_before_the_librarys_own_end(found: dict[str, Any], library: str) -> None:
    worked = found[library]["work of the file"]
    assert "total" not in worked["lines"][0]
    assert max(line.get("samples", 0) for line in worked["lines"]) == 192
    assert worked["ended"] == "returned"


@pytest.mark.parametrize("library", LIBRARIES)
def test_metrics_of_evaluations_are_reported_and_meet_the_target(found: dict[str, Any], library: str) -> None:
    aimed = found[library]["target"]
    name = "eval_loss" if library == "hugging_face" else "val_loss"
    assert any(name in line.get("metrics", {}) for line in aimed["lines"])
    assert max(line.get("samples", 0) for line in aimed["lines"]) < 960, "the target ends the training"
