"""Ready sets of knobs, by name: `knobs: {preset: fsdp}`. docs/knobs.md has the lines of a script that use each."""

from collections.abc import Mapping

_PRECISION = ["fp32", "bf16"]
_MICRO_BATCH = {"values": [1, 2, 4, 8, 16], "memory": "rises"}
_RECOMPUTE = {"values": [False, True], "memory": "falls"}

PRESETS: Mapping[str, Mapping[str, object]] = {
    "ddp": {
        "precision": _PRECISION,
        "micro_batch": _MICRO_BATCH,
        "recompute": _RECOMPUTE,
        "compile": [False, True],
        "workers": [0, 2, 4, 8],
    },
    "fsdp": {
        "precision": _PRECISION,
        "micro_batch": _MICRO_BATCH,
        "recompute": _RECOMPUTE,
        "sharding": {"values": ["ddp", "grad_op", "full"], "memory": "falls"},
        "compile": [False, True],
    },
    "trainer": {
        "precision": _PRECISION,
        "per_device_train_batch_size": _MICRO_BATCH,
        "gradient_checkpointing": _RECOMPUTE,
        "torch_compile": [False, True],
        "dataloader_num_workers": [0, 2, 4, 8],
    },
    "accelerate": {
        "mixed_precision": ["no", "bf16"],
        "micro_batch": _MICRO_BATCH,
        "recompute": _RECOMPUTE,
        "sharding": {"values": ["ddp", "grad_op", "full"], "memory": "falls"},
    },
    "deepspeed": {
        "zero_stage": {"values": [0, 1, 2, 3], "memory": "falls"},
        "micro_batch": _MICRO_BATCH,
        "recompute": _RECOMPUTE,
        "offload": {"values": ["none", "cpu"], "memory": "falls", "when": {"zero_stage": [2, 3]}},
        "precision": _PRECISION,
    },
    "lightning": {
        "precision": ["32-true", "bf16-mixed"],
        "micro_batch": _MICRO_BATCH,
        "strategy": {"values": ["ddp", "fsdp"], "memory": "falls"},
        "workers": [0, 2, 4, 8],
    },
}
