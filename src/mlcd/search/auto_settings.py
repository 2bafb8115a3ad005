"""All settings of `auto`, each with what it stands on."""

from dataclasses import dataclass
from typing import Literal

from mlcd.search.memory_rules import MemoryRules
from mlcd.search.strategy import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoSettings:
    """Options of `auto:option=value`.

    Numbers without another source were chosen on the seen workloads of scout, multicloud and trimtuner under the
    default protocol of `mlcd bench train`, 1 or 2 seeds, not on random protocols. Raises ValueError for a number
    that is out of range.
    """

    mixture: bool = True
    """Whether several beliefs about the job are weighed against each other. `off`: the most common one alone."""

    level: bool = True
    """Whether a limit says how long the job is: users set limits that can be met. `off`: the first look is at what is
    expected to be best, whatever its chance to fit."""

    deadline_runs: float = 2.2
    """A deadline is expected to be this many times the run on the fastest configuration: the middle of 1.2 to 4."""

    budget_runs: float = 1.8
    """A budget is expected to be this many times the run on the cheapest configuration: the middle of 1.1 to 3."""

    level_deviation: float = 0.5
    """Standard deviation of the logarithm of both: 1.1 to 3 and 1.2 to 4 are about two deviations wide."""

    order: Literal["pandora", "net"] = "pandora"
    """Which of the trials that pay is made first. `pandora`: the one that may turn out best for its price (Weitzman
    1979), so that cheap, unlikely ones come before expensive, likely ones. `net`: the largest expected net value."""

    scarcity: float = 0.3
    """Using up what the limits leave for the search costs this share of what the search may still bring."""

    first_scarcity: float = 0.1
    """The same while nothing measured fits."""

    first_unit: Literal["goal", "knee", "cost"] = "knee"
    """Under a budget, in which unit trials are compared while nothing measured fits: what fits is what is cheap. `knee`
    is the geometric mean of time and money."""

    unfinished_runs: float = 3.0
    """While nothing measured fits, ending without a run counts as this many runs on the most promising configuration,
    as in `mlcd bench train`."""

    likely: float = 0.3
    """The most promising configuration is the best of those that fit with at least this probability."""

    tail_degrees: float = 3.0
    """Degrees of freedom of Student's t in the probability that something still fits: whether to go on at all must not
    rest on the thin tails of a model of few trials."""

    least_chance: float = 1.0
    """While nothing measured fits, a trial needs this probability of fitting for the share of the limits it takes; if
    none has it, the one with the largest is made."""

    hopeless: float = 0.002
    """The probability of fitting below which nothing more is tried: eight standard deviations, with the tails above."""

    least_gain: float = 0.002
    """A trial that is expected to bring less than this share of the run is not made, even if it is free."""

    round_target: bool = True
    """Whether the second trial of a round must beat the expected result of the first, as in heterbo."""

    round_share: float = 0.05
    """Under a budget, what all trials of a round but the first may take together of what the budget leaves for the
    search: a trial that starts now instead of after the first saves time but knows less. On random protocols (seen
    workloads, thrown work, 8 at once, budget and both) 1.77 with 21% unfinished, as one at a time; with 0.2 more by
    0.11 +- 0.05, without the rule more by 0.27 +- 0.08 with 39% unfinished."""

    watched: bool = True
    """Whether a training may start where it is expected to fit but not certain to: it is watched, and moves to its
    fallback if it turns out too slow (mlcd.trial.watched). `off`: only where the upper bound fits."""

    least_trial: float = 0.15
    """The share of a trial's full time that is measured at least, after its first sample: then it ends as soon as its
    speed is known (`TrialPolicy.enough_precision`). 1: trials take their full time. Where trials report (report_noise
    0.05, 2 to 4 seeds, thrown), 0.15 instead of 0.25 changes the ratio by -0.022 +- 0.009 (fastest), -0.017 +- 0.006
    (cheapest), -0.032 +- 0.022 (budget) and -0.031 +- 0.013 (both); 0.1 is no better."""

    failed_share: float = 0.25
    """Of failures without a known reason, those that come of a deployment that is too small. With a half, the search
    ends too early where many fail: on the seen workloads beside a training 1.13 for fastest, with a quarter 1.07."""

    other_jobs: bool = False
    """Whether speeds are expected a little like those of other jobs in the store. On seen workloads that is no gain for
    any goal: +0.00 to +0.07, 95% intervals from -0.03 to +0.17 (earlier_jobs.py, 3 seeds)."""

    memory: MemoryRules = "named"
    """What running out of memory says about other configurations (mlcd.search.memory_rules)."""

    def __post_init__(self) -> None:
        at_least(0, scarcity=self.scarcity, first_scarcity=self.first_scarcity, least_gain=self.least_gain)
        at_least(0, least_chance=self.least_chance, likely=self.likely, hopeless=self.hopeless)
        at_least(0, failed_share=self.failed_share, round_share=self.round_share)
        at_least(1, deadline_runs=self.deadline_runs, budget_runs=self.budget_runs)
        at_least(1, unfinished_runs=self.unfinished_runs, tail_degrees=self.tail_degrees)
        at_least(0.01, level_deviation=self.level_deviation, least_trial=self.least_trial)
