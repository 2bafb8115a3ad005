"""The proof on a GPU (benchmarks/serve_gpu), rehearsed: the same program, small, on processors."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests import fake_gpu
from tests.integration.test_platform_examples import engine_python

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.waits, pytest.mark.together("both trainers")]


@pytest.mark.parametrize(
    ("what", "name", "configurations"),
    [("llm", "llama-100m", 4), pytest.param("five", "tiny-electra-large", 8, marks=pytest.mark.extra)],
)
def test_a_search_is_judged_by_every_configuration(
    what: str, name: str, configurations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = engine_python("trainers")
    if subprocess.run([python, "-c", "import fastapi, uvicorn"], capture_output=True, check=False).returncode:
        pytest.skip(".venvs/trainers has no transformers serve: run scripts/setup-engine trainers")
    programs = tmp_path / "programs"
    programs.mkdir()
    fake_gpu.install(programs, monkeypatch)
    env = {**os.environ, "REHEARSE": "1", "WORK": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    env |= {"LLM_SECONDS": "3", "FIVE_SECONDS": "2", "MOST_SECONDS": "800"}
    env["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"
    done = subprocess.run(
        [str(python), "-m", "serve_gpu.run", what, str(tmp_path / "out"), name],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    runs = [row for row in rows if row["kind"] == "run"]
    assert not [row for row in rows if row["kind"] == "cut"]
    tried = [trial for row in runs if row["role"] == "exhaustive" for trial in row["result"]["trials"]]
    distinct = {json.dumps(trial["config"], sort_keys=True) for trial in tried}
    assert len(distinct) == configurations
    assert len(tried) > len(distinct), "the best were measured again"
    assert f"| {name} | {configurations} |" in done.stdout
    assert not list(tmp_path.glob("gpu-*")), "its folder is removed"
