"""One training on the simulated cloud: decide, authorise, run, until the target, the end of the money, or a refusal."""

from dataclasses import dataclass

from mlcd.clouds.functions.provider import EpochFailed, EpochOrder, FunctionCloud
from mlcd.epoch_ledger import EpochLedger, EpochRefusal
from mlcd.functions import FunctionProblem
from mlcd.schedulers.scheduler import Scheduler
from mlcd.trial.epoch import Epoch, FailedEpoch, Fleet
from mlcd.units import Usd

MAX_FAILURES = 3
"""Failed epochs after which a training is given up."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What one training came to."""

    epochs: tuple[Epoch, ...]
    failed: tuple[FailedEpoch, ...]
    done: bool
    seconds: float
    usd: Usd
    ending: str
    smallest_budget: Usd | None

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """Of each epoch."""
        return tuple(epoch.fleet for epoch in self.epochs)


def run_episode(problem: FunctionProblem, cloud: FunctionCloud, scheduler: Scheduler, *, run_id: str = "") -> Episode:
    """The training from its first epoch to its end. Every epoch's worst case was authorised before it."""
    ledger = EpochLedger(problem=problem)
    ending = ""
    while not _reached(ledger) and not ending:
        left = ledger.left()
        fleet = scheduler.decide(problem, ledger.epochs, left)
        if fleet is None:
            ending = scheduler.ending(problem, ledger.epochs, left)
            break
        leave = ledger.authorise(fleet)
        if isinstance(leave, EpochRefusal):
            ending = leave.reason
            break
        number = len(ledger.epochs) + 1
        order = EpochOrder(number=number, fleet=fleet, seconds=leave.seconds, usd=leave.usd, run_id=run_id)
        try:
            epoch = cloud.run_epoch(order)
        except EpochFailed as error:
            failure = FailedEpoch(
                number=number, fleet=fleet, seconds=error.seconds, usd=error.usd, message=error.message
            )
            ledger = EpochLedger(problem=problem, epochs=ledger.epochs, failed=(*ledger.failed, failure))
            if len(ledger.failed) >= MAX_FAILURES:
                ending = error.message
        else:
            ledger = EpochLedger(problem=problem, epochs=(*ledger.epochs, epoch), failed=ledger.failed)
    done = _reached(ledger)
    return Episode(
        epochs=ledger.epochs,
        failed=ledger.failed,
        done=done,
        seconds=ledger.seconds,
        usd=ledger.spent,
        ending="" if done else ending,
        smallest_budget=None if done else scheduler.smallest_budget(problem, ledger.epochs, ledger.left()),
    )


def _reached(ledger: EpochLedger) -> bool:
    return bool(ledger.epochs) and ledger.epochs[-1].loss <= ledger.problem.target_loss
