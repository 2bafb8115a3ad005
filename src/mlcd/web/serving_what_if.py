"""`mlcd.findings.serving_what_if` as an answer of the API, and what its page has besides."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcd.errors import BadInput
from mlcd.run.run import Run
from mlcd.untrusted import printable
from mlcd.web.api_types import ServingOptionJson, ServingWhatIfJson
from mlcd.web.records import Records

if TYPE_CHECKING:
    from mlcd.findings.serving_what_if import ServingWhatIf

_LIMIT = re.compile(r"([a-z0-9_]{1,20}):([0-9]{1,9}(?:\.[0-9]{1,12})?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSlider:
    """A limit of the job on the page; `most_seconds` is the longest that was measured."""

    name: str
    title: str
    seconds: float
    most_seconds: float


def limits_in(text: str) -> dict[str, float]:
    """`ttft_p99:0.5,tpot_p99:0.05`. Raises BadInput."""
    found = {}
    for part in filter(None, text.split(",")):
        read = _LIMIT.fullmatch(part)
        if read is None:
            raise BadInput(
                f"limits: write NAME:SECONDS, such as p99:0.05 (got {printable(part, most_characters=60)!r})"
            )
        found[read[1]] = float(read[2])
    return found


def serving_what_if_json(
    records: Records, run_id: str, *, rate: float | None, limits: dict[str, float] | None
) -> ServingWhatIfJson:
    """The answer, asked once for each state of the run; limits None: those of the job. Raises BadInput, NoSuchRun."""
    from mlcd.findings.serving_what_if import limits_of, serving_what_if  # noqa: PLC0415 - imported once the page is there

    def ask(run: Run[Any]) -> ServingWhatIfJson:
        asked = limits
        if asked is None:
            asked = {name: limit.seconds for name, limit in limits_of(run.problem.goal).items()}
        return as_json(
            run.run_id, serving_what_if(run, rate=rate, limits=asked), names=tuple(limits_of(run.problem.goal))
        )

    return records.made(run_id, f"serving-what-if {rate} {limits}", ask)


def as_json(run_id: str, found: "ServingWhatIf", *, names: tuple[str, ...]) -> ServingWhatIfJson:
    """The answer's values by key; `names` are the limits of the job."""
    return ServingWhatIfJson(
        run_id=run_id,
        rate=found.goal.rate,
        limits=names,
        text=found.text,
        choice=None if found.choice is None else str(found.choice.config),
        options=tuple(
            ServingOptionJson(
                config=each.config,
                text=str(each.config),
                requests_per_second=each.requests_per_second,
                usd_per_hour=each.usd_per_hour,
                usd_per_million=each.usd_per_million,
                seconds=each.seconds,
                misses=each.text,
            )
            for each in found.options
        ),
    )


def limit_sliders(run: Run[Any], found: ServingWhatIfJson) -> tuple[LimitSlider, ...]:
    """One for each limit of the job."""
    from mlcd.findings.serving_what_if import limits_of  # noqa: PLC0415

    limits = limits_of(run.problem.goal)
    return tuple(
        LimitSlider(
            name=name,
            title=str(limit).partition(" within ")[0],
            seconds=limit.seconds,
            most_seconds=max((each.seconds[at] or 0.0 for each in found.options), default=0.0),
        )
        for at, (name, limit) in enumerate(limits.items())
    )
