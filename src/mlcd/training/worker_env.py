"""What the agent told this process by its variables: its place among the others and where to report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEnv:
    """The value of a metric at which a training is done."""

    metric: str
    value: float
    higher: bool = True

    def is_met_by(self, value: float) -> bool:
        """Whether this is as good, or better."""
        return value >= self.value if self.higher else value <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnv:
    """The place of this process in the job; outside mlcd a job of one process that reports nowhere.

    head                whether this is the process that reports, saves and looks for the stop file
    rank, workers       among the processes that train
    batch, samples      of the whole job: the global batch and the work to do, where the job file has them
    noise, noise_every  whether the gradients' norms are wanted, and every how many steps, where that is said
    learning_rate       what the job's rule gives for its batch
    target              the metric at which the training is done
    """

    head: bool = True
    rank: int = 0
    workers: int = 1
    batch: int | None = None
    samples: int | None = None
    progress_file: Path | None = None
    stop_file: Path | None = None
    checkpoint_folder: Path | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    noise: bool = False
    noise_every: int | None = None
    learning_rate: float | None = None
    target: TargetEnv | None = None

    @classmethod
    def read(cls, env: Mapping[str, str]) -> "WorkerEnv":
        """From the variables of torchrun, mlcd or Slurm. Raises ValueError naming the one that is no number."""
        every = _first(env, "MLCD_NOISE_EVERY")
        if every is not None and every < 1:
            raise ValueError(f"MLCD_NOISE_EVERY: at least 1 (got {every})")
        rank = _first(env, "RANK", "MLCD_RANK", "SLURM_PROCID") or 0
        return cls(
            head=rank == 0 and env.get("MLCD_ROLE", "worker") in ("worker", "chief") and _is_chief(env),
            rank=rank,
            workers=_first(env, "WORLD_SIZE", "MLCD_NUM_NODES", "SLURM_NTASKS") or 1,
            batch=_first(env, "MLCD_BATCH"),
            samples=_first(env, "MLCD_SAMPLES"),
            progress_file=_path(env, "MLCD_PROGRESS_FILE"),
            stop_file=_path(env, "MLCD_STOP_FILE"),
            checkpoint_folder=_path(env, "MLCD_CHECKPOINT_DIR"),
            checkpoint_seconds=_number(env, "MLCD_CHECKPOINT_SECONDS") or CHECKPOINT_SECONDS,
            noise=bool(_number(env, "MLCD_NOISE")),
            noise_every=every,
            learning_rate=_number(env, "MLCD_LEARNING_RATE"),
            target=TargetEnv(**json.loads(env["MLCD_TARGET"])) if env.get("MLCD_TARGET") else None,
        )


def _number(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: not a number (got {text!r})") from None


def _first(env: Mapping[str, str], *names: str) -> int | None:
    found = (_number(env, name) for name in names)
    return next((int(number) for number in found if number is not None), None)


def _path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _is_chief(env: Mapping[str, str]) -> bool:
    # TensorFlow's parameter-server cluster has a chief beside worker 0, on the same node.
    if not env.get("TF_CONFIG"):
        return True
    config = json.loads(env["TF_CONFIG"])
    return "chief" not in config.get("cluster", {}) or config.get("task", {}).get("type") == "chief"
