"""All settings of falcon and falcon-transfer, each with its source."""

from dataclasses import dataclass

from mlcd.search.strategy import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefSettings:
    """What both share. "Paper" is Wu et al., SoCC 2022; "odd targets" are the models that may be tuned on."""

    least: int = 3
    """Trials before the search may end. 1 is no worse on odd targets (docs/ablations.md)."""

    gain: float = 0.0001
    """The search may end when the expected saving is below this share of the best. Chosen on made-up models and odd
    targets."""

    unseen_trials: int = 2
    """Added to `least` if an operator was never measured. Unmeasured: the shipped tables have all operators of their
    models."""

    waiting_deviation: float = 0.3
    """Deviation of ln(latency at a high percentile / seconds of a full batch) between configurations. Chosen on load
    tests of a local server (commit 627b57b); the H200 tables have no percentiles."""

    least_probability: float = 0.01
    """A configuration with a lower probability of keeping the limits is not worth a trial. Unmeasured."""

    limit_weight: float = 2.0
    """The power of the probability that the limits are kept, in the value of what is recommended. 1 is the best mean if
    a broken limit costs only the requests; 2 was chosen because it costs more. Checked on odd targets."""

    def __post_init__(self) -> None:
        at_least(1, least=self.least)
        at_least(0, gain=self.gain, unseen_trials=self.unseen_trials, limit_weight=self.limit_weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconSettings(BeliefSettings):
    """Options of `falcon:option=value`."""

    threshold: float = 0.9
    """Key operators are the fewest whose share of the time exceeds this. Paper 4.1; chosen on odd targets."""

    cutoff: float = 0.95
    """Of configurations that differ only in knobs outside the principal components that cover this share of the curves'
    variance, all but the best are pruned. Paper 4.2; chosen on odd targets (ablation in docs/falcon.md). 1: only knobs
    whose curve is a plane for every key operator."""

    explore: float = 0.1
    """cp of UCT. Paper 4.3; chosen on odd targets."""

    smallest_region: int = 4
    """A region of fewer configurations than twice this is not split; a large number grows no tree, which is no
    worse on odd targets (docs/ablations.md)."""

    model_deviation: float = 0.4
    """Standard deviation of ln(measured / predicted), common to the whole model. Chosen on made-up models and odd
    targets."""

    knob_deviation: float = 0.3
    """The same along the knobs. Chosen on odd targets of both tables."""

    own_deviation: float = 0.05
    """The same for a single configuration. Chosen likewise."""

    def __post_init__(self) -> None:
        BeliefSettings.__post_init__(self)
        at_least(0, explore=self.explore)
        at_least(1, smallest_region=self.smallest_region)
        if not (0 < self.threshold <= 1 and 0 < self.cutoff <= 1):
            raise ValueError("threshold and cutoff must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconTransferSettings(BeliefSettings):
    """Options of `falcon-transfer:option=value`."""

    requests: float = 1e9
    """Requests that will be served. If money is minimised, a trial pays for itself when the expected saving on all of
    them exceeds its price; otherwise when it exceeds `gain` of the best. The user decides."""

    least_models: int = 4
    """With fewer known models, their residuals are ignored and a broad default covariance is used. A large number
    always ignores the residuals. Unmeasured between 2 and 29."""

    likeness: bool = True
    """Whether models that spend their time on the same operators share residuals; how much is learnt from the known
    models. No effect on the H200 tables (docs/ablations.md)."""

    def __post_init__(self) -> None:
        BeliefSettings.__post_init__(self)
        at_least(0, requests=self.requests)
        at_least(1, least_models=self.least_models)
