"""What the command line changes in a job: `--on --budget --deadline --strategy --parallel`."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from mlcd.spec import quantity
from mlcd.spec.node import Node
from mlcd.spec.parse import SEARCH
from mlcd.spec.record import Reader
from mlcd.spec.scalar import scalar
from mlcd.spec.train import Place, TrainSpec


def with_overrides(
    spec: TrainSpec,
    *,
    on: str | None = None,
    budget: str | float | None = None,
    deadline: str | None = None,
    strategy: str | None = None,
    parallel: str | int | None = None,
    now: datetime | None = None,
    mark: str = "--",
) -> TrainSpec:
    """`spec` with every flag that is not None in place of the file's value, and noted in `overrides`.

    Values are as in a job file. Raises SpecError whose field is the flag after `mark`, such as `--budget`.
    """
    flags: tuple[tuple[str, object, str, str, Reader[object]], ...] = (
        ("on", on, "resources", "infra", quantity.line_of_text),
        ("budget", budget, "goal", "budget", quantity.budget),
        ("deadline", deadline, "goal", "deadline_seconds", quantity.deadline(now)),
        ("strategy", strategy, "search", "strategy", SEARCH.fields["strategy"].read),
        ("parallel", parallel, "search", "parallel", SEARCH.fields["parallel"].read),
    )
    noted, places = dict(spec.overrides), dict(spec.places)
    for flag, given, section, attribute, read in flags:
        if given is None:
            continue
        noted[flag] = str(given)
        value = scalar(noted[flag]) if flag in ("budget", "parallel") else noted[flag]
        change: dict[str, Any] = {
            attribute: read(Node(value=value, path=mark + flag, written=noted[flag])),
        }
        places[f"{section}.{attribute.removesuffix('_seconds')}"] = Place(mark + flag)
        spec = replace(spec, **{section: replace(getattr(spec, section), **change)})
    return replace(spec, overrides=tuple(noted.items()), places=places)
