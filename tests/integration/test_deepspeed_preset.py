"""The ready set for DeepSpeed against DeepSpeed itself: the lines of docs/knobs.md, with every value, train a step."""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_platform_examples import engine_python

from mlcd.space import UNSET
from mlcd.spec.parse import parse_train

pytestmark = [pytest.mark.extra, pytest.mark.together("both trainers")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "knobs.md"
JOB = """
name: x
workdir: .
run: torchrun train.py
resources: {infra: local}
num_nodes: 1
knobs: {preset: deepspeed}
job: {samples: 100}
goal: {minimize: time}
"""
DRIVER = """
import json, os, sys, types

os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", DS_ACCELERATOR="cpu")
import deepspeed, torch

lines, knobs, port = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
os.environ["MASTER_PORT"] = port
deepspeed.init_distributed(dist_backend="gloo")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.recomputes = torch.nn.Linear(16, 1), False

    def gradient_checkpointing_enable(self):
        self.recomputes = True

    def forward(self, x):
        if self.recomputes:
            return torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=False)
        return self.layers(x)


done = []
for chosen in knobs:
    model = Model()
    asked = types.SimpleNamespace(knob=lambda name, default: chosen.get(name, default))
    scope = {"mlcd": asked, "model": model}
    exec(lines, scope)
    config = {**scope["config"], "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config
    )
    assert engine.zero_optimization_stage() == chosen["zero_stage"]
    assert engine.train_micro_batch_size_per_gpu() == chosen["micro_batch"]
    assert engine.bfloat16_enabled() == (chosen["precision"] == "bf16")
    assert model.recomputes == chosen["recompute"]
    offload = engine.zero_offload_optimizer()
    assert (offload is not None and offload.device == "cpu") == (chosen.get("offload") == "cpu"), offload
    dtype = torch.bfloat16 if chosen["precision"] == "bf16" else torch.float32
    loss = engine(torch.ones(chosen["micro_batch"], 16, dtype=dtype)).float().mean()
    engine.backward(loss)
    engine.step()
    done.append(chosen)
    engine.destroy()
print("DONE", json.dumps(len(done)))
"""


def combinations() -> list[dict[str, Any]]:
    """Every combination of the set that may be chosen; without the knobs that do not apply."""
    settings = parse_train(JOB).knobs
    rows = [dict(zip(settings.names, row, strict=True)) for row in settings.rows("local.1", 1)]
    return [{name: value for name, value in row.items() if value != UNSET} for row in rows]


def test_every_combination_of_the_set_is_taken_and_trains_a_step(tmp_path: Path) -> None:
    python = engine_python("deepspeed")
    lines = PAGE.read_text(encoding="utf-8").partition("### DeepSpeed")[2]
    lines = lines.partition("```python fragment\n")[2].partition("```")[0]
    every = combinations()
    assert len(every) == (2 + 2 * 2) * 5 * 2 * 2
    # Sizes and recomputation change nothing about what DeepSpeed takes: each of them with one of the rest.
    kept = {json.dumps(row, sort_keys=True): row for row in every if row["micro_batch"] == 4 and not row["recompute"]}
    kept |= {json.dumps(row, sort_keys=True): row for row in itertools.islice(every, 0, None, 7)}
    done = subprocess.run(
        [python, "-c", DRIVER, lines, json.dumps(list(kept.values())), "29731"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"DONE {len(kept)}" in done.stdout, done.stderr[-3000:]
