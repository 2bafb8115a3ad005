"""`mlcd.findings.what_if` as an answer of the API."""

from typing import TYPE_CHECKING, Any

from mlcd.report.result_types import copied
from mlcd.run.run import Run
from mlcd.units import Usd
from mlcd.web.api_types import BudgetStepJson, NextTrialJson, OptionJson, WhatIfJson
from mlcd.web.records import Records

if TYPE_CHECKING:
    from mlcd.findings.what_if import WhatIf


def what_if_json(
    records: Records,
    run_id: str,
    *,
    budget_usd: float | None,
    deadline_seconds: float | None,
    time_weight: float | None,
    next_trial: bool,
) -> WhatIfJson:
    """The answer, asked of the search once for each state of the run. Raises BadInput, NoSuchRun."""
    from mlcd.findings.what_if import what_if  # noqa: PLC0415 - the models are imported once the page is there

    def ask(run: Run[Any]) -> WhatIfJson:
        found = what_if(
            run,
            budget=None if budget_usd is None else Usd.of(f"{budget_usd:.6f}"),
            deadline_seconds=deadline_seconds,
            time_weight=time_weight,
            next_trial=next_trial,
        )
        return as_json(run.run_id, found)

    return records.made(run_id, f"what-if {budget_usd} {deadline_seconds} {time_weight} {next_trial}", ask)


def as_json(run_id: str, found: "WhatIf") -> WhatIfJson:
    """The answer's values by key."""
    choice, trial = found.choice, found.next_trial
    return WhatIfJson(
        run_id=run_id,
        budget_usd=found.goal.budget,
        deadline_seconds=found.goal.deadline_seconds,
        time_weight=found.time_weight,
        text=found.text,
        choice=None if choice is None else str(choice.config),
        choice_seconds=None if choice is None else choice.seconds,
        choice_usd=None if choice is None else choice.usd,
        total_seconds=found.total_seconds,
        total_usd=found.total_usd,
        spent_seconds=found.spent_seconds,
        spent_usd=found.spent_usd,
        knee=None if found.knee is None else str(found.knee.config),
        options=tuple(
            copied(OptionJson, each.plan, text=str(each.plan.config), fits=each.fits, on_front=each.on_front)
            for each in found.options
        ),
        steps=tuple(
            BudgetStepJson(
                budget_usd=each.budget,
                text=str(each.plan.config),
                seconds=each.plan.seconds,
                usd=each.plan.usd,
                worst_usd=each.plan.worst_usd,
            )
            for each in found.steps
        ),
        next_trial=None
        if trial is None
        else NextTrialJson(text=str(trial.config), usd=trial.usd, seconds=trial.seconds, reason=trial.reason),
        stopped=found.stopped,
        ways_out=found.ways_out,
    )
