"""The outcome of one attempt at the training, or of one verification of a served model."""

from dataclasses import dataclass, replace
from enum import StrEnum

from mlcd.space import Config
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.plan import Plan
from mlcd.trial.trial import FailureKind, Learned, Load
from mlcd.units import Usd


class Ending(StrEnum):
    """How an attempt ended.

    After LOST, INTERRUPTED, RESTARTED and MOVED another follows, from the checkpoint if there is one. After
    CONTINUED the same attempt continues: it was only a stretch of one.
    """

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """At the end of the budget."""
    LOST = "lost"
    """mlcd died while it ran."""
    INTERRUPTED = "interrupted"
    """The user interrupted the run."""
    RESTARTED = "restarted"
    """Its nodes were reclaimed or failed."""
    MOVED = "moved"
    """It was so slow that another configuration was better; or a verification failed."""
    OVERRAN = "overran"
    """The cloud did not end it within its time; what it took is charged in full."""

    CONTINUED = "continued"
    """A stretch beside trials, which have ended: the training goes on where it is, on the same nodes."""

    @property
    def is_begun_again(self) -> bool:
        """Whether another attempt, or another stretch of this one, follows."""
        return self in (Ending.LOST, Ending.INTERRUPTED, Ending.RESTARTED, Ending.MOVED, Ending.CONTINUED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The outcome of one attempt at the training, or of one verification.

    config              where it ran
    reached_samples     the training's saved progress when the attempt ended; for CONTINUED and DONE, its progress
    samples_per_second  as measured while it ran; None if it was too short to measure
    message             why it ended, if it is not done
    load                serving: what the verification measured
    next_plan           where to continue, if that was decided when it ended
    noise_scale         of the job's gradients, in samples, as measured in the attempt, if the job reports it
    learned             how good the model was during the attempt, if the job has a target
    node_metrics        what the cloud's own monitoring measured, if it has any
    missing_outputs     outputs that the job file names and the training did not leave, if it is done
    kept_folder         where the node's files are kept because of that
    refused             why one of several clouds gave no nodes for it
    interrupted         whether spot nodes were taken away
    warning             what the job did otherwise than its file says, though it is done: half of the work
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
    learned: tuple[Learned, ...] = ()
    node_metrics: NodeMetrics | None = None
    missing_outputs: tuple[str, ...] = ()
    kept_folder: str = ""
    warning: str = ""
    refused: FailureKind | None = None
    interrupted: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it trained to the end."""
        return self.ending is Ending.DONE

    def then(self, later: "Attempt") -> "Attempt":
        """This stretch and the one that continued it, on the same nodes, as one attempt."""
        return replace(
            later,
            seconds=self.seconds + later.seconds,
            usd=self.usd + later.usd,
            samples_per_second=later.samples_per_second or self.samples_per_second,
            noise_scale=self.noise_scale if later.noise_scale is None else later.noise_scale,
            learned=(*self.learned, *later.learned),
            node_metrics=later.node_metrics or self.node_metrics,
        )
