"""What the command line changes in a training job: `--on --budget --deadline --strategy --parallel`."""

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
    now: datetime | None = None,
    mark: str = "--",
) -> TrainSpec:
    """`spec` with every flag that is not None in place of the file's value, and noted in `overrides`.

    Values are as in a job file. Raises SpecError whose field is the flag after `mark`, such as `--budget`.
    """
    flags = {"on": on, "budget": budget, "deadline": deadline, "strategy": strategy, "parallel": parallel}
    written = {name: str(said) if isinstance(said, int | float) else said for name, said in flags.items()}
    return TRAIN.with_flags(spec, written, now=now, mark=mark)
