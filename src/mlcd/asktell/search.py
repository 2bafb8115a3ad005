"""Ask what to try, try it yourself, tell the result: `mlcd.Search`."""

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
from mlcd.asktell.objective import Best, CustomValue, SearchObjective, value_of
from mlcd.asktell.prices import Prices
from mlcd.asktell.shown import html_of, rows_of, summary_of
from mlcd.asktell.state import FORMAT, State, read, write
from mlcd.deciders.search import SearchDecider
from mlcd.deciders.training import TrainingDecider
from mlcd.errors import BadInput, nearest
from mlcd.extras import require
from mlcd.jobs.given import GoalLike, Job, check_seed, job_spec
from mlcd.problem import Problem
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import Header
from mlcd.run.run import SearchRun
from mlcd.run.step import Request, Role, Step
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.space.declared import Knobs, Where
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import ZERO, Usd, parse_usd

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

B = TypeVar("B", bound=Plan | Best)
Clock = Callable[[], float]
Tried = Suggestion | Config | Mapping[str, str | int | float]
"""What identifies a trial in `tell`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingLimits:
    """What may still be used; None where there is no limit. Open asks count with their worst case.

    Below 0 if trials reported more than was authorised: it was paid, so it counts, and no further trial is suggested
    that does not fit.
    """

    usd: Usd | None
    seconds: float | None
    trials: int


class Search(Generic[B]):
    """Ask what to try, try it yourself, tell the result.

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
    a job, `trial_seconds` with knobs), because `ask` returns only what the ledger authorises.

    job      types and prices come from the catalog (`resources.infra: aws` or `sim/aws`) or from a measured table
             (`replay/FOLDER`); `goal` replaces its own
    clock    seconds, such as time.monotonic: a deadline is then measured on it from the first ask. Without one, time is
             what the trials report, those asked together counting as parallel.
    budget, deadline, strategy  replace the job's own; with knobs they limit the trials, and with known work
             also the work on the choice

    knobs          names and values. Numbers are ordered, on a logarithmic scale where they span a factor of 8 or more;
                   text, True and False are unordered. At most 200,000 combinations
    objective      maximize or minimize the `value` that trials report; or time, cost or knee of processing
                   `work_samples`, where trials report `samples_per_second`
    where          whether a combination may be chosen; called once for each
    usd_per_hour   of a configuration: a number, a mapping from the values of one knob, or a function. None or 0: money
                   is not counted. A number and a mapping are per node if `nodes` is a knob
    trial_seconds  the longest that a trial may take
    noise          relative deviation between two measurements of one configuration's throughput

    Raises BadInput naming the argument, also for a strategy that ignores the limits.
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
            _refuse_given(
                "only for knobs, not for a job",
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
            raise BadInput("knobs: conflict with job: give one of the two")
        _refuse_given("only for a job; with knobs use objective, budget and deadline", goal=goal)
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

    # ---- saving and loading

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a file that `load` continues from, open asks included, and returns its path.

        The file is JSON. It has the configurations that `where` allows and their prices, but no functions. Raises
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
        """The search that `save` wrote. Its next answers are the same as those of the saved search.

        A search with a clock needs one again. Its time continues from the save; the time in between does not count.
        Raises BadInput for a file that is not a saved search or is damaged. Nothing in the file is executed.
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

    # ---- its current state

    @property
    def problem(self) -> Problem:
        """The work, the configurations with their prices, the goal."""
        return self._run.problem

    @property
    def history(self) -> History:
        """The trials told so far, in order."""
        return self._run.history

    @property
    def open(self) -> tuple[Config, ...]:
        """The configurations that were asked and not told yet."""
        return tuple(step.config for step in self._run.in_flight)

    @property
    def best(self) -> B | None:
        """What would be chosen if the search ended now; None if there is nothing yet.

        For a custom value, the configuration with the best value, and that value; the first of equals. Otherwise the
        plan for the work on a measured configuration that fits the limits at its upper bound.
        """
        if not self._is_custom_value:
            return cast(B | None, self._decider.choice(self._run, self._elapsed()))
        measured = self.history.measured
        if not measured:
            return None
        trial = max(measured, key=lambda trial: trial.learned[-1].metric)
        return cast(B, Best(config=trial.config, value=self._value(trial)))

    @property
    def remaining(self) -> RemainingLimits:
        """Money, time and trials that are neither used nor committed to open asks.

        Told amounts count in full, even if a trial took longer or cost more than authorised: the limits hold only as
        long as no trial does.
        """
        ledger = self._decider.accounts.at(self._run, self._elapsed()).ledger
        return RemainingLimits(usd=ledger.usd_left, seconds=ledger.seconds_left, trials=self._room())

    def ask(self, count: int = 1) -> list[Suggestion]:
        """At most `count` trials to run now, each authorised together with all open ones.

        An empty list means that the search is done or, while asks are open, that there is nothing to add. A trial
        with a transient failure may be suggested again. Running out of money or time raises nothing; BadInput is raised
        for a count that is not a whole number above 0.
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
        """Report the speed or value of a trial. A trial that was not asked for counts as well.

        value            with objective maximize or minimize: the number, of any sign
        samples_per_second  with a job, or objective time, cost or knee
        seconds          from the order of the nodes to their release; optional for a custom value without limits
        usd              what it cost; None: price x seconds
        startup_seconds  the part of seconds before the first sample
        relative_error   standard error of the speed / speed; None: the job's `search.noise`, or `noise`

        Raises BadInput for a configuration outside the space or impossible numbers.
        """
        config = self._config("tell", config)
        taken = self._seconds("tell", seconds)
        custom: CustomValue | None = None
        if self._objective is not None and self._objective.is_custom_value:
            hint = f"only for throughput; with objective {self._objective} give value"
            _refuse_given(
                hint,
                "tell: ",
                samples_per_second=samples_per_second,
                startup_seconds=startup_seconds,
                relative_error=relative_error,
            )
            custom = CustomValue.of(self._objective, number("tell", "value", value))
            speed, startup, error = custom.speed, 0.0, 0.0
        else:
            _refuse_given("only for objective maximize or minimize; give samples_per_second", "tell: ", value=value)
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
                    learned=custom.learned if custom is not None else (),
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
        """Report a trial without a speed or value. Its time and cost count, and the search learns from its kind.

        kind  out-of-memory, no-capacity, launch-failed, spot-interrupted, hang, job-failed or lost

        Raises BadInput as `tell` does, and for an unknown kind.
        """
        kinds = [str(known) for known in FailureKind]
        if kind not in kinds:
            near = nearest(str(kind), kinds)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(
                f"tell_failure: kind: unknown kind of failure (got {str(kind)!r}); allowed: {', '.join(kinds)}{hint}"
            )
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

    # ---- showing it

    def to_frame(self) -> "pd.DataFrame":
        """A row per trial, open ones included: its knobs, what was told, why it was asked. Needs pandas.

        Raises MissingExtra, with the command that installs it, if pandas is not installed.
        """
        require("frame", "to_frame()")
        import pandas as pd  # noqa: PLC0415 - an optional dependency, imported where it is used

        return pd.DataFrame(rows_of(self._run, self._objective, counts_money=self._counts_money))

    def __repr__(self) -> str:
        best = self.best
        chosen = None if best is None else (best.config, best.value if isinstance(best, Best) else None)
        return f"<Search {summary_of(self._run, self._objective, chosen)}>"

    def _repr_html_(self) -> str:
        rows = rows_of(self._run, self._objective, counts_money=self._counts_money)
        return html_of(repr(self)[1:-1], rows)

    # ---- internals

    @property
    def _is_custom_value(self) -> bool:
        return self._objective is not None and self._objective.is_custom_value

    def _value(self, trial: Measurement) -> float:
        return value_of(self._objective or SearchObjective.MAXIMIZE, trial)

    def _seconds(self, what: str, seconds: float | None) -> float:
        nothing_counts = self._is_custom_value and not self.problem.goal.is_limited and not self._counts_money
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
        except TypeError:  # an unhashable value cannot be looked up
            row = None
        if row is None:
            shown = known if named else config
            whose = "job" if self._objective is None else "search"
            raise BadInput(f"{what}: {shown} is not one of the {whose}'s {len(self.problem.space)} configurations")
        return self.problem.space.configs[row]

    def _charge(self, what: str, config: Config, seconds: float, usd: Usd | str | float | None) -> Usd:
        if usd is None:
            moved = self.problem.move_to(config).trial_usd
            return self.problem.price(config).for_seconds(seconds) + moved if self._counts_money else ZERO
        if not self._counts_money:
            raise BadInput(f"{what}: usd: money is not counted: this search has no usd_per_hour")
        if isinstance(usd, Usd):
            return usd
        return parse_usd(usd if isinstance(usd, str) else number(what, "usd", usd))

    def _settle(self, trial: Trial) -> None:
        check_trial(trial)
        asked = next((step for step in self._run.in_flight if step.config == trial.config), None)
        if asked is None:  # it was not asked for, but it was paid
            paid = Authorisation(choice=trial.config, attempt=trial.attempt, usd=trial.usd, seconds=trial.seconds)
            price = self.problem.price(trial.config)
            asked = self._step(Request(role=Role.TRIAL, authorisation=paid, reason="not asked for", usd_per_hour=price))
            self._run = self._run.with_started([asked])
        self._run = self._run.with_ended(asked.number, trial)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn errors of values into BadInput."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{what}: {error}") from error


def _check_clock(clock: object) -> None:
    if clock is not None and not callable(clock):
        raise BadInput(f"clock: must be a function that returns seconds, such as time.monotonic (got {clock!r})")


def _refuse_given(hint: str, what: str = "", **given: object) -> None:
    """Raises BadInput for the first argument that is given: it conflicts with the others."""
    for name, value in given.items():
        if value is not None:
            raise BadInput(f"{what}{name}: {hint}")
