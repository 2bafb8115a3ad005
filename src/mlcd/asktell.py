"""Ask/tell: mlcd decides and keeps the limits, the caller runs the trials."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real

from mlcd.catalog import load_catalog
from mlcd.errors import BadInput, nearest
from mlcd.jobs.given import GoalLike, Job, check_seed, job_spec
from mlcd.jobs.setting import offered, replayed
from mlcd.jobs.train import strategy_of
from mlcd.ledger import Authorisation, Ledger, Refusal
from mlcd.problem import Problem
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.spec import TrainSpec
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import ZERO, Usd, parse_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What may still be used, None where there is no limit. Open asks count at their worst case.

    Below 0 when trials were told to have taken more than that: it was paid, so it is counted, and nothing more is
    handed out that does not fit.
    """

    usd: Usd | None
    seconds: float | None
    trials: int


class Search:
    """Ask what to try, try it yourself, tell what came of it.

        search = mlcd.Search("job.yaml")
        while suggestions := search.ask():
            for suggestion in suggestions:
                rate, seconds = my_trial(suggestion.config)
                search.tell(suggestion.config, samples_per_second=rate, seconds=seconds)
        print(search.best)

    Nothing is run, stored or spent here. Types and prices come from the catalog (`resources.infra: aws` or `sim/aws`)
    or from a measured table (`replay/FOLDER`). The limits hold as long as no trial takes more than its worst case
    (`search.trial` in the job), because none is handed out that the ledger refuses.

    clock  seconds, such as time.monotonic: a deadline then runs on it from the first ask on. Without one, time is
           what the trials are told to have taken, those asked together side by side.

    Raises BadInput for a job that cannot be searched, or a strategy that does not look at the limits.
    """

    def __init__(
        self,
        job: Job,
        seed: int = 0,
        *,
        goal: GoalLike | None = None,
        strategy: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        check_seed(seed)
        spec = job_spec(job, goal, strategy=strategy)
        self._strategy: Strategy = strategy_of(spec, seed)
        if not self._strategy.guarded:
            problem = "does not look at the limits; it cannot be asked"
            raise spec.error("search.strategy", problem, value=spec.search.strategy)
        self._problem: Problem = _problem(spec)
        self._clock = clock
        self._began: float | None = None
        self._trials: list[Trial] = []
        self._ends: list[float] = []
        self._open: dict[Config, tuple[Authorisation, float]] = {}

    @property
    def problem(self) -> Problem:
        """The work, the configurations with their prices, the goal."""
        return self._problem

    @property
    def history(self) -> History:
        """What was told so far, in order."""
        return History(tuple(self._trials))

    @property
    def open(self) -> tuple[Config, ...]:
        """What was asked and not told yet."""
        return tuple(self._open)

    @property
    def best(self) -> Plan | None:
        """The deployment to train on if the search ended now: measured, and sure to fit. None when none is."""
        ledger = self._ledger()
        plan = self._strategy.recommend(self._problem, ledger.history, ledger.left())
        measured = {trial.config for trial in ledger.history.measured}
        if plan is None or plan.config not in measured or isinstance(ledger.authorise_run(plan), Refusal):
            return None
        return plan

    @property
    def left(self) -> Remaining:
        """Money, time and trials that are neither used nor promised to open asks.

        What is told counts as told, also where a trial took longer or cost more than it was authorised for: the
        limits hold only as long as none does.
        """
        ledger = self._ledger()
        return Remaining(usd=ledger.usd_left, seconds=ledger.seconds_left, trials=self._room())

    def ask(self, count: int = 1) -> list[Suggestion]:
        """At most `count` trials to run now, each authorised with all open ones beside it.

        An empty list means that the search is done, or, while asks are open, that there is nothing to add to them.
        A trial that failed for a passing reason may come again. Never raises for want of money or time; raises
        BadInput for a count that is not a whole number above 0.
        """
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise BadInput(f"ask: count: must be a whole number, at least 1 (got {count!r})")
        if self._clock is not None and self._began is None:
            self._began = self._clock()
        count = min(int(count), self._room())
        if count < 1:
            return []
        ledger = self._ledger()
        again = ledger.history.to_retry(self._problem.trial.retries)
        wanted = [retry for retry in again if retry.config not in self._open][:count]
        if len(wanted) < count:
            left = ledger.left()
            allowed = left.allowed.copy()
            for config in (*self._open, *(suggestion.config for suggestion in wanted)):
                allowed[self._problem.space.index[config]] = False
            left = replace(left, allowed=allowed)
            wanted += self._strategy.suggest(self._problem, ledger.history, left, count - len(wanted))
        granted = []
        for suggestion in wanted:
            answer = self._ledger().authorise(suggestion.config)
            if isinstance(answer, Authorisation) and suggestion.config not in self._open:
                self._open[suggestion.config] = (answer, ledger.elapsed_seconds)
                granted.append(suggestion)
        return granted

    def tell(
        self,
        config: Config | Mapping[str, str | int | float],
        *,
        samples_per_second: float,
        seconds: float,
        usd: Usd | str | float | None = None,
        startup_seconds: float = 0.0,
        relative_error: float | None = None,
    ) -> None:
        """A trial gave a speed. It may be one that was not asked for; it is counted all the same.

        seconds          from the order of the nodes to their release
        usd              what it cost; None is nodes x price x seconds
        startup_seconds  of it, before the first sample
        relative_error   standard error of the speed over the speed; None takes the job's `search.noise`

        Raises BadInput for a configuration outside the space or numbers that cannot be.
        """
        config = self._config("tell", config)
        error = self._problem.noise if relative_error is None else _number("tell", "relative_error", relative_error)
        seconds = _number("tell", "seconds", seconds)
        with _refusing("tell"):
            self._settle(
                Measurement(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    samples_per_second=_number("tell", "samples_per_second", samples_per_second),
                    relative_error=error,
                    iterations=1,
                    startup_seconds=_number("tell", "startup_seconds", startup_seconds),
                    seconds=seconds,
                    usd=self._charge("tell", config, seconds, usd),
                )
            )

    def tell_failure(
        self,
        config: Config | Mapping[str, str | int | float],
        *,
        kind: FailureKind | str,
        seconds: float,
        message: str = "",
        usd: Usd | str | float | None = None,
    ) -> None:
        """A trial gave no speed; what it took is counted, and the search learns from its kind.

        kind  out-of-memory, no-capacity, launch-failed, spot-interrupted, hang, job-failed or lost

        Raises BadInput as `tell` does, and for an unknown kind.
        """
        kinds = [str(known) for known in FailureKind]
        if kind not in kinds:
            near = nearest(str(kind), kinds)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"no kind of failure: {str(kind)!r}; allowed: {', '.join(kinds)}{hint}")
        config = self._config("tell_failure", config)
        seconds = _number("tell_failure", "seconds", seconds)
        if not isinstance(message, str):
            raise BadInput(f"tell_failure: message: must be text (got {message!r})")
        with _refusing("tell_failure"):
            self._settle(
                Failure(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    kind=FailureKind(kind),
                    message=message,
                    seconds=seconds,
                    usd=self._charge("tell_failure", config, seconds, usd),
                )
            )

    # ---- inside

    def _room(self) -> int:
        return max(0, self._problem.max_trials - len(self._trials) - len(self._open))

    def _elapsed(self) -> float:
        if self._clock is None:
            return max(self._ends, default=0.0)
        return 0.0 if self._began is None else max(self._clock() - self._began, 0.0)

    def _ledger(self) -> Ledger:
        return Ledger(
            problem=self._problem,
            history=self.history,
            spent=sum((trial.usd for trial in self._trials), ZERO),
            elapsed_seconds=self._elapsed(),
            open=tuple(leave for leave, _ in self._open.values()),
        )

    def _config(self, what: str, config: Config | Mapping[str, str | int | float]) -> Config:
        if not isinstance(config, Config | Mapping):
            allowed = "a suggestion's config, or {'instance': ..., 'nodes': ...}"
            raise BadInput(f"{what}: config: not a configuration (got {config!r}); allowed: {allowed}")
        given = config.as_dict() if isinstance(config, Config) else config
        knobs = [knob.name for knob in self._problem.space.knobs]
        known = Config(tuple((name, given[name]) for name in knobs if name in given))
        named = len(known.values) == len(given) == len(knobs)
        try:
            row = self._problem.space.index.get(known) if named else None
        except TypeError:  # a value that is no text and no number cannot be looked up
            row = None
        if row is None:
            shown = known if named else config
            raise BadInput(f"{what}: {shown} is not one of the job's {len(self._problem.space)} configurations")
        return self._problem.space.configs[row]

    def _charge(self, what: str, config: Config, seconds: float, usd: Usd | str | float | None) -> Usd:
        if usd is None:
            return self._problem.price(config).for_seconds(seconds)
        if isinstance(usd, Usd):
            return usd
        return parse_usd(usd if isinstance(usd, str) else _number(what, "usd", usd))

    def _settle(self, trial: Trial) -> None:
        _, started = self._open.pop(trial.config, (None, self._elapsed()))
        self._trials.append(trial)
        self._ends.append(started + trial.seconds)


def _number(what: str, name: str, value: float) -> float:
    """`value`, whatever kind of number it is. Raises BadInput for what is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BadInput(f"{what}: {name}: must be a number (got {value!r})")
    return float(value)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Values that refuse themselves as mistakes of whoever called."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{what}: {error}") from error


def _problem(spec: TrainSpec) -> Problem:
    """A cloud's own name, or `sim/` before it, means its catalog here; any other infra must be a measured table."""
    catalog = load_catalog()
    infra = spec.resources.infra
    folder = infra.removeprefix("replay/")
    if folder and folder != infra:
        return replayed(spec, folder, catalog).problem
    cloud = infra.removeprefix("sim/")
    if cloud not in catalog.clouds:
        raise spec.error(
            "resources.infra",
            "there is no such cloud in the catalog",
            value=infra,
            allowed=", ".join((*catalog.clouds, "replay/FOLDER")),
            nearest=nearest(cloud.lower(), catalog.clouds),
        )
    return offered(spec, cloud, catalog)
