"""A real server of a language model: a search over `transformers serve` with a small Llama, on the processors here."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.test_platform_examples import engine_python

ROOT = Path(__file__).resolve().parents[2]
JOB: dict[str, Any] = {
    "name": "small-llama",
    "model": "./llama",
    "server": {
        "run": "exec SERVE serve $MODEL --host $HOST --port $PORT --dtype $DTYPE --no-continuous-batching",
        "ready": "/health",
        "image": "org/transformers:latest",
    },
    "knobs": {"DTYPE": ["float32", "bfloat16"]},
    "load": {"input_tokens": {"mean": 24, "std": 6}, "output_tokens": 6, "concurrency": 2, "verify": "3s"},
    "goal": {"maximize": "tokens per dollar", "slo": {"e2e_p99": "120s"}},
    "search": {"strategy": "exhaustive", "max_trials": 2, "trial": {"seconds": "20s", "watchdog": "240s"}},
}


@pytest.mark.waits
@pytest.mark.together("both trainers")
def test_a_search_over_transformers_serve(tmp_path: Path) -> None:
    python = engine_python("trainers")
    serve = Path(python).with_name("transformers")
    if subprocess.run([python, "-c", "import fastapi, uvicorn"], capture_output=True, check=False).returncode:
        pytest.skip(".venvs/trainers has no transformers serve: run scripts/setup-engine trainers")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MLCD_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    run(str(python), str(ROOT / "examples" / "make_llama.py"), "llama")
    server = {**JOB["server"], "run": JOB["server"]["run"].replace("SERVE", str(serve))}
    (tmp_path / "job.yaml").write_text(json.dumps({**JOB, "server": server}))
    out = run(str(python), "-m", "mlcd", "serve", "job.yaml", "--write", "kubernetes", "deploy", "-o", "json")
    result = json.loads(out)
    assert len(result["trials"]) == 2
    assert [trial["failure"] for trial in result["trials"]] == [None, None]
    choice = result["choice"]
    tokens = choice["load"]["tokens"]
    assert tokens["output_tokens"] == pytest.approx(6.0)
    assert tokens["input_tokens"] == pytest.approx(24, rel=0.3)
    assert tokens["counted"] == "by the server, as tokenizer.json does"
    assert choice["verified_seconds"] == 3.0
    assert choice["load"]["errors"] == 0
    pod, _ = yaml.safe_load_all((tmp_path / "deploy" / "kubernetes.yaml").read_text())
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    assert {"name": "DTYPE", "value": choice["config"]["DTYPE"]} in container["env"]
