"""The flags that override fields of a training job: `--on --budget --deadline --strategy --parallel --env`."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from mlcd.spec.parse import TRAIN
from mlcd.spec.train import TrainSpec
from mlcd.units import Usd


def with_overrides(
    spec: TrainSpec,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: str | int | None = None,
    envs: Mapping[str, str | None] | None = None,
    now: datetime | None = None,
    mark: str = "--",
) -> TrainSpec:
    """`spec` with every flag that is not None overriding the file's value and recorded in `overrides`.

    Values have the form of a job file. Raises SpecError whose field is `mark` and the flag's name, such as `--budget`.
    """
    flags = {
        "on": on,
        "budget": budget,
        "deadline": deadline,
        "strategy": strategy,
        "parallel": parallel,
        "envs": dict(envs) if envs else None,
    }
    written = {name: str(value) if isinstance(value, int | float) else value for name, value in flags.items()}
    return TRAIN.with_flags(spec, written, now=now, mark=mark)
