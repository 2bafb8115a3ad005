"""The facts of a serving job as JSON and back: kept with the job as it was written."""

import dataclasses
from typing import Any

from mlcd.known.resemblance import Resemblance
from mlcd.trial.record import ServingFacts

Json = dict[str, Any]


def serving_to_json(facts: ServingFacts) -> Json:
    """Every field."""
    return dataclasses.asdict(facts)


def serving_from_json(data: Json | None) -> ServingFacts | None:
    """The inverse of serving_to_json; None for other jobs."""
    if data is None:
        return None
    alike = data["resemblance"]
    if alike is not None:
        nearest = tuple((str(name), float(share)) for name, share in alike["nearest"])
        alike = Resemblance(**{**alike, "nearest": nearest, "unseen": tuple(alike["unseen"])})
    return ServingFacts(**{**data, "resemblance": alike, "notes": tuple(data["notes"])})
