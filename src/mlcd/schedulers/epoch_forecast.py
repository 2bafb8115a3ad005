"""Shared by schedulers that learn: the fit, the memory a function needs, and whether the budget can suffice."""

import math
from dataclasses import dataclass, replace

import numpy as np

from mlcd.functions import FunctionProblem
from mlcd.models.epochs import PRIOR, EpochModel, EpochPrior, fit_epochs
from mlcd.run.verdict import Relaxation
from mlcd.schedulers.planning import PLANNING, Fleets, PlanningSettings, candidates, cheapest_usd
from mlcd.trial.epoch import LEAST_SHARE, Epoch, Fleet, RemainingEpochs
from mlcd.units import Usd, format_seconds


@dataclass(frozen=True, kw_only=True)
class EpochForecast:
    """The fit after the epochs so far, with the fleets that may come next.

    time_deviation  of the logarithm of an epoch's time before one was measured; 0 after that
    """

    model: EpochModel
    fleets: Fleets
    smallest_mb: float
    cheapest_usd: float
    spent_usd: float
    time_deviation: float
    least_share: float = 1.0
    settings: PlanningSettings = PLANNING

    @classmethod
    def of(
        cls,
        problem: FunctionProblem,
        history: tuple[Epoch, ...],
        remaining: RemainingEpochs,
        prior: EpochPrior = PRIOR,
        *,
        least_share: float = 1.0,
        settings: PlanningSettings = PLANNING,
        learn_startup: bool = True,
    ) -> "EpochForecast":
        """Fits the epochs so far. Pure, and cheap enough to call again.

        learn_startup  off: the time to start functions is assumed to be 0, not learnt
        """
        model = fit_epochs(
            history,
            samples=problem.samples,
            puts=problem.puts_per_function,
            target_loss=problem.target_loss,
            first_loss=problem.first_loss,
            prior=prior,
        )
        if not learn_startup:
            model = replace(model, times=replace(model.times, epoch_seconds=0.0, call_seconds=0.0))
        smallest = _smallest_mb(problem, history)
        fleets = candidates(problem, model, remaining, smallest_mb=smallest, settings=settings)
        cheapest = cheapest_usd(
            problem, model, fleets, smallest_mb=smallest, least_share=least_share, settings=settings
        )
        spent = sum(e.usd.dollars for e in history) + sum(f.usd.dollars for f in remaining.failed)
        return cls(
            model=model,
            fleets=fleets,
            smallest_mb=smallest,
            cheapest_usd=cheapest,
            spent_usd=spent,
            time_deviation=0.0 if history or prior.measured else prior.seconds_per_sample[1],
            least_share=least_share,
            settings=settings,
        )

    def is_hopeless(self, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> bool:
        """Whether money or time that remains is too little for the remaining epochs, even if fewer are needed.

        Before two epochs only a gross shortage counts, unless earlier runs are known: the first shows time and cost of
        an epoch, the second the progress.
        """
        if not (self.fleets.most_share >= self.least_share).any():
            return True
        optimism = self._optimism(history)
        if not self._is_unknown(history) and self._fewest_epochs() * optimism > remaining.epochs:
            return True
        if self.is_late(history, remaining):
            return True
        return remaining.usd is not None and self.cheapest_usd * optimism > remaining.usd.dollars

    def is_late(self, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> bool:
        """Whether the deadline comes before the target, even with the fastest fleet and fewer epochs than predicted."""
        return remaining.seconds is not None and self._fewest_seconds() * self._optimism(history) > remaining.seconds

    def _epochs_deviation(self) -> float:
        """The deviation of the remaining epochs, as a share of them."""
        return self.model.epochs_left_deviation / max(self.model.epochs_left, 1.0)

    def _is_unknown(self, history: tuple[Epoch, ...]) -> bool:
        """Whether neither two epochs nor earlier runs show how many epochs are needed."""
        return sum(e.fleet.share for e in history) < 2 and self._epochs_deviation() > self.settings.known_epochs_share

    def _optimism(self, history: tuple[Epoch, ...]) -> float:
        """The fewest epochs, or the least time and cost, that are plausible, over the predicted ones."""
        share = self._epochs_deviation()
        if not self._is_unknown(history):
            return 1 - min(0.5, 2 * share) - 0.05
        sigmas = self.settings.unknown_sigmas if self.time_deviation else self.settings.measured_sigmas
        return math.exp(-sigmas * math.hypot(share, self.time_deviation))

    def relaxations(
        self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs
    ) -> tuple[Relaxation, ...]:
        """The budget or the deadline, or both, with which the training would probably reach its target.

        Each `budget_factor` times what one fleet is predicted to take, above what is spent already. A number of epochs
        that nothing has shown yet makes it a guess, and is called one.
        """
        guess = self._is_unknown(history)
        usable = (self.fleets.memory_mb >= self.smallest_mb) & np.isfinite(self.fleets.usd)
        epochs = self.model.epochs_left / self.model.usual_gain(self.fleets.functions) * self.settings.budget_factor
        usd, seconds = (epochs * self.fleets.usd)[usable], (epochs * self.fleets.seconds)[usable]
        if not len(usd):
            return ()
        goal = problem.goal
        usd_left = math.inf if remaining.usd is None else remaining.usd.dollars
        seconds_left = math.inf if remaining.seconds is None else remaining.seconds
        in_time, payable = seconds <= seconds_left, usd <= usd_left
        if (in_time & payable).any():
            return ()
        spent = 0.0 if goal.budget is None else goal.budget.dollars - usd_left
        elapsed = 0.0 if goal.deadline_seconds is None else goal.deadline_seconds - seconds_left
        answers = []
        if in_time.any():
            answers.append(relaxation(budget=spent + float(usd[in_time].min()), guess=guess))
        if payable.any():
            answers.append(relaxation(seconds=elapsed + float(seconds[payable].min()), guess=guess))
        if not answers:
            cheapest = int(usd.argmin())
            needed = spent + float(usd[cheapest]), elapsed + float(seconds[cheapest])
            answers.append(relaxation(budget=needed[0], seconds=needed[1], guess=guess))
        return tuple(answers)

    def _fewest_epochs(self) -> float:
        """Epochs to the target with the fleet that gains most per epoch."""
        return self.model.epochs_left / float(self.model.usual_gain(self.fleets.functions).max())

    def _fewest_seconds(self) -> float:
        """Seconds to the target with the fastest fleet."""
        return self.model.epochs_left * float(
            (self.fleets.seconds / self.model.usual_gain(self.fleets.functions)).min()
        )

    def expected_text(self, problem: FunctionProblem, history: tuple[Epoch, ...], fleet: Fleet) -> str:
        """What this epoch, or part of one, is expected to take, and the rest with as many functions; a clause.

        `expected 6.7 s and $0.029; then about 8 epochs more, 1 min 40 s and $0.42 on the same functions`. Shorter while
        nothing shows how many epochs are needed, and "" of what is no number.
        """
        functions, memory = np.array([float(fleet.functions)]), np.array([float(fleet.memory_mb)])
        whole = float(self.model.seconds(functions, memory)[0])
        start = min(float(self.model.overhead(functions)[0]), whole)
        per_second = float(problem.usd_per_second[0, problem.memory_mb.index(fleet.memory_mb)])
        epoch_usd = fleet.functions * (per_second * whole + problem.usd_per_function)
        gain = float(self.model.usual_gain(functions)[0])
        rest = max(self.model.epochs_left / gain - fleet.share, 0.0)
        seconds = start + (whole - start) * fleet.share
        if not all(map(math.isfinite, (seconds, epoch_usd, rest * whole))):
            return ""
        guess = ", as a guess," if self.time_deviation else ""
        text = f"expected{guess} {format_seconds(seconds)} and {_dollars(epoch_usd * fleet.share)}"
        if self._is_unknown(history):
            learn = " a part to learn from:" if fleet.share < 1 else ""
            return f"{text};{learn} how many epochs are needed is not known yet"
        if rest < LEAST_SHARE:
            return f"{text}, to the target"
        more = f"{format_seconds(rest * whole)} and {_dollars(rest * epoch_usd)}"
        return f"{text}; then about {_about(rest)} more, {more} on the same functions"

    def smallest_budget(self, problem: FunctionProblem, history: tuple[Epoch, ...]) -> Usd | None:
        """The least cost of the whole training, with the ledger's reserve for its last epoch, times `budget_factor`."""
        if not history and self.model.epochs_left_deviation > self.settings.known_epochs_share * self.model.epochs_left:
            return None
        if sum(epoch.fleet.share for epoch in history) + self._fewest_epochs() > problem.max_epochs:
            return None
        whole = replace(self.model, done=0.0, epochs_left=self.model.done + self.model.epochs_left)
        dollars = cheapest_usd(
            problem,
            whole,
            self.fleets,
            smallest_mb=self.smallest_mb,
            least_share=self.least_share,
            settings=self.settings,
        )
        if not math.isfinite(dollars):
            return None
        margin = self.settings.budget_factor
        if problem.goal.budget is not None and dollars * margin < problem.goal.budget.dollars:
            # The budget was sufficient but was spent elsewhere; report what is missing.
            dollars = self.spent_usd + self.cheapest_usd
        return Usd.of(_rounded_up(dollars * margin))

    def ending(self, problem: FunctionProblem, history: tuple[Epoch, ...], remaining: RemainingEpochs) -> str:
        """What is missing, as a clause without a full stop."""
        if remaining.epochs == 0:
            return f"{problem.max_epochs} epochs did not reach a loss of {problem.target_loss:.4g}"
        if history and self._fewest_epochs() > remaining.epochs:
            allowed = f"{remaining.epochs:.3g}"
            return f"about {_about(self._fewest_epochs())} more would be needed, and max_epochs allows {allowed}"
        if remaining.seconds is not None and (remaining.usd is None or self._deadline_binds(remaining.seconds)):
            remains = f"{format_seconds(max(remaining.seconds, 0.0))} remains until the deadline"
            if not history:
                return f"no fleet can finish an epoch in time: {remains}"
            expected = self._fewest_seconds()
            least = format_seconds(expected * self._optimism(history))
            usual = f"about {_about(self.model.epochs_left)} more would take about {format_seconds(expected)}"
            return f"{usual}, {least} at best, and {remains}"
        if remaining.usd is None:
            return "no fleet can finish an epoch"
        needed = self.smallest_budget(problem, history)
        if needed is None or not math.isfinite(self.cheapest_usd):
            return f"no fleet can finish an epoch for the remaining {remaining.usd}"
        return (
            f"about {_about(self.model.epochs_left)} more would cost at least {Usd.of(f'{self.cheapest_usd:.2g}')}, and"
            f" {remaining.usd} remains; a budget of about {needed} would suffice"
        )

    def _deadline_binds(self, seconds: float) -> bool:
        """Whether the deadline is the binding limit: the fastest fleet would need more than `seconds`."""
        return self._fewest_seconds() * self.settings.time_margin > seconds


GUESS = "; a guess: too little is trained to know how fast the loss falls, or whether it reaches the target at all"


def relaxation(*, budget: float | None = None, seconds: float | None = None, guess: bool = False) -> Relaxation:
    """What would probably have sufficed, in dollars and seconds, rounded up to two digits."""
    usd = None if budget is None else Usd.of(_rounded_up(budget))
    deadline = None if seconds is None else math.ceil(_rounded_up(seconds))
    needs = [f"a budget of about {usd}"] if usd is not None else []
    needs += [f"a deadline of about {format_seconds(deadline)}"] if deadline is not None else []
    text = f"{' and '.join(needs)} would probably suffice{GUESS if guess else ''}"
    return Relaxation(text=text, budget=usd, deadline_seconds=deadline)


def _rounded_up(value: float) -> float:
    """Up to two digits."""
    step = 10.0 ** math.floor(math.log10(value) - 1)
    return round(math.ceil(value / step) * step, 6)


def _dollars(dollars: float) -> str:
    """In two digits, as an estimate."""
    return str(Usd.of(f"{dollars:.2g}"))


def _about(epochs: float) -> str:
    """`1 epoch`, `12 epochs`."""
    count = math.ceil(epochs - 0.05) if epochs > 1 else 1
    return "1 epoch" if count == 1 else f"{count} epochs"


def _smallest_mb(problem: FunctionProblem, history: tuple[Epoch, ...]) -> float:
    """The least safe memory: 10% more than epochs used; before the first epoch, half of the largest size."""
    used = [e.memory_share * e.fleet.memory_mb for e in history if e.memory_share is not None]
    if used:
        return min(1.1 * max(used), float(problem.memory_mb[-1]))
    if history:
        return float(min(e.fleet.memory_mb for e in history))
    return problem.memory_mb[-1] / 2
