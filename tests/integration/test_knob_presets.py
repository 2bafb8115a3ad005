"""The ready sets of knobs against the libraries that they are for: every name is theirs, every value is taken.

DeepSpeed has a test of its own (test_deepspeed_preset.py).
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_platform_examples import engine_python

from mlcd.spec.knob_presets import PRESETS

pytestmark = pytest.mark.together("both trainers")

DRIVER = """
import json, sys, warnings
from dataclasses import fields
from pathlib import Path

warnings.filterwarnings("ignore")
import accelerate, lightning, torch, transformers
from accelerate.utils import FullyShardedDataParallelPlugin
from lightning.pytorch.strategies import StrategyRegistry
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

values = json.loads(sys.argv[1])
found = {"trainer": [], "accelerate": [], "lightning": []}
names = {field.name for field in fields(transformers.TrainingArguments)}
own = set(values["trainer"]) - {"precision"}
assert own <= names, own - names
for name in own:
    for value in values["trainer"][name]:
        if name != "torch_compile" or not value:
            made = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to=[], **{name: value})
            assert getattr(made, name) == value
            found["trainer"].append([name, value])
made = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to=[], bf16=True)
assert made.bf16
for value in values["accelerate"]["mixed_precision"]:
    accelerate.state.AcceleratorState._reset_state(True)
    assert accelerate.Accelerator(mixed_precision=value, cpu=True).mixed_precision == value
    found["accelerate"].append(value)
assert {"sharding_strategy", "mixed_precision_policy"} <= {f.name for f in fields(FullyShardedDataParallelPlugin)}
shardings = {"ddp": None, "grad_op": ShardingStrategy.SHARD_GRAD_OP, "full": ShardingStrategy.FULL_SHARD}
assert set(values["fsdp"]["sharding"]) == set(values["accelerate"]["sharding"]) == set(shardings)
MixedPrecision(param_dtype=torch.bfloat16)
for value in values["lightning"]["precision"]:
    made = lightning.Trainer(precision=value, accelerator="cpu", logger=False, enable_checkpointing=False,
                             accumulate_grad_batches=2)
    assert made.precision == value
    found["lightning"].append(value)
for value in values["lightning"]["strategy"]:
    assert value in StrategyRegistry, value
    found["lightning"].append(value)
Path("found.json").write_text(json.dumps(found))
"""


def values() -> dict[str, dict[str, list[Any]]]:
    """Of each set: knob -> its values."""
    presets: Any = PRESETS
    return {
        name: {knob: list(given["values"] if isinstance(given, dict) else given) for knob, given in knobs.items()}
        for name, knobs in presets.items()
    }


def test_trainer_accelerate_fsdp_and_lightning_take_every_value(tmp_path: Path) -> None:
    done = subprocess.run(
        [engine_python("trainers"), "-c", DRIVER, json.dumps(values())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["accelerate"] == ["no", "bf16"]
    assert found["lightning"] == ["32-true", "bf16-mixed", "ddp", "fsdp"]
    assert {name for name, _ in found["trainer"]} == set(PRESETS["trainer"]) - {"precision"}
