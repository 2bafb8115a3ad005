"""Ask/tell: mlcd decides and keeps the limits, the caller runs the trials."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

from mlcd.catalog import load_catalog
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.errors import BadInput, nearest
from mlcd.jobs.given import GoalLike, Job, check_seed, job_spec
from mlcd.jobs.setting import offered, replayed
from mlcd.jobs.train import strategy_of
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.run.step import Request, Role, Step
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.spec import TrainSpec
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import Usd, parse_usd
from mlcd.version import __version__


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
        strategy_object: Strategy = strategy_of(spec, seed)
        if not strategy_object.guarded:
            problem = "does not look at the limits; it cannot be asked"
            raise spec.error("search.strategy", problem, value=spec.search.strategy)
        self._decider = SearchDecider(strategy=strategy_object, aftermath=TrainingDecider())
        self._clock = clock
        self._began: float | None = None
        self._run: SearchRun = SearchRun(
            header=Header(
                run_id=spec.name,
                created="",
                kind=Kind.TRAIN,
                cloud=spec.resources.infra,
                simulated=False,
                strategy=spec.search.strategy,
                seed=seed,
                version=__version__,
                catalog_date="",
            ),
            problem=_problem(spec),
        )

    @property
    def problem(self) -> Problem:
        """The work, the configurations with their prices, the goal."""
        return self._run.problem

    @property
    def history(self) -> History:
        """What was told so far, in order."""
        return self._run.history

    @property
    def open(self) -> tuple[Config, ...]:
        """What was asked and not told yet."""
        return tuple(step.config for step in self._run.in_flight)

    @property
    def best(self) -> Plan | None:
        """The deployment to train on if the search ended now: measured, and sure to fit. None when none is."""
        return self._decider.choice(self._run, self._elapsed())

    @property
    def left(self) -> Remaining:
        """Money, time and trials that are neither used nor promised to open asks.

        What is told counts as told, also where a trial took longer or cost more than it was authorised for: the
        limits hold only as long as none does.
        """
        ledger = self._decider.accounts.at(self._run, self._elapsed()).ledger
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
        requests, _ = self._decider.round(self._run, self._elapsed(), int(count))
        for request in requests:
            self._run = self._run.with_started([self._step(request)])
        return [Suggestion(config=request.authorisation.config, reason=request.reason) for request in requests]

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
        error = self.problem.noise if relative_error is None else _number("tell", "relative_error", relative_error)
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
        return max(0, self.problem.max_trials - len(self._run.steps))

    def _elapsed(self) -> float:
        if self._clock is None:
            return self._run.step_seconds
        return 0.0 if self._began is None else max(self._clock() - self._began, 0.0)

    def _step(self, request: Request) -> Step:
        number = len(self._run.steps) + 1
        return Step(
            number=number,
            round=number,
            role=request.role,
            authorisation=request.authorisation,
            reason=request.reason,
            usd_per_hour=request.usd_per_hour,
            started_seconds=self._elapsed(),
            started_at=0.0,
        )

    def _config(self, what: str, config: Config | Mapping[str, str | int | float]) -> Config:
        if not isinstance(config, Config | Mapping):
            allowed = "a suggestion's config, or {'instance': ..., 'nodes': ...}"
            raise BadInput(f"{what}: config: not a configuration (got {config!r}); allowed: {allowed}")
        given = config.as_dict() if isinstance(config, Config) else config
        knobs = [knob.name for knob in self.problem.space.knobs]
        known = Config(tuple((name, given[name]) for name in knobs if name in given))
        named = len(known.values) == len(given) == len(knobs)
        try:
            row = self.problem.space.index.get(known) if named else None
        except TypeError:  # a value that is no text and no number cannot be looked up
            row = None
        if row is None:
            shown = known if named else config
            raise BadInput(f"{what}: {shown} is not one of the job's {len(self.problem.space)} configurations")
        return self.problem.space.configs[row]

    def _charge(self, what: str, config: Config, seconds: float, usd: Usd | str | float | None) -> Usd:
        if usd is None:
            return self.problem.price(config).for_seconds(seconds)
        if isinstance(usd, Usd):
            return usd
        return parse_usd(usd if isinstance(usd, str) else _number(what, "usd", usd))

    def _settle(self, trial: Trial) -> None:
        asked = next((step for step in self._run.in_flight if step.config == trial.config), None)
        if asked is None:  # it was not asked for: paid all the same
            told = Authorisation(choice=trial.config, attempt=trial.attempt, usd=trial.usd, seconds=trial.seconds)
            price = self.problem.price(trial.config)
            asked = self._step(Request(role=Role.TRIAL, authorisation=told, reason="not asked for", usd_per_hour=price))
            self._run = self._run.with_started([asked])
        self._run = self._run.with_ended(asked.number, trial)


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
