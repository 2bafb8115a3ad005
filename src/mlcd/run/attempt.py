"""One attempt at the training itself, or one verification of a served model, as it went."""

from dataclasses import dataclass
from enum import StrEnum

from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Load
from mlcd.units import Usd


class Ending(StrEnum):
    """How an attempt ended; after the last three another one follows, from the checkpoint where there is one."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """At the end of the budget."""
    LOST = "lost"
    """mlcd died while it ran."""
    RESTARTED = "restarted"
    """Its nodes were taken back or broke."""
    MOVED = "moved"
    """It fell so far behind that another configuration was better; a verification did not hold."""

    @property
    def is_begun_again(self) -> bool:
        """Whether another attempt follows."""
        return self in (Ending.LOST, Ending.RESTARTED, Ending.MOVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at the training, or one verification, as it went.

    config              where it ran
    reached_samples     how far the training was saved when it ended
    samples_per_second  as measured while it ran; None where it was too short to say
    message             why it ended so, where it is not done
    load                serving: what the verification saw
    next_plan           where to continue, where that was decided when it ended
    noise_scale         of the job's gradients as it showed while training, where that made it move
    """

    config: Config
    seconds: float
    usd: Usd
    ending: Ending = Ending.DONE
    reached_samples: float = 0.0
    samples_per_second: float | None = None
    message: str = ""
    load: Load | None = None
    next_plan: Plan | None = None
    noise_scale: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether it trained to the end."""
        return self.ending is Ending.DONE
