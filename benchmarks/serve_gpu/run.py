"""Searches and exhaustive measurements on one GPU, side by side, one load at a time. Writes one JSON line a result.

    python3 -m serve_gpu.run check OUT              that all that is needed is there; two minutes
    python3 -m serve_gpu.run llm OUT llama-100m     a language model by `transformers serve`; 24 x 10 s, the search's 6
    python3 -m serve_gpu.run llm OUT llama-1b       x 10 s, and a verification: about 6.5 minutes
    python3 -m serve_gpu.run five OUT NAME ...      models by mlcd's own server with PyTorch, each 18 x 5 s and 6 x 5 s,
                                                    and a minute of verifications: three models take about 7.5 minutes

On a machine that is lent: `bash benchmarks/serve_gpu/device.sh llm llama-100m`. Every job is `mlcd serve` through its
command line (cli.py says what differs). The exhaustive measurement of a model is `search.strategy: exhaustive` over
parts of the same space, so that several servers start while one is loaded. In the time that is left, the best of it and
what the search chose are measured again: two short load tests of one configuration differ.

With REHEARSE=1, a small version of the same on processors (tests/integration/test_gpu_proof.py runs it).
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from record_serve_gpu import recorded, table

from mlcd.gpus import can_share, find_gpus
from serve_gpu.models import NAMES

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PRICES = {"local": "0.34 USD", "local.2": "0.085 USD", "local.gpu": "6.7024 USD"}
"""USD an hour: of a host with 8 vCPUs or 2 at $0.0425, and of the GPU as src/mlcd/known/h200.py has it."""
SHARES = (25, 50, 100)
TRIALS = 6
REHEARSED = os.environ.get("REHEARSE") == "1"
SLOTS = 2 if REHEARSED else int(os.environ.get("SLOTS", "5"))
MOST_SECONDS = float(os.environ.get("MOST_SECONDS", "570"))
REMEASURED = 3
"""Of the best configurations, so many are measured again, beside what the search chose."""

# The language models: name, flags of examples/make_llama.py, limits.
LLAMAS = {
    "llama-100m": (["--layers", "12", "--hidden", "768", "--heads", "12"], {"ttft_p95": "200ms", "tpot_p95": "40ms"}),
    "llama-1b": (["--layers", "16", "--hidden", "2048", "--heads", "32"], {"ttft_p95": "200ms", "tpot_p95": "40ms"}),
}
MODES = ("plain", "cb-256", "cb-1024", "cb-4096")
TYPES = ("bfloat16", "float32")
BLOCKS = 128
"""Of the cache, each of 256 tokens: 16 requests of 136 tokens need at most 16. With 2,048 blocks, servers asked for 42
to 155 GB of the GPU's memory, which its shares do not have."""
SERVE = (
    f"case $MODE in plain) set -- ;; *) set -- --continuous-batching --cb-num-blocks {BLOCKS} "
    '--cb-max-batch-tokens "${MODE#cb-}" ;; esac; '
    'exec TRANSFORMERS serve $MODEL --host $HOST --port $PORT --dtype $DTYPE "$@"'
)
FIVE_SHARES, FIVE_BATCHES, FIVE_PRECISIONS = (12, 25, 100), (1, 8, 32), ("tf32", "fp16")
LIMITS = {name: {"p99": "50ms" if name.startswith(("albert", "electra")) else "100ms"} for name in NAMES}


@dataclass
class Task:
    """One `mlcd serve`."""

    name: str
    role: str
    job: dict[str, Any]
    env: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    slot: int = -1
    begun: float = 0.0


@dataclass
class Campaign:
    """What runs, and where its results go."""

    out: Path
    work: Path
    began: float = field(default_factory=time.monotonic)

    def write(self, **row: Any) -> None:
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(row, default=str) + "\n")

    def left(self) -> float:
        return MOST_SECONDS - (time.monotonic() - self.began)

    def run(self, tasks: list[Task], *, together: bool) -> None:
        """All tasks, in the slots that there are; searches verify once everything else has ended."""
        turns = Path(tempfile.mkdtemp(dir=self.work, prefix="turns-"))
        waiting, running = list(tasks), list[Task]()
        free = list(range(SLOTS))
        while (waiting or running) and self.left() > 0:
            while waiting and free:
                task = waiting.pop(0)
                task.slot = free.pop(0)
                self._start(task, turns, together)
                running.append(task)
            for task in [each for each in running if each.process and each.process.poll() is not None]:
                running.remove(task)
                free += [task.slot] if task.slot >= 0 else []
                self._ended(task)
            arrived = [task for task in running if task.process and (turns / f"arrived-{task.process.pid}").exists()]
            for task in arrived:  # it waits until the others have ended: its processors are free
                if task.slot >= 0:
                    free.append(task.slot)
                    task.slot = -1
            if not waiting and len(arrived) == len(running):
                (turns / "go").touch()
            time.sleep(0.2)
        for task in running:
            if task.process:
                task.process.terminate()
                self.write(kind="cut", name=task.name, role=task.role)
        if (turns / "turns.csv").exists():
            self.write(kind="turns", rows=(turns / "turns.csv").read_text().splitlines())

    def _start(self, task: Task, turns: Path, together: bool) -> None:
        folder = self.work / f"{task.name}-{task.role}-{task.slot}-{time.monotonic_ns()}"
        folder.mkdir()
        (folder / "job.yaml").write_text(json.dumps(task.job))
        env = {**os.environ, **task.env, "GPU_TURNS": str(turns), "MLCD_HOME": str(folder / "home")}
        env["VERIFY_TOGETHER"] = "1" if together else "0"
        cores = sorted(os.sched_getaffinity(0))
        mine = set(cores) if REHEARSED else set(cores[task.slot * (16 // SLOTS) :][: 16 // SLOTS])
        task.begun = time.monotonic()
        with (folder / "out.json").open("wb") as out, (folder / "err.txt").open("wb") as err:
            task.process = subprocess.Popen(
                [sys.executable, "-m", "serve_gpu.cli", "serve", str(folder / "job.yaml"), "-o", "json"],
                stdout=out,
                stderr=err,
                env=env,
                preexec_fn=lambda: os.sched_setaffinity(0, mine),  # noqa: PLW1509
            )
        task.env["FOLDER"] = str(folder)

    def _ended(self, task: Task) -> None:
        folder, code = Path(task.env["FOLDER"]), task.process.returncode if task.process else -1
        text = (folder / "out.json").read_text()
        try:
            result = json.loads(text)
        except ValueError:
            result = None
        row = {"kind": "run", "name": task.name, "role": task.role, "job": task.job, "code": code, "result": result}
        said = (folder / "err.txt").read_text()[-3000:]
        logs = [log.read_text(errors="replace")[-1500:] for log in sorted(folder.glob("home/**/log.txt"))[-1:]]
        self.write(
            **row,
            seconds=round(time.monotonic() - task.begun, 1),
            said=said if code else said[-300:],
            logs=logs if code else [],
        )
        print(
            f"{self.left():5.0f} s left: {task.name} {task.role} ended with {code}",
            f"after {time.monotonic() - task.begun:.0f} s",
            flush=True,
        )
        if code not in (0, 4):
            print(said[-800:], *logs, flush=True)


def transformers_command() -> str:
    found = Path(sys.executable).with_name("transformers")
    return str(found) if found.exists() else f"{sys.executable} -m transformers.cli.transformers"


def llm_job(
    name: str,
    model: Path,
    *,
    strategy: str,
    trials: int,
    modes: Iterable[str],
    types: Iterable[str],
    shares: Iterable[int],
    verify: int,
) -> dict[str, Any]:
    return {
        "name": name,
        "model": str(model),
        "resources": {"infra": "local", "prices": {key: PRICES[key] for key in ("local", "local.gpu")}},
        "server": {"run": SERVE.replace("TRANSFORMERS", transformers_command()), "ready": "/health"},
        "knobs": {"MODE": list(modes), "DTYPE": list(types), "GPU_SHARE": list(shares)},
        "load": {"input_tokens": 128, "output_tokens": 8, "concurrency": 16, "verify": f"{verify}s"},
        "goal": {"maximize": "tokens per dollar", "slo": LLAMAS[name][1]},
        "search": {
            **({"strategy": strategy} if strategy else {}),
            "max_trials": trials,
            "trial": {"seconds": "15s", "watchdog": "500s", "extension": 0, "retries": 0},
        },
    }


def llm(campaign: Campaign, names: Iterable[str]) -> None:
    """Each language model: a search with TRIALS trials, and every configuration."""
    makers = {}
    for name in names:
        folder = campaign.work / name
        flags = ["--layers", "2", "--hidden", "64"] if REHEARSED else [*LLAMAS[name][0], "--dtype", "bfloat16"]
        makers[name] = subprocess.Popen([sys.executable, str(ROOT / "examples/make_llama.py"), str(folder), *flags])
    searches, parts = list[Task](), list[Task]()
    for name in names:
        makers[name].wait()
        env = {
            "LOAD_SECONDS": os.environ.get("LLM_SECONDS", "10"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        model = campaign.work / name
        space: dict[str, Any] = {
            "modes": MODES[:2] if REHEARSED else MODES,
            "types": TYPES,
            "shares": SHARES[:1] if REHEARSED else SHARES,
        }
        verify = 5 if REHEARSED else 20
        job = llm_job(name, model, strategy="", trials=2 if REHEARSED else TRIALS, **space, verify=verify)
        searches.append(Task(name, "search", job, dict(env)))
        for kind, share in product(space["types"], space["shares"]):
            part: dict[str, Any] = {"modes": space["modes"], "types": (kind,), "shares": (share,)}
            job = llm_job(name, model, strategy="exhaustive", trials=len(space["modes"]), **part, verify=0)
            parts.append(Task(name, "exhaustive", job, dict(env)))
    campaign.run([*searches, *parts], together=False)
    again = list[Task]()
    for name in names:
        for config in worth_another_look(campaign.out, name):
            part = {"modes": (config["MODE"],), "types": (config["DTYPE"],), "shares": (config["GPU_SHARE"],)}
            job = llm_job(name, campaign.work / name, strategy="exhaustive", trials=1, **part, verify=0)
            again.append(Task(name, "exhaustive", job, dict(searches[0].env)))
    campaign.run(again, together=False)


def worth_another_look(out: Path, name: str) -> list[dict[str, Any]]:
    """The REMEASURED best configurations of a model, and what its search chose."""
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    found = recorded(rows)["models"].get(name)
    if found is None:
        return []
    best = sorted(found["configurations"], key=lambda each: -each["per_dollar"])[:REMEASURED]
    wanted = [each["config"] for each in best if each["per_dollar"] > 0]
    wanted += [search["choice"] for search in found["searches"] if search["choice"]]
    return [config for at, config in enumerate(wanted) if config not in wanted[:at]]


def five_job(
    name: str, model: Path, *, trials: int, strategy: str, shares: Iterable[int], batches: Iterable[int], verify: int
) -> dict[str, Any]:
    search: dict[str, Any] = {"max_trials": trials, "noise": 0.05}
    search["trial"] = {"seconds": "10s", "watchdog": "500s", "extension": 0, "retries": 0}
    if strategy:
        search["strategy"] = strategy
    return {
        "name": name,
        "model": str(model),
        "resources": {"infra": "local", "prices": {key: PRICES[key] for key in ("local.2", "local.gpu")}},
        "knobs": {"batch": list(batches), "gpu_share": list(shares), "precision": list(FIVE_PRECISIONS)},
        "load": {"verify": f"{verify}s"},
        "goal": {"maximize": "requests per dollar", "slo": LIMITS[name.removeprefix("tiny-")]},
        "search": search,
    }


def five(campaign: Campaign, names: Iterable[str]) -> None:
    """Each model: a search with TRIALS trials, every configuration, and all verifications for a minute, together."""
    begun = time.monotonic()
    makers = [subprocess.Popen([sys.executable, "-m", "serve_gpu.models", str(campaign.work), name]) for name in names]
    for maker in makers:
        maker.wait()
    campaign.write(kind="made", seconds=time.monotonic() - begun)
    env = {"LOAD_SECONDS": os.environ.get("FIVE_SECONDS", "5")}
    tasks = []
    verify = 5 if REHEARSED else 60
    shares = FIVE_SHARES[1:3] if REHEARSED else FIVE_SHARES
    batches = FIVE_BATCHES[:2] if REHEARSED else FIVE_BATCHES
    for name in names:
        model = campaign.work / f"{name}.pt2"
        job = five_job(
            name,
            model,
            trials=2 if REHEARSED else TRIALS,
            strategy=os.environ.get("FIVE_STRATEGY", ""),
            shares=shares,
            batches=batches,
            verify=verify,
        )
        tasks.append(Task(name, "search", job, dict(env)))
    for share, name in product(shares, names):
        model = campaign.work / f"{name}.pt2"
        job = five_job(
            name,
            model,
            trials=len(batches) * len(FIVE_PRECISIONS),
            strategy="exhaustive",
            shares=(share,),
            batches=batches,
            verify=0,
        )
        tasks.append(Task(name, "exhaustive", job, dict(env)))
    campaign.run(tasks, together=True)
    again = []
    for name in names:
        for config in worth_another_look(campaign.out, name):
            part = {"shares": (config["gpu_share"],), "batches": (config["batch"],)}
            job = five_job(name, campaign.work / f"{name}.pt2", trials=1, strategy="exhaustive", **part, verify=0)
            job["knobs"]["precision"] = [config["precision"]]
            again.append(Task(name, "exhaustive", job, dict(env)))
    campaign.run(again, together=False)


def about() -> dict[str, Any]:
    """The machine and its software."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    for name in ("torch", "transformers", "onnxruntime", "numpy"):
        try:
            found[name] = version(name)
        except ImportError:
            found[name] = None
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    found["gpu"] = smi.stdout.strip()
    found["commit"] = os.environ.get("COMMIT", "")
    found["processors"] = len(os.sched_getaffinity(0))
    return found


def start_service(work: Path) -> None:
    """The multi-process service for everything that runs here, as a user may run it."""
    pipes = work / "mps"
    pipes.mkdir()
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(pipes)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)


def end_service() -> None:
    subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 5\n", check=False)


def check(campaign: Campaign) -> None:
    """What is there: mlcd's own service for a share, a server in fp16, `transformers serve`; how long each takes."""
    campaign.write(kind="found", gpus=[str(gpu) for gpu in find_gpus()], shares=can_share())
    print([str(gpu) for gpu in find_gpus()], can_share(), flush=True)
    begun = time.monotonic()
    llama = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "examples/make_llama.py"),
            str(campaign.work / "llama-100m"),
            *LLAMAS["llama-100m"][0],
        ]
    )
    subprocess.run([sys.executable, "-m", "serve_gpu.models", str(campaign.work), "electra-large"], check=True)
    print(f"exported after {time.monotonic() - begun:.1f} s", flush=True)
    env = {"LOAD_SECONDS": "3"}
    job = five_job(
        "electra-large",
        campaign.work / "electra-large.pt2",
        trials=2,
        strategy="",
        shares=(25,),
        batches=(8,),
        verify=0,
    )
    campaign.run([Task("electra-large", "search", job, dict(env))], together=False)  # by mlcd's own service
    llama.wait()
    start_service(campaign.work)
    tasks = []
    for mode, kind, share in (("cb-1024", "bfloat16", 25), ("plain", "bfloat16", 100)):
        job = llm_job(
            "llama-100m",
            campaign.work / "llama-100m",
            strategy="exhaustive",
            trials=1,
            modes=(mode,),
            types=(kind,),
            shares=(share,),
            verify=0,
        )
        tasks.append(Task("llama-100m", "exhaustive", job, {"LOAD_SECONDS": "5", "HF_HUB_OFFLINE": "1"}))
    campaign.run(tasks, together=False)
    end_service()


def main() -> None:
    what, out = sys.argv[1], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gpu-", dir=os.environ.get("WORK", "/tmp")))
    campaign = Campaign(out=out, work=work)
    campaign.write(kind="about", what=what, **about())
    if what == "check":
        check(campaign)
        return
    start_service(work)
    try:
        names = sys.argv[3:]
        if what == "llm":
            llm(campaign, names or list(LLAMAS))
        else:
            five(campaign, names or list(NAMES))
    finally:
        end_service()
        campaign.write(kind="ended", seconds=time.monotonic() - campaign.began)
        shutil.rmtree(work, ignore_errors=True)
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    print(table(recorded(rows)), flush=True)


if __name__ == "__main__":
    main()
