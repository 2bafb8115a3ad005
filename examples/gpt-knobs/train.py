"""A small GPT of random weights on made-up tokens, with the knobs that trainings of transformers have.

    mlcd train ../gpt-knobs.yaml                          # chooses the knobs, then trains
    python train.py                                       # without mlcd: the defaults
    python train.py --measure speeds.json --seconds 2     # every combination, one after the other, in one process

GPT_SIZE is tiny (default), 300m or 1b. `precision` is fp32, tf32 (fp32 with TensorFloat-32 products) or bf16.
"""

import argparse
import gc
import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import mlcd

SIZES = {
    # layers, width, heads, tokens of a sample
    "tiny": (2, 64, 2, 64),
    "300m": (24, 1024, 16, 1024),
    "1b": (24, 1792, 14, 1024),
}
VOCABULARY = {"tiny": 256}
USUAL_VOCABULARY = 32_000
LEAST_STEPS = 3
MEMORY_WORDS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    """Attention and a feed-forward layer, with or without a kernel that keeps no scores."""

    def __init__(self, width: int, heads: int, attention: str) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, width) to the same."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(2))
        if self.attention == "sdpa":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """The whole model."""

    def __init__(self, size: str, *, attention: str, recompute: bool) -> None:
        super().__init__()
        layers, width, heads, tokens = SIZES[size]
        words = VOCABULARY.get(size, USUAL_VOCABULARY)
        self.words, self.tokens, self.recompute = words, tokens, recompute
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads, attention) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of predicting each next token."""
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        logits = self.head(self.last(x))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Training:
    """One model with its optimiser under one setting; `step` trains on a global batch in micro-batches."""

    def __init__(self, size: str, setting: dict[str, Any], batch: int) -> None:
        torch.manual_seed(0)
        if "threads" in setting:
            torch.set_num_threads(setting["threads"])
        self.setting, self.batch = setting, batch
        full = setting.get("precision", "fp32") == "fp32"
        torch.set_float32_matmul_precision("highest" if full else "high")
        with torch.device(DEVICE):  # a billion random weights take 0.1 s on a GPU, 10 s on processors
            self.model = Gpt(
                size, attention=setting.get("attention", "sdpa"), recompute=setting.get("recompute", False)
            )
        if setting.get("compile", False):
            for block in self.model.blocks:  # one block is compiled and used for all: seconds, not minutes
                block.compile()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(self.model.words, (batch, self.model.tokens), device=DEVICE)

    def step(self) -> None:
        """Forward and backward over all micro-batches, then an update."""
        half = self.setting.get("precision", "fp32") == "bf16"
        micro = min(int(self.setting.get("micro_batch", self.batch)), self.batch)
        self.optimiser.zero_grad(set_to_none=True)
        for part in self.ids.split(micro):
            with torch.autocast(DEVICE, dtype=torch.bfloat16) if half else nullcontext():
                loss = self.model(part) * len(part) / self.batch
            loss.backward()
        self.optimiser.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    def describe(self) -> None:
        """Tell mlcd the model's sizes."""
        layers, width, heads, tokens = SIZES[os.environ.get("GPT_SIZE", "tiny")]
        count = sum(each.numel() for each in self.model.parameters())
        mlcd.describe(parameters=count, layers=layers, hidden=width, heads=heads, sequence=tokens)


def train(size: str, batch: int) -> None:
    """What `mlcd train` runs."""
    usual = {"precision": "fp32", "micro_batch": 1, "recompute": False, "attention": "sdpa", "compile": False}
    setting = {name: mlcd.knob(name, default) for name, default in usual.items()}
    threads = mlcd.knob("threads", None)
    training = Training(size, setting | ({} if threads is None else {"threads": threads}), batch)
    training.describe()
    for _ in mlcd.steps(itertools.repeat(0, 10**9), batch_size=batch):
        training.step()
    Path("done.txt").write_text("done\n")


def measured(size: str, setting: dict[str, Any], batch: int, seconds: float) -> dict[str, Any]:
    """Samples a second by the median step; None where memory ran out. With what it took."""
    began, training, times, note = time.monotonic(), None, [], ""
    try:
        training = Training(size, setting, batch)
        training.step()
        if setting.get("compile", False):
            training.step()
        first = time.monotonic()
        while len(times) < LEAST_STEPS or time.monotonic() - first < seconds:
            start = time.monotonic()
            training.step()
            times.append(time.monotonic() - start)
    except RuntimeError as error:  # torch.OutOfMemoryError is one; cuBLAS has another
        text = str(error)
        if not isinstance(error, torch.OutOfMemoryError) and not any(word in text for word in MEMORY_WORDS):
            raise
        note = text.splitlines()[0][:200]
    del training
    gc.collect()
    torch.compiler.reset()
    peak = 0.0
    if DEVICE == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return {
        "setting": setting,
        "samples_per_second": None if note else batch / statistics.median(times),
        "step_seconds": [round(each, 5) for each in times[:50]],
        "peak_gib": round(peak, 2),
        "took_seconds": round(time.monotonic() - began, 2),
        "out_of_memory": note,
    }


def combinations(knobs: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, in order."""
    for values in itertools.product(*knobs.values()):
        yield dict(zip(knobs, values, strict=True))


def main() -> None:
    """Train, or measure every combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, help="write the speed of every combination here; known ones are kept")
    parser.add_argument("--knobs", type=json.loads, default={}, help='such as {"micro_batch": [1, 4]}')
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--most-seconds", type=float, default=480.0, help="no further measurement after this")
    given = parser.parse_args()
    size, batch = os.environ.get("GPT_SIZE", "tiny"), int(os.environ.get("MLCD_BATCH", "16"))
    if given.measure is None:
        train(size, batch)
        return
    found = json.loads(given.measure.read_text()) if given.measure.exists() else []
    known = [each["setting"] for each in found]
    begun, began = given.measure.with_suffix(".begun"), time.monotonic()
    for setting in combinations(given.knobs):
        if setting not in known and time.monotonic() - began < given.most_seconds:
            begun.write_text(json.dumps(setting))
            found.append(measured(size, setting, batch, given.seconds))
            whole = given.measure.with_suffix(".new")
            whole.write_text(json.dumps(found, indent=0))
            whole.replace(given.measure)  # a process that is killed leaves a whole file
            begun.unlink()


if __name__ == "__main__":
    main()
