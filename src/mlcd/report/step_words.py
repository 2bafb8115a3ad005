"""A step of a run in a few words: what it was for, where it ran, what came of it."""

from mlcd.report.wording import restart_text, speed_text
from mlcd.report.yardstick import yardstick
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import RejectionReason
from mlcd.run.run import AnyRun
from mlcd.run.step import Role, Step
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.trial import Failure, Measurement

_ENDINGS = {
    Ending.DONE: "done",
    Ending.FAILED: "failed",
    Ending.STOPPED: "stopped at the end of the budget",
    Ending.OVERRAN: "not ended within its time",
    Ending.CONTINUED: "continues on the same nodes",
}


_MISSED = (RejectionReason.BREAKS_SLO, RejectionReason.BELOW_RATE)


def role_text(step: Step) -> str:
    """`trial`, `load test`, `verification`, `training`, `epoch`."""
    if step.role is Role.TRIAL and getattr(step.outcome, "load", None) is not None:
        return "load test"
    return str(step.role)


def place_text(step: Step) -> str:
    """Where it runs: a configuration, or the functions of an epoch."""
    return str(step.authorisation.choice)


def miss_text(record: AnyRun, step: Step) -> str:
    """The limit that a load test was measured to break, `p99 1.66 s over the limit`; "" if it broke none."""
    found = record.findings.serve if record.findings else None
    if found is None or step.role is not Role.TRIAL or not isinstance(step.outcome, Measurement):
        return ""
    broken = [each for each in found.rejected if each.config == step.config and each.reason in _MISSED]
    return next((each.text.removesuffix(f" at {_rate(step.outcome)}/s") for each in broken), "")


def _rate(measured: Measurement) -> str:
    return speed_text(measured.samples_per_second)


def outcome_text(record: AnyRun, step: Step) -> str:
    """What came of it."""
    match step.outcome:
        case None:
            return "running"
        case Failure() as failure:
            return f"{failure.kind}: {failure.message}" if failure.message else str(failure.kind)
        case FailedEpoch() as failed:
            return f"failed: {failed.message}"
        case Epoch() as epoch:
            return f"loss {epoch.loss:.4g}"
        case Attempt() as attempt:
            is_unmet = step.role is Role.VERIFICATION and attempt.ending is Ending.MOVED
            words = "failed" if is_unmet else _ENDINGS.get(attempt.ending) or restart_text(attempt)
            return f"{words}: {attempt.message}" if attempt.message else words
        case measured if measured.load is not None:
            return f"{_rate(measured)} requests/s"
        case measured:
            return yardstick(record).result(measured)
