"""Everything known of one run: the store keeps it, the engine continues it, and reports show it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

from mlcd.functions import FunctionProblem
from mlcd.problem import Problem
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import Findings, ServeFindings, ServerlessFindings, TrainFindings
from mlcd.run.header import FunctionFacts, Header, ServingFacts
from mlcd.run.kind import Kind
from mlcd.run.moment import Moment
from mlcd.run.step import Outcome, Role, Step
from mlcd.run.verdict import Naive, PlainInstance, Relaxation, Verdict
from mlcd.trial.epoch import Epoch, FailedEpoch
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement
from mlcd.units import Usd

P_co = TypeVar("P_co", bound=Problem | FunctionProblem, covariant=True)

MODEL_FILE = "model.npy"
"""The trained model of a serverless run, in its outputs: all parameters as one vector of float32, for numpy.load."""


@dataclass(frozen=True, kw_only=True)
class Run(Generic[P_co]):
    """A run, from its problem to its findings. Frozen: each step makes a new one.

    steps    in the order they were authorised, those in flight included
    verdict  set once the search, or the serverless training, has ended
    findings what reports show of it; set once the run has ended
    outputs  the folder with the training's outputs; "" if there is none
    log      the output of the newest step that failed; "" if none did, or it left none
    """

    header: Header
    problem: P_co
    status: Status = Status.RUNNING
    steps: tuple[Step, ...] = ()
    verdict: Verdict | None = None
    findings: Findings | None = None
    outputs: str = ""
    log: str = ""

    @property
    def model_file(self) -> str:
        """Where the trained model of a serverless run is; "" if it was not fetched, or only simulated."""
        return f"{self.outputs}/{MODEL_FILE}" if self.outputs and self.kind is Kind.SERVERLESS else ""

    # ---- how it continues

    def with_started(self, steps: Sequence[Step]) -> "Run[P_co]":
        """This run with these steps in flight."""
        return replace(self, steps=(*self.steps, *steps))

    def with_ended(
        self, number: int, outcome: Outcome, *, seconds: float | None = None, moment: Moment | None = None
    ) -> "Run[P_co]":
        """This run with the outcome of one step in flight. Raises ValueError if the step is not in flight.

        seconds, moment  when it was recorded: on the run's clock, and on all clocks
        """
        open_numbers = [step.number for step in self.in_flight]
        if number not in open_numbers:
            raise ValueError(f"step {number} is not in flight")
        steps = tuple(
            step.ended(outcome, seconds=seconds, moment=moment) if step.number == number else step
            for step in self.steps
        )
        return replace(self, steps=steps).with_reported_work()

    def with_reported_work(self) -> "Run[P_co]":
        """This run with the work and the model's sizes that its job told in a trial, where its file does not say."""
        if isinstance(self.problem, FunctionProblem):
            return self
        problem: Problem = self.problem
        if not problem.work_known:
            problem = problem.with_reported_work(self.history.total_samples)
        if problem.transformer is None:
            problem = problem.with_description(self.history.transformer)
        return self if problem is self.problem else replace(self, problem=cast(P_co, problem))

    # ---- the header's facts

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.header.run_id

    @property
    def created(self) -> str:
        """When it began, ISO 8601."""
        return self.header.created

    @property
    def kind(self) -> Kind:
        """The kind of job."""
        return self.header.kind

    @property
    def cloud(self) -> str:
        """Where it runs."""
        return self.header.cloud

    @property
    def simulated(self) -> bool:
        """Whether time and money are simulated."""
        return self.header.simulated

    @property
    def strategy(self) -> str:
        """The strategy or scheduler, as the user wrote it."""
        return self.header.strategy

    @property
    def seed(self) -> int:
        """The seed of every random choice."""
        return self.header.seed

    @property
    def parallel(self) -> int:
        """The most trials at the same time."""
        return self.header.parallel

    @property
    def version(self) -> str:
        """The version of mlcd."""
        return self.header.version

    @property
    def catalog_date(self) -> str:
        """The date of the prices."""
        return self.header.catalog_date

    @property
    def serving(self) -> ServingFacts | None:
        """The facts of a serving job."""
        return self.header.serving

    @property
    def function_facts(self) -> FunctionFacts:
        """The facts of a serverless job. Raises ValueError for other jobs."""
        if self.header.functions is None:
            raise ValueError(f"{self.run_id} is not a serverless run")
        return self.header.functions

    # ---- its steps

    @property
    def in_flight(self) -> tuple[Step, ...]:
        """Steps that were authorised and have no outcome yet."""
        return tuple(step for step in self.steps if step.outcome is None)

    @property
    def ended(self) -> tuple[Step, ...]:
        """Steps with an outcome, in order."""
        return tuple(step for step in self.steps if step.outcome is not None)

    @property
    def trials(self) -> tuple[Step, ...]:
        """Trials that have ended, failed ones included."""
        return tuple(step for step in self.ended if step.role is Role.TRIAL)

    @property
    def history(self) -> History:
        """What is known of configurations: trials reused from earlier runs, then this run's own, in order."""
        reused = (each.trial for each in self.header.reused)
        return History((*reused, *(step.trial for step in self.trials)))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Attempts at the training, or verifications, in order. Stretches on the same nodes are one attempt."""
        found: list[Attempt] = []
        for step in self.steps:
            if not isinstance(step.outcome, Attempt):
                continue
            if found and found[-1].ending is Ending.CONTINUED:
                found[-1] = found[-1].then(step.outcome)
            else:
                found.append(step.outcome)
        return tuple(found)

    @property
    def open_stretch(self) -> Step | None:
        """The last stretch of a training that has not left its nodes; None where none is held."""
        stretches = [step for step in self.steps if isinstance(step.outcome, Attempt)]
        return stretches[-1] if stretches and stretches[-1].final.ending is Ending.CONTINUED else None

    @property
    def final(self) -> Attempt | None:
        """The attempt that ended the run (done, failed or stopped); None while there is none."""
        return next((attempt for attempt in self.attempts if not attempt.ending.is_begun_again), None)

    @property
    def finished_trial(self) -> Measurement | None:
        """The trial of this run that did all of the work and left the outputs; None while there is none."""
        trials = (step.trial for step in self.trials)
        return next((trial for trial in trials if isinstance(trial, Measurement) and trial.is_finished), None)

    @property
    def earlier(self) -> tuple[Attempt, ...]:
        """Attempts that were followed by another one; they were paid and are in the totals."""
        return tuple(attempt for attempt in self.attempts if attempt.ending.is_begun_again)

    @property
    def spot_steps(self) -> tuple[Step, ...]:
        """Trials and attempts on spot nodes that have ended, where spot or on-demand is chosen."""
        roles = (Role.TRIAL, Role.TRAINING)
        return tuple(step for step in self.ended if step.role in roles and step.config.is_spot)

    @property
    def interrupted_steps(self) -> tuple[Step, ...]:
        """Those whose nodes were taken away."""
        return tuple(step for step in self.spot_steps if _is_interrupted(step))

    @property
    def expected_interruptions(self) -> float:
        """How many the rates before the run let expect in the time of `spot_steps`."""
        known = self.problem.interruptions if isinstance(self.problem, Problem) else None
        if known is None:
            return 0.0
        ended = ((step.config, step.outcome) for step in self.spot_steps)
        return sum(known.expected_in(config, outcome.seconds) for config, outcome in ended if outcome is not None)

    @property
    def epoch_steps(self) -> tuple[Step, ...]:
        """Epochs on functions that have ended, failed ones included."""
        return tuple(step for step in self.ended if step.role is Role.EPOCH)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Epochs on functions that reached their barrier."""
        return tuple(step.outcome for step in self.steps if isinstance(step.outcome, Epoch))

    @property
    def failed_epochs(self) -> tuple[FailedEpoch, ...]:
        """Epochs on functions that failed; they were paid too."""
        return tuple(step.outcome for step in self.steps if isinstance(step.outcome, FailedEpoch))

    # ---- what was decided

    @property
    def stopped(self) -> str:
        """Why the search, or the serverless training, ended; "" while it runs."""
        return self.verdict.stopped if self.verdict else ""

    @property
    def choice(self) -> Plan | None:
        """The plan that was chosen; None if there is none."""
        return self.verdict.choice if self.verdict else None

    @property
    def naive(self) -> tuple[Naive, ...]:
        """The naive configurations that the choice is compared with."""
        return self.verdict.naive if self.verdict else ()

    @property
    def relaxations(self) -> tuple[Relaxation, ...]:
        """Changes of the limits that would have helped, if nothing fits."""
        return self.verdict.relaxations if self.verdict else ()

    @property
    def smallest_budget(self) -> Usd | None:
        """Serverless: the budget that would have sufficed; None if that is not known."""
        return self.verdict.smallest_budget if self.verdict else None

    @property
    def instances(self) -> tuple[PlainInstance, ...]:
        """Serverless: plain instances to compare with."""
        return self.verdict.instances if self.verdict else ()

    # ---- what reports show

    @property
    def train_findings(self) -> TrainFindings:
        """Findings of a training on nodes. Raises ValueError if none were computed: mlcd.findings.shown does that."""
        found = self.findings.train if self.findings else None
        if found is None:
            raise ValueError(f"{self.run_id} has no findings for training on nodes")
        return found

    @property
    def serve_findings(self) -> ServeFindings:
        """Findings of a serving run. Raises as `train_findings` does."""
        found = self.findings.serve if self.findings else None
        if found is None:
            raise ValueError(f"{self.run_id} has no findings for serving")
        return found

    @property
    def serverless_findings(self) -> ServerlessFindings:
        """Findings of a serverless training. Raises as `train_findings` does."""
        found = self.findings.serverless if self.findings else None
        if found is None:
            raise ValueError(f"{self.run_id} has no findings for a serverless training")
        return found

    # ---- what it took

    @property
    def spent(self) -> Usd:
        """The cost of every step that has ended."""
        return Usd(sum(step.outcome.usd.micros for step in self.steps if step.outcome is not None))

    @property
    def step_seconds(self) -> float:
        """From the first start to the last end on the run's own clock; rounds follow each other."""
        return max((s.started_seconds + s.outcome.seconds for s in self.steps if s.outcome is not None), default=0.0)

    @property
    def first_start(self) -> float | None:
        """Wall-clock time of the first step's start, from which a real deadline is counted."""
        return min((step.started_at for step in self.steps), default=None)

    @property
    def search_seconds(self) -> float:
        """From the first start to the end of the search."""
        if self.verdict is not None and self.kind is not Kind.SERVERLESS:
            return self.verdict.search_seconds
        searching = (step for step in self.steps if step.role in (Role.TRIAL, Role.TRAINING))
        return max((s.started_seconds + s.outcome.seconds for s in searching if s.outcome is not None), default=0.0)

    @property
    def search_usd(self) -> Usd:
        """The cost of all trials: every node-second."""
        return Usd(sum(step.trial.usd.micros for step in self.trials))

    @property
    def total_usd(self) -> Usd:
        """The cost of search and run: every step that was charged."""
        return self.spent

    @property
    def beside_seconds(self) -> float:
        """The training's time beside the search: part of `search_seconds`, and of the attempts' time."""
        until = math.inf if self.verdict is None else self.verdict.search_seconds
        trainings = (step for step in self.ended if step.role is Role.TRAINING)
        return sum(step.final.seconds for step in trainings if step.started_seconds < until)

    @property
    def total_seconds(self) -> float:
        """The time of search and run, on the wall clock (simulated time on simulated clouds)."""
        return self.search_seconds + sum(attempt.seconds for attempt in self.attempts) - self.beside_seconds

    @property
    def epoch_seconds(self) -> float:
        """Serverless: the sum over all epochs, failed ones included."""
        return sum(step.epoch.seconds for step in self.epoch_steps)

    @property
    def wall_seconds(self) -> float:
        """From the first start to the last end, including decisions and downtime; if simulated, the steps' time."""
        ended = self.ended
        if self.simulated or not ended or self.first_start is None:
            return self.step_seconds
        last = ended[-1]
        if last.ended_seconds is not None:
            return max(self.epoch_seconds, last.ended_seconds)
        return max(
            self.epoch_seconds, last.started_at + (last.outcome.seconds if last.outcome else 0.0) - self.first_start
        )

    @property
    def has_overrun(self) -> bool:
        """Whether its steps broke a limit: they cost more than the budget, or one overran its time past the deadline.

        Time between steps does not count: nothing was authorised then.
        """
        goal = self.problem.goal
        if goal.budget is not None and self.spent > goal.budget:
            return True
        deadline = goal.deadline_seconds
        return deadline is not None and any(
            step.outcome.seconds > step.authorised_seconds and step.started_seconds + step.outcome.seconds > deadline
            for step in self.steps
            if step.outcome is not None
        )

    @property
    def is_target_reached(self) -> bool:
        """Serverless: whether the last loss is as good as the target, or better."""
        problem, epochs = self.problem, self.epochs
        return isinstance(problem, FunctionProblem) and bool(epochs) and epochs[-1].loss <= problem.target_loss

    @property
    def reached_samples(self) -> float:
        """The training's progress that trials and earlier attempts saved."""
        return max(self.history.reached_samples, *(attempt.reached_samples for attempt in self.earlier), 0.0)


SearchRun = Run[Problem]
"""A run of `mlcd train` or `mlcd serve`."""
EpochRun = Run[FunctionProblem]
"""A run of `mlcd serverless`."""
AnyRun = Run[Problem | FunctionProblem]
"""A run of any kind."""


def _is_interrupted(step: Step) -> bool:
    if isinstance(step.outcome, Failure):
        return step.outcome.kind is FailureKind.INTERRUPTED
    return isinstance(step.outcome, Attempt) and step.outcome.interrupted
