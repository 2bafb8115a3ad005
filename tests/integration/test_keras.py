"""mlcd.keras.Progress in the environment of TensorFlow: counts, ends with the work, stops when asked, and continues."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_platform_examples import engine_python

SCRIPT = """
import keras, mlcd.keras, numpy, pathlib, sys
keras.utils.set_random_seed(1)
x = numpy.random.rand(80, 4).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", steps_per_execution=int(sys.argv[1]))
class Seen(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("LOSS", model.evaluate(x, x.sum(1), verbose=0))
        if epoch == int(sys.argv[2]):
            pathlib.Path("stop").touch()
model.fit(x, x.sum(1), batch_size=10, epochs=20, verbose=0, callbacks=[mlcd.keras.Progress(batch_size=10), Seen()])
print("END")
"""


def run(folder: Path, *, together: int, stop_in_epoch: int) -> tuple[str, list[dict[str, Any]]]:
    """The script's output, and its reports."""
    (folder / "progress.jsonl").unlink(missing_ok=True)
    (folder / "stop").unlink(missing_ok=True)
    env = {
        **os.environ,
        "MLCD_PROGRESS_FILE": str(folder / "progress.jsonl"),
        "MLCD_STOP_FILE": str(folder / "stop"),
        "MLCD_CHECKPOINT_DIR": str(folder / "checkpoint"),
        "MLCD_SAMPLES": "400",
    }
    command = [engine_python("tensorflow"), "-c", SCRIPT, str(together), str(stop_in_epoch)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_fit_reports_stops_and_continues(tmp_path: Path) -> None:
    said, lines = run(tmp_path, together=4, stop_in_epoch=2)
    assert "END" not in said
    assert lines[0]["samples"] == 0
    assert lines[-1]["checkpoint"] == 2 * 80 + 40, "two epochs, and the four steps that Keras takes together"
    fresh = float(said.split("LOSS ")[1].split()[0])

    said, lines = run(tmp_path, together=1, stop_in_epoch=-1)
    assert "END" in said
    assert lines[0]["samples"] == 200
    assert lines[-1]["checkpoint"] == 400, "the work is done before the script's own epochs are"
    assert float(said.split("LOSS ")[1].split()[0]) < fresh / 2, "it goes on with what it had learnt"
