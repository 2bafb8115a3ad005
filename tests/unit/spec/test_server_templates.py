"""Command lines of servers of language models: every option exists, by a list or by the server's own --help."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from mlcd.platforms.placement import Placement
from mlcd.platforms.registry import platform
from mlcd.spec.serving import parse_serve
from mlcd.spec.template import template

ROOT = Path(__file__).resolve().parents[3]
TRANSFORMERS = ROOT / ".venvs" / "trainers" / "bin" / "transformers"
PAGE = ROOT / "docs" / "language-models.md"

OPTIONS = {
    # vllm/engine/arg_utils.py and vllm/entrypoints, a014e35f38c of 2026-08-22, and in the wheel of 0.33.0, which alone
    # was asked for master-port
    "vllm": "host port max-num-seqs max-num-batched-tokens gpu-memory-utilization tensor-parallel-size"
    " pipeline-parallel-size distributed-executor-backend nnodes node-rank master-addr master-port headless",
    # python/sglang/srt/server_args.py, cce0a1244b5 of 2026-08-23; `--tp` alone is no longer there. In the wheel of
    # 0.5.23 all are in sglang/srt/arg_groups/field_order.py, from which its parser is made
    "sglang": "model-path host port max-running-requests chunked-prefill-size mem-fraction-static tp-size nnodes"
    " node-rank dist-init-addr",
    # launcher/src/main.rs, db931fcf of 2026-01-08
    "tgi": "model-id hostname port max-concurrent-requests max-batch-prefill-tokens cuda-memory-fraction num-shard",
    # common/arg.cpp, b21e4de745 of 2026-08-22
    "llamacpp": "model host port parallel ctx-size batch-size threads tensor-split rpc",
    # python/openai/openai_frontend/main.py, e1db8a603 of 2026-08-19
    "triton": "model-repository tokenizer backend host openai-port",
}
"""As the servers' sources have them: the servers themselves need GPUs."""
STARTS = {"vllm serve": "vllm", "python -m sglang": "sglang", "llama-server": "llamacpp"}


def options(command: str) -> set[str]:
    return set(re.findall(r"(?<!\S)--([a-z][a-z0-9-]*)", command))


def server_run(kind: str) -> str:
    server = parse_serve(template(kind=kind)).server
    assert server is not None
    return server.run


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_options_of_a_template_exist(kind: str) -> None:
    used = options(server_run(kind))
    assert used
    assert used <= set(OPTIONS[kind].split())


def test_the_options_on_the_page_exist() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Several GPUs, several nodes")[2].partition("\n## ")[0]
    lines = section.partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(lines) == 4
    for line in lines:
        (kind,) = {kind for start, kind in STARTS.items() if line.startswith(start)}
        assert options(line) <= set(OPTIONS[kind].split()), line


def test_each_node_of_the_pages_server_gets_its_own_command_line(tmp_path: Path) -> None:
    """The command runs up to vLLM itself, in whose place stands a command that shows what it was given."""
    section = PAGE.read_text(encoding="utf-8").partition("## Several GPUs, several nodes")[2]
    spec = parse_serve(section.partition("```yaml serve\n")[2].partition("```")[0])
    assert spec.server is not None
    assert options(spec.server.run) <= set(OPTIONS["vllm"].split())
    shown = tmp_path / "vllm"
    shown.write_text('#!/bin/sh\necho "$@"\n')
    shown.chmod(0o755)
    settings = {"SEQS": "64", "MEMORY": "0.85", "MODEL": "m", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = []
    for rank in range(spec.server.nodes):
        place = Placement(rank=rank, addresses=("10.0.0.1", "10.0.0.2"), port=9000, server_nodes=spec.server.nodes)
        (process,) = platform("server")(place)
        env = {**settings, **process.env}
        done = subprocess.run(["sh", "-c", spec.server.run], env=env, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())
    for rank, words in enumerate(said):
        assert words[words.index("--nnodes") + 1] == "2"
        assert words[words.index("--node-rank") + 1] == str(rank)
        assert words[words.index("--master-addr") + 1] == "10.0.0.1"
        assert words[words.index("--master-port") + 1] == "9002"
        assert ("--headless" in words) == (rank == 1)


def test_the_options_of_transformers_serve_are_in_its_help() -> None:
    if not TRANSFORMERS.exists():
        pytest.skip("no .venvs/trainers: run scripts/setup-engine trainers")
    command = [str(TRANSFORMERS), "serve", "--help"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env).stdout
    job = template(kind="transformers")
    used = options(server_run("transformers")) | options(job.partition("knobs:")[2].partition("load:")[0])
    assert {"continuous-batching", "cb-max-batch-tokens", "dtype"} <= used
    assert [each for each in used if f"--{each}" not in text] == []


def test_triton_gets_a_model_repository_with_the_knobs(tmp_path: Path) -> None:
    """The command runs up to Triton itself, in whose place stands a command that shows what it was given."""
    shown = tmp_path / "python3"
    shown.write_text('#!/bin/sh\necho "$@"\ncat "$3/llm/1/model.json"; echo; cat "$3/llm/config.pbtxt"\n')
    shown.chmod(0o755)
    knobs = {"MAX_SEQS": "32", "BATCH_TOKENS": "2048", "MEMORY": "0.85", "GPUS": "2"}
    given = {"MODEL": "org/llama", "HOST": "127.0.0.1", "PORT": "9000", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env = {**given, **knobs, "TMPDIR": str(tmp_path)}
    done = subprocess.run(["sh", "-c", server_run("triton")], env=env, capture_output=True, text=True, check=True)
    called, model, *config = done.stdout.splitlines()
    assert "--tokenizer org/llama" in called
    assert "--openai-port 9000" in called
    assert json.loads(model) == {
        "model": "org/llama",
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.85,
        "tensor_parallel_size": 2,
    }
    assert config == ['backend: "vllm"', "instance_group [{count: 1, kind: KIND_MODEL}]"]
