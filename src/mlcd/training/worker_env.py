"""The environment variables that the agent sets for this process: its rank, and where to report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEnv:
    """The value of a metric at which a training is done."""

    metric: str
    value: float
    higher: bool = True

    def is_met_by(self, value: float) -> bool:
        """Whether `value` is as good or better."""
        return value >= self.value if self.higher else value <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnv:
    """The place of this process in the job; outside mlcd, the only process of a job that reports nowhere.

    head                whether this process reports, saves and checks for the stop file
    rank, workers       among the processes that train
    batch, samples      of the whole job: the global batch and the work to do, where the job file has them
    noise, noise_every  whether to report the gradients' norms, and every how many steps, where the user set that
    learning_rate       for the job's batch, by its rule
    target              the metric at which the training is done
    knobs               the job file's knobs as they were chosen, those that apply; declared_knobs: names of all
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
    knobs: Mapping[str, str | int | float] = field(default_factory=dict)
    declared_knobs: tuple[str, ...] = ()

    @classmethod
    def read(cls, env: Mapping[str, str]) -> "WorkerEnv":
        """From the variables of torchrun, mlcd or Slurm. Raises ValueError that names a malformed one."""
        every = _first(env, "MLCD_NOISE_EVERY")
        if every is not None and every < 1:
            raise ValueError(f"MLCD_NOISE_EVERY: must be at least 1 (got {every})")
        rank = _first(env, "RANK", "MLCD_RANK", "SLURM_PROCID") or 0
        knobs = json.loads(env["MLCD_KNOBS"]) if env.get("MLCD_KNOBS") else {}
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
            knobs={name: value for name, value in knobs.items() if value is not None},
            declared_knobs=tuple(knobs),
        )


def _number(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: must be a number (got {text!r})") from None


def _first(env: Mapping[str, str], *names: str) -> int | None:
    found = (_number(env, name) for name in names)
    return next((int(number) for number in found if number is not None), None)


def _path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _is_chief(env: Mapping[str, str]) -> bool:
    # TensorFlow's parameter-server cluster has a chief in addition to worker 0, on the same node.
    if not env.get("TF_CONFIG"):
        return True
    config = json.loads(env["TF_CONFIG"])
    return "chief" not in config.get("cluster", {}) or config.get("task", {}).get("type") == "chief"
