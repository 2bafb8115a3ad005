"""Ask what to try, try it yourself, tell what came of it: `mlcd.Search`."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from mlcd.asktell.arguments import number
from mlcd.asktell.bounds import check_trial
from mlcd.asktell.declared import declared_problem, declared_strategy, default_strategy
from mlcd.asktell.job import header_of, job_problem, job_strategy, stored_strategy
from mlcd.asktell.knobs import Knobs, Prices, Where
from mlcd.asktell.objective import Best, SearchObjective, Told, value_of
from mlcd.asktell.shown import html_of, rows_of, words_of
from mlcd.asktell.state import FORMAT, State, read, write
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.errors import BadInput, nearest
from mlcd.jobs.given import GoalLike, Job, check_seed, job_spec
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import Header
from mlcd.run.run import SearchRun
from mlcd.run.step import Request, Role, Step
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import ZERO, Usd, parse_usd

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

B = TypeVar("B", bound=Plan | Best)
Clock = Callable[[], float]
Tried = Suggestion | Config | Mapping[str, str | int | float]
"""What a trial was of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingLimits:
    """What may still be used, None where there is no limit. Open asks count at their worst case.

    Below 0 when trials were told to have taken more than that: it was paid, so it is counted, and nothing more is
    handed out that does not fit.
    """

    usd: Usd | None
    seconds: float | None
    trials: int


class Search(Generic[B]):
    """Ask what to try, try it yourself, tell what came of it.

        search = mlcd.Search("job.yaml")
        while suggestions := search.ask():
            for suggestion in suggestions:
                rate, seconds = my_trial(suggestion.config)
                search.tell(suggestion, samples_per_second=rate, seconds=seconds)
        print(search.best)

    Or over knobs of your own, for any number:

        search = mlcd.Search(
            knobs={"workers": range(1, 9), "precision": ["fp32", "bf16"]}, objective="maximize", max_trials=12
        )
        while suggestions := search.ask():
            for suggestion in suggestions:
                search.tell(suggestion, value=my_score(**suggestion.config.as_dict()))
        print(search.best.config, search.best.value)

    Nothing is run or spent here. The limits hold as long as no trial takes more than its worst case (`search.trial` in
    a job, `trial_seconds` beside knobs), because none is handed out that the ledger refuses.

    job      types and prices come from the catalog (`resources.infra: aws` or `sim/aws`) or from a measured table
             (`replay/FOLDER`); `goal` stands in place of its own
    clock    seconds, such as time.monotonic: a deadline then runs on it from the first ask on. Without one, time is
             what the trials are told to have taken, those asked together side by side.
    budget, deadline, strategy  in place of the job's own; beside knobs they limit the trials, and with a known work
             also what the choice takes for it

    knobs          names and values. Numbers are ordered, on a logarithmic scale where they span a factor of 8 or more;
                   text, True and False are told apart. At most 200,000 combinations
    objective      maximize or minimize the `value` that trials are told with; or time, cost or knee of processing
                   `work_samples`, whose trials are told with `samples_per_second`
    where          whether a combination may be chosen; asked once for each
    usd_per_hour   of a configuration: a number, a mapping from the values of one knob, or a function. None or 0: money
                   is not counted. A number and a mapping are of one node where `nodes` is a knob
    trial_seconds  the longest that a trial may take
    noise          relative deviation between two measurements of one configuration's throughput

    Raises BadInput naming the argument, also for a strategy that does not look at the limits.
    """

    @overload
    def __init__(
        self: "Search[Plan]",
        job: Job,
        seed: int = 0,
        *,
        goal: GoalLike | None = None,
        strategy: str | None = None,
        clock: Clock | None = None,
        budget: Usd | str | float | None = None,
        deadline: str | timedelta | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "Search[Best]",
        *,
        seed: int = 0,
        strategy: str | None = None,
        clock: Clock | None = None,
        knobs: Knobs,
        objective: Literal["maximize", "minimize"],
        where: Where | None = None,
        usd_per_hour: Prices = None,
        trial_seconds: float | None = None,
        budget: Usd | str | float | None = None,
        deadline: str | timedelta | None = None,
        max_trials: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "Search[Plan]",
        *,
        seed: int = 0,
        strategy: str | None = None,
        clock: Clock | None = None,
        knobs: Knobs,
        objective: Literal["time", "cost", "knee"],
        work_samples: float,
        trial_seconds: float,
        where: Where | None = None,
        usd_per_hour: Prices = None,
        budget: Usd | str | float | None = None,
        deadline: str | timedelta | None = None,
        max_trials: int | None = None,
        noise: float | None = None,
    ) -> None: ...
    def __init__(
        self,
        job: Job | None = None,
        seed: int = 0,
        *,
        goal: GoalLike | None = None,
        strategy: str | None = None,
        clock: Clock | None = None,
        knobs: Knobs | None = None,
        objective: str | None = None,
        where: Where | None = None,
        work_samples: float | None = None,
        usd_per_hour: Prices = None,
        trial_seconds: float | None = None,
        budget: Usd | str | float | None = None,
        deadline: str | timedelta | None = None,
        max_trials: int | None = None,
        noise: float | None = None,
    ) -> None:
        check_seed(seed)
        _check_clock(clock)
        if knobs is None:
            _refuse_others(
                "goes with knobs, not with a job",
                objective=objective,
                where=where,
                work_samples=work_samples,
                usd_per_hour=usd_per_hour,
                trial_seconds=trial_seconds,
                max_trials=max_trials,
                noise=noise,
            )
            if job is None:
                raise BadInput("job: give a job, or knobs and an objective")
            spec = job_spec(job, goal, strategy=strategy, budget=budget, deadline=deadline)
            header = header_of(spec.name, spec.resources.infra, spec.search.strategy, seed)
            chosen = job_strategy(spec, seed)
            self._begin(header, job_problem(spec), chosen, objective=None, counts_money=True, clock=clock)
            return
        if job is not None:
            raise BadInput("knobs: go without a job: give one of the two")
        _refuse_others("goes with a job; beside knobs use objective, budget and deadline", goal=goal)
        sought = SearchObjective.of(objective)
        problem, counts_money = declared_problem(
            knobs=knobs,
            objective=sought,
            where=where,
            work_samples=work_samples,
            usd_per_hour=usd_per_hour,
            trial_seconds=trial_seconds,
            budget=budget,
            deadline=deadline,
            max_trials=max_trials,
            noise=noise,
        )
        chosen = declared_strategy(strategy, seed=seed, problem=problem, objective=sought)
        header = header_of(problem.name, "", strategy or default_strategy(problem, sought), seed)
        self._begin(header, problem, chosen, objective=sought, counts_money=counts_money, clock=clock)

    def _begin(
        self,
        header: Header,
        problem: Problem,
        strategy: Strategy,
        *,
        objective: SearchObjective | None,
        counts_money: bool,
        clock: Clock | None,
    ) -> None:
        self._decider = SearchDecider(strategy=strategy, aftermath=TrainingDecider())
        self._objective = objective
        self._counts_money = counts_money
        self._clock = clock
        self._began: float | None = None
        self._run: SearchRun = SearchRun(header=header, problem=problem)

    # ---- its state

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes what `load` continues from, open asks included, and returns the path.

        A JSON file. Functions are not stored: the configurations that `where` left and their prices are. Raises
        OSError.
        """
        clocked = None if self._clock is None or self._began is None else self._elapsed()
        return write(
            path,
            State(
                format=FORMAT,
                header=self._run.header,
                problem=self.problem,
                objective=self._objective,
                counts_money=self._counts_money,
                clock_seconds=clocked,
                steps=self._run.steps,
            ),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, clock: Clock | None = None) -> "Search[Any]":
        """The search that `save` wrote: what it answers next is what it would have answered.

        A search that runs on a clock needs one again; it continues where it was saved, so that the time between is not
        counted. Raises BadInput for a file that is no saved search, or is damaged; it runs nothing that is in it.
        """
        _check_clock(clock)
        state = read(path)
        if state.clock_seconds is not None and clock is None:
            raise BadInput("clock: this search runs on a clock: give one, such as time.monotonic")
        search: Search[Any] = cls.__new__(cls)
        search._begin(
            state.header,
            state.problem,
            stored_strategy(state),
            objective=state.objective,
            counts_money=state.counts_money,
            clock=clock,
        )
        search._run = state.run
        if clock is not None and state.steps:
            elapsed = state.run.step_seconds if state.clock_seconds is None else state.clock_seconds
            search._began = clock() - elapsed
        return search

    # ---- how it stands

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
    def best(self) -> B | None:
        """What would be chosen if the search ended now. None where there is nothing yet.

        Of an own number, the configuration with the best value that was told, and that value; of several as good, the
        first. Else the plan for the work on a configuration that was measured and is sure to fit.
        """
        if not self._is_own_number:
            return cast(B | None, self._decider.choice(self._run, self._elapsed()))
        measured = self.history.measured
        if not measured:
            return None
        trial = max(measured, key=lambda trial: trial.learned[-1].metric)
        return cast(B, Best(config=trial.config, value=self._value(trial)))

    @property
    def remaining(self) -> RemainingLimits:
        """Money, time and trials that are neither used nor promised to open asks.

        What is told counts as told, also where a trial took longer or cost more than it was authorised for: the
        limits hold only as long as none does.
        """
        ledger = self._decider.accounts.at(self._run, self._elapsed()).ledger
        return RemainingLimits(usd=ledger.usd_left, seconds=ledger.seconds_left, trials=self._room())

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
        config: Tried,
        *,
        value: float | None = None,
        samples_per_second: float | None = None,
        seconds: float | None = None,
        usd: Usd | str | float | None = None,
        startup_seconds: float | None = None,
        relative_error: float | None = None,
    ) -> None:
        """A trial gave a speed, or a value. It may be one that was not asked for; it is counted all the same.

        value            with objective maximize or minimize: the number, of any sign
        samples_per_second  with a job, or objective time, cost or knee
        seconds          from the order of the nodes to their release; may be left out for an own number without limits
        usd              what it cost; None is the price x seconds
        startup_seconds  of them, before the first sample
        relative_error   standard error of the speed over the speed; None takes the job's `search.noise`, or `noise`

        Raises BadInput for a configuration outside the space or numbers that cannot be.
        """
        config = self._config("tell", config)
        taken = self._seconds("tell", seconds)
        told: Told | None = None
        if self._objective is not None and self._objective.is_own_number:
            hint = f"goes with throughput; with objective {self._objective} give value"
            _refuse_others(
                hint,
                "tell: ",
                samples_per_second=samples_per_second,
                startup_seconds=startup_seconds,
                relative_error=relative_error,
            )
            told = Told.of(self._objective, number("tell", "value", value))
            speed, startup, error = told.speed, 0.0, 0.0
        else:
            _refuse_others("goes with objective maximize or minimize; give samples_per_second", "tell: ", value=value)
            speed = number("tell", "samples_per_second", samples_per_second)
            startup = number("tell", "startup_seconds", 0.0 if startup_seconds is None else startup_seconds)
            error = number("tell", "relative_error", self.problem.noise if relative_error is None else relative_error)
        with _refusing("tell"):
            self._settle(
                Measurement(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    samples_per_second=speed,
                    relative_error=error,
                    iterations=1,
                    startup_seconds=startup,
                    seconds=taken,
                    usd=self._charge("tell", config, taken, usd),
                    learned=told.learned if told is not None else (),
                )
            )

    def tell_failure(
        self,
        config: Tried,
        *,
        kind: FailureKind | str,
        seconds: float | None = None,
        message: str = "",
        usd: Usd | str | float | None = None,
    ) -> None:
        """A trial gave no speed, or no value; what it took is counted, and the search learns from its kind.

        kind  out-of-memory, no-capacity, launch-failed, spot-interrupted, hang, job-failed or lost

        Raises BadInput as `tell` does, and for an unknown kind.
        """
        kinds = [str(known) for known in FailureKind]
        if kind not in kinds:
            near = nearest(str(kind), kinds)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"no kind of failure: {str(kind)!r}; allowed: {', '.join(kinds)}{hint}")
        config = self._config("tell_failure", config)
        taken = self._seconds("tell_failure", seconds)
        if not isinstance(message, str):
            raise BadInput(f"tell_failure: message: must be text (got {message!r})")
        with _refusing("tell_failure"):
            self._settle(
                Failure(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    kind=FailureKind(kind),
                    message=message,
                    seconds=taken,
                    usd=self._charge("tell_failure", config, taken, usd),
                )
            )

    # ---- how it looks

    def to_frame(self) -> "pd.DataFrame":
        """A row a trial, those asked and not told yet too: its knobs, what was told, why it was asked. Needs pandas.

        Raises BadInput where pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - an optional dependency, imported where it is used
        except ImportError as error:
            raise BadInput("to_frame: pandas is not installed; pip install pandas") from error
        return pd.DataFrame(rows_of(self._run, self._objective, counts_money=self._counts_money))

    def __repr__(self) -> str:
        best = self.best
        chosen = None if best is None else (best.config, best.value if isinstance(best, Best) else None)
        return f"<Search {words_of(self._run, self._objective, chosen)}>"

    def _repr_html_(self) -> str:
        rows = rows_of(self._run, self._objective, counts_money=self._counts_money)
        return html_of(repr(self)[1:-1], rows)

    # ---- inside

    @property
    def _is_own_number(self) -> bool:
        return self._objective is not None and self._objective.is_own_number

    def _value(self, trial: Measurement) -> float:
        return value_of(self._objective or SearchObjective.MAXIMIZE, trial)

    def _seconds(self, what: str, seconds: float | None) -> float:
        nothing_counts = self._is_own_number and not self.problem.goal.is_limited and not self._counts_money
        if seconds is None and nothing_counts:
            return 0.0
        return number(what, "seconds", seconds)

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

    def _config(self, what: str, config: Tried) -> Config:
        if isinstance(config, Suggestion):
            config = config.config
        if not isinstance(config, Config | Mapping):
            form = ", ".join(f"{knob.name!r}: ..." for knob in self.problem.space.knobs)
            allowed = f"a suggestion, its config, or {{{form}}}"
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
            whose = "job" if self._objective is None else "search"
            raise BadInput(f"{what}: {shown} is not one of the {whose}'s {len(self.problem.space)} configurations")
        return self.problem.space.configs[row]

    def _charge(self, what: str, config: Config, seconds: float, usd: Usd | str | float | None) -> Usd:
        if usd is None:
            return self.problem.price(config).for_seconds(seconds) if self._counts_money else ZERO
        if not self._counts_money:
            raise BadInput(f"{what}: usd: money is not counted: this search has no usd_per_hour")
        if isinstance(usd, Usd):
            return usd
        return parse_usd(usd if isinstance(usd, str) else number(what, "usd", usd))

    def _settle(self, trial: Trial) -> None:
        check_trial(trial)
        asked = next((step for step in self._run.in_flight if step.config == trial.config), None)
        if asked is None:  # it was not asked for: paid all the same
            told = Authorisation(choice=trial.config, attempt=trial.attempt, usd=trial.usd, seconds=trial.seconds)
            price = self.problem.price(trial.config)
            asked = self._step(Request(role=Role.TRIAL, authorisation=told, reason="not asked for", usd_per_hour=price))
            self._run = self._run.with_started([asked])
        self._run = self._run.with_ended(asked.number, trial)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Values that refuse themselves as mistakes of whoever called."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{what}: {error}") from error


def _check_clock(clock: object) -> None:
    if clock is not None and not callable(clock):
        raise BadInput(f"clock: must be a function that returns seconds, such as time.monotonic (got {clock!r})")


def _refuse_others(hint: str, what: str = "", **given: object) -> None:
    """Raises BadInput for the first argument that is given and does not go with the others."""
    for name, value in given.items():
        if value is not None:
            raise BadInput(f"{what}{name}: {hint}")
