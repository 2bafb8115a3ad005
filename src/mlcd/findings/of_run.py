"""The findings of a run of any kind."""

from dataclasses import replace
from typing import Any, assert_never, cast

from mlcd.run.findings import Findings
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, P_co, Run, SearchRun


def findings_of(run: Run[Any]) -> Findings:
    """What reports say of `run` in its current state. The engine calls this and stores the result when the run ends."""
    match run.kind:
        case Kind.TRAIN:
            from mlcd.findings.train import train_findings  # noqa: PLC0415 - each kind has models of its own

            return Findings(train=train_findings(cast(SearchRun, run)))
        case Kind.SERVE:
            from mlcd.findings.serve import serve_findings  # noqa: PLC0415 - see above

            return Findings(serve=serve_findings(cast(SearchRun, run)))
        case Kind.SERVERLESS:
            from mlcd.findings.serverless import serverless_findings  # noqa: PLC0415 - see above

            return Findings(serverless=serverless_findings(cast(EpochRun, run)))
        case other:
            assert_never(other)


def shown(run: Run[P_co]) -> Run[P_co]:
    """The run with its findings: the stored ones, otherwise computed now.

    They are computed for a run that has not ended, and for one that ended under an older version of mlcd.
    """
    return run if run.findings is not None else replace(run, findings=findings_of(run))
