"""mlcd from Python: `train` and `resume` give a `Result`; `Search` is for those who run the trials themselves."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast

from mlcd.catalog import load_catalog
from mlcd.errors import BadInput, nearest
from mlcd.events import Observer, ignore
from mlcd.goal import Goal
from mlcd.jobs.train import prepare
from mlcd.jobs.train import resume as resume_job
from mlcd.jobs.train import train as train_job
from mlcd.ledger import Authorisation, Ledger, Refusal
from mlcd.problem import Problem
from mlcd.report.as_json import record_json
from mlcd.report.html import html_report
from mlcd.report.pareto import pareto
from mlcd.report.pictures import PictureKind, picture
from mlcd.report.progress import ProgressLines
from mlcd.report.receipt import Receipt, receipt
from mlcd.report.verdict import verdict
from mlcd.search.strategy import Strategy
from mlcd.space import Config
from mlcd.spec import TrainSpec, parse_goal, parse_train, spec_from_mapping, with_overrides
from mlcd.spec.document import document, read_text
from mlcd.store.store import Store
from mlcd.store.store import home as default_home
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Suggestion, Trial
from mlcd.units import MICROS, ZERO, Usd, parse_usd

__all__ = ["Job", "Picture", "Remaining", "Result", "Search", "resume", "train"]

Job = str | os.PathLike[str] | Mapping[str, object] | TrainSpec
"""A job file's path, its text (a str with a line break in it), its fields as a mapping, or a parsed job."""

GoalLike = Goal | Mapping[str, object] | str
"""`{"minimize": "time", "budget": "100 USD"}`, the same as YAML, just `"time"`, or a Goal."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG. A notebook shows it by itself."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file and returns its path. Raises OSError."""
        file = Path(path)
        file.write_text(self.svg, encoding="utf-8")
        return file


@dataclass(frozen=True)
class Result:
    """A run as the store has it. Printing it gives the verdict."""

    record: RunRecord

    @property
    def run_id(self) -> str:
        """The name for `resume` and for `mlcd show`."""
        return self.record.run_id

    @property
    def status(self) -> Status:
        """How it ended; "nothing fits" is a status and no exception."""
        return self.record.status

    @property
    def best(self) -> Plan | None:
        """The deployment chosen, with its predicted and worst time and money; None when nothing fits."""
        return self.record.choice

    @property
    def trials(self) -> tuple[TrialRow, ...]:
        """Every trial in order, the failed ones too."""
        return self.record.rows

    @property
    def receipt(self) -> Receipt:
        """What search and training took, the caps, what is left, what was saved."""
        return receipt(self.record)

    def explain(self) -> str:
        """The verdict in words: the choice, the receipt, why not the others, a small plot."""
        return verdict(self.record)

    def pareto(self) -> tuple[Plan, ...]:
        """The measured deployments that no other beats in both time and money, fastest first."""
        return pareto(self.record)

    def plot(self, kind: str = "speed") -> Picture:
        """A picture: `speed` over nodes with the search path, `money` over trials, or the time-money `tradeoff`.

        Raises BadInput for another kind.
        """
        kinds = [str(known) for known in PictureKind]
        if kind not in kinds:
            raise BadInput(f"there is no picture {kind!r}; allowed: {', '.join(kinds)}{_meant(kind, kinds)}")
        return Picture(picture(self.record, kind))

    def to_json(self) -> str:
        """The same JSON text as `mlcd show RUN -o json`; docs/output.md has its fields."""
        return json.dumps(record_json(self.record), indent=2, ensure_ascii=False, allow_nan=False)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the HTML report and returns its path. Raises OSError."""
        file = Path(path)
        file.write_text(html_report(self.record), encoding="utf-8")
        return file

    def __str__(self) -> str:
        return self.explain()


def train(
    job: Job,
    *,
    goal: GoalLike | None = None,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: int | None = None,
    seed: int = 0,
    home: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Result:
    """Search, choose and train, inside the job's limits; the same as `mlcd train`.

    goal      in place of the job's own; budget and deadline then change that
    home      where runs are kept; None is $MLCD_HOME, else ~/.mlcd
    progress  True writes progress lines to standard error

    Raises BadInput (SpecError, CatalogError), ProviderError, StoreError, and Interrupted on Ctrl-C.
    """
    spec = _spec(job, goal, on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel)
    _check_seed(seed)
    with Store(_home(home)) as store:
        return Result(train_job(spec, store=store, seed=seed, observer=_observer(progress)))


def resume(run_id: str, *, home: str | os.PathLike[str] | None = None, progress: bool = False) -> Result:
    """Go on with a run; no finished trial is run or paid again. A finished run is only read.

    Raises what `train` raises, and RunBusy where another process works on that run.
    """
    with Store(_home(home)) as store:
        return Result(resume_job(run_id, store=store, observer=_observer(progress)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What may still be used, None where there is no limit. Open asks count at their worst case."""

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
        _check_seed(seed)
        spec = _unattended(_spec(job, goal, strategy=strategy))
        prepared = prepare(spec, seed=seed)
        if not prepared.strategy.guarded:
            raise BadInput(f"search.strategy: {spec.search.strategy} does not look at the limits; it cannot be asked")
        self._problem: Problem = replace(prepared.setting.problem, blueprint=None)
        self._strategy: Strategy = prepared.strategy
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
        """Money, time and trials that are neither used nor promised to open asks."""
        ledger = self._ledger()
        return Remaining(usd=ledger.usd_left, seconds=ledger.seconds_left, trials=self._room())

    def ask(self, count: int = 1) -> list[Suggestion]:
        """At most `count` trials to run now, each authorised with all open ones beside it.

        An empty list means that the search is done, or, while asks are open, that there is nothing to add to them.
        A trial that failed for a passing reason may come again. Never raises for want of money or time.
        """
        if self._clock is not None and self._began is None:
            self._began = self._clock()
        count = min(count, self._room())
        if count < 1:
            return []
        ledger = self._ledger()
        wanted = list(self._retries())[:count]
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
        config = self._config(config)
        error = self._problem.noise if relative_error is None else relative_error
        with _refusing("tell"):
            self._settle(
                Measurement(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    samples_per_second=samples_per_second,
                    relative_error=error,
                    iterations=1,
                    startup_seconds=startup_seconds,
                    seconds=seconds,
                    usd=self._charge(config, seconds, usd),
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
            raise BadInput(f"no kind of failure: {str(kind)!r}; allowed: {', '.join(kinds)}{_meant(str(kind), kinds)}")
        config = self._config(config)
        with _refusing("tell_failure"):
            self._settle(
                Failure(
                    config=config,
                    attempt=self.history.attempts(config) + 1,
                    kind=FailureKind(kind),
                    message=message,
                    seconds=seconds,
                    usd=self._charge(config, seconds, usd),
                )
            )

    # ---- inside

    def _room(self) -> int:
        return max(0, self._problem.max_trials - len(self._trials) - len(self._open))

    def _retries(self) -> list[Suggestion]:
        last = {trial.config: trial for trial in self._trials}
        return [
            Suggestion(config=config, reason=f"again, after: {trial.message or trial.kind}")
            for config, trial in last.items()
            if isinstance(trial, Failure)
            and trial.kind.is_transient
            and trial.attempt <= self._problem.trial.retries
            and config not in self._open
        ]

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

    def _config(self, config: Config | Mapping[str, str | int | float]) -> Config:
        known = config if isinstance(config, Config) else Config.of(config)
        if known not in self._problem.space:
            raise BadInput(f"{known} is not one of the job's {len(self._problem.space)} configurations")
        return known

    def _charge(self, config: Config, seconds: float, usd: Usd | str | float | None) -> Usd:
        if usd is None:
            return self._problem.price(config).for_seconds(seconds)
        return usd if isinstance(usd, Usd) else parse_usd(usd)

    def _settle(self, trial: Trial) -> None:
        _, started = self._open.pop(trial.config, (None, self._elapsed()))
        self._trials.append(trial)
        self._ends.append(started + trial.seconds)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Values that refuse themselves as mistakes of whoever called."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{what}: {error}") from error


def _spec(
    job: Job,
    goal: GoalLike | None,
    *,
    on: str | None = None,
    budget: str | float | Usd | None = None,
    deadline: str | timedelta | None = None,
    strategy: str | None = None,
    parallel: int | None = None,
) -> TrainSpec:
    spec = job if isinstance(job, TrainSpec) else _parsed(job, None if goal is None else parse_goal(goal))
    if isinstance(job, TrainSpec) and goal is not None:
        spec = replace(_parsed(spec.source, parse_goal(goal)), file=spec.file, overrides=())
        kept = dict(job.overrides)
        spec = with_overrides(spec, on=kept.get("on"), strategy=kept.get("strategy"), parallel=kept.get("parallel"))
    if isinstance(budget, Usd):
        budget = f"{Decimal(budget.micros) / MICROS:f} USD"
    if isinstance(deadline, timedelta):
        deadline = f"{Decimal(repr(deadline.total_seconds())):f}s"
    return with_overrides(spec, on=on, budget=budget, deadline=deadline, strategy=strategy, parallel=parallel)


def _parsed(job: str | os.PathLike[str] | Mapping[str, object], goal: Goal | None) -> TrainSpec:
    """The job, with `goal` in place of its own: its source says so too, so that the run can be repeated from it."""
    if isinstance(job, Mapping):
        return spec_from_mapping(job if goal is None else {**job, "goal": goal})
    is_text = isinstance(job, str) and "\n" in job
    file = "job.yaml" if is_text else os.fspath(job)
    text = cast(str, job) if is_text else read_text(file)
    if goal is None:
        return parse_train(text, file=file)
    fields = document(text, file=file).plain()
    if not isinstance(fields, dict) or "goal" in fields:
        parse_train(text, file=file)  # for its errors, which name the line
    return replace(spec_from_mapping({**cast(dict[str, object], fields), "goal": goal}), file=file)


def _unattended(spec: TrainSpec) -> TrainSpec:
    """For trials that mlcd does not run, a cloud's own name means its catalog, and any model will do."""
    infra, work = spec.resources.infra, spec.job
    if infra in load_catalog().clouds:
        spec = replace(spec, resources=replace(spec.resources, infra=f"sim/{infra}"))
    if spec.resources.infra.startswith("sim/"):
        spec = replace(spec, job=replace(work, model="resnet152", batch=max(work.batch, 1)))
    return spec


def _observer(progress: bool) -> Observer:
    if not progress:
        return ignore
    return ProgressLines(sys.stderr, sys.stderr.isatty() and not os.environ.get("NO_COLOR"))


def _home(home: str | os.PathLike[str] | None) -> Path:
    return default_home() if home is None else Path(home).expanduser()


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"a seed is a whole number, at least 0 (got {seed!r})")


def _meant(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
