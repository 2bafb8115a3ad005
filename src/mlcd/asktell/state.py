"""A saved search: its problem, what was asked and what was told, as JSON. No code is stored or run."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from mlcd.asktell.bounds import check_problem, check_trial
from mlcd.asktell.objective import LARGEST_VALUE, SearchObjective
from mlcd.codec import DecodeError, encode, from_json
from mlcd.errors import BadInput
from mlcd.jobs.arguments import check_path
from mlcd.problem import Problem
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.space.declared import MAX_COMBINATIONS
from mlcd.trial.trial import Measurement
from mlcd.untrusted import Malformed, TooLarge, parse_json, read_named

FORMAT = 1
"""Version of the file format; changes with every incompatible change."""

MAX_FILE_BYTES = 128 * 2**20
"""Larger files are not read: the largest space takes a tenth of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a search continues from.

    objective       of declared knobs; None for a job
    counts_money    False where configurations have no price
    clock_seconds   since the first ask on the caller's clock; None without a clock
    """

    format: int
    header: Header
    problem: Problem
    objective: SearchObjective | None
    counts_money: bool
    clock_seconds: float | None
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        self._check_problem()
        if self.header.kind is not Kind.TRAIN or self.header.seed < 0:
            raise ValueError("the header is not that of a search")
        if self.clock_seconds is not None:
            _check_seconds("clock_seconds", self.clock_seconds)
        for number, step in enumerate(self.steps, start=1):
            self._check_step(number, step)

    @property
    def _is_custom_value(self) -> bool:
        return self.objective is not None and self.objective.is_custom_value

    def _check_problem(self) -> None:
        """Refuse what no search writes and what would break it later."""
        problem, space = self.problem, self.problem.space
        if len(space) > MAX_COMBINATIONS:
            raise ValueError(f"problem.space: has more than {MAX_COMBINATIONS:,} configurations")
        for knob in space.knobs:
            places = [place for each in (knob.features or {}).values() for place in each]
            numbers = [value for value in knob.values if not isinstance(value, str)]
            if not all(math.isfinite(number) for number in (*places, *numbers)):
                raise ValueError(f"problem.space: knob {knob.name!r}: a number must be finite")
        if int(problem.nodes.min()) < 1:
            raise ValueError("problem.space: there must be at least 1 node")
        check_problem(problem)
        if problem.verify_seconds != (0.0 if self._is_custom_value else None):
            raise ValueError("problem.verify_seconds: does not go with the objective")
        unset = {name: getattr(problem, name) for name in ("stretch", "blueprint", "batching", "target", "work_error")}
        wrong = [name for name, value in unset.items() if value]
        if wrong or not problem.work_known or problem.keeps_work or problem.goal.slo or problem.goal.rate:
            raise ValueError(f"problem: is not that of a search{f' ({wrong[0]})' if wrong else ''}")

    def _check_step(self, number: int, step: Step) -> None:
        where = f"steps: {number}"
        if step.number != number or step.role is not Role.TRIAL:
            raise ValueError(f"{where}: is not trial {number}")
        if step.config not in self.problem.space:
            raise ValueError(f"{where}: {step.config} is not one of the configurations")
        _check_seconds(f"{where}: authorised seconds", step.authorised_seconds)
        _check_seconds(f"{where}: started_seconds", step.started_seconds)
        if step.authorised_usd.micros < 0:
            raise ValueError(f"{where}: a trial cannot cost less than $0")
        if step.outcome is None:
            return
        check_trial(step.trial)
        if step.trial.config != step.config:
            raise ValueError(f"{where}: the outcome is of {step.trial.config}")
        scores = [point.metric for point in step.trial.learned] if isinstance(step.trial, Measurement) else [0.0]
        if self._is_custom_value and not (len(scores) == 1 and abs(scores[0]) <= LARGEST_VALUE):
            raise ValueError(f"{where}: has no value")

    @property
    def run(self) -> SearchRun:
        """The run in the form that deciders take."""
        return SearchRun(header=self.header, problem=self.problem, steps=self.steps)


def _check_seconds(name: str, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name}: must be a finite number, not negative")


def write(path: str | os.PathLike[str], state: State) -> Path:
    """Writes the file atomically and returns its path. Raises OSError, and BadInput if `path` is not a path."""
    file = Path(check_path("path", path))
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        partial.write_text(encode(state) + "\n", encoding="utf-8")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return file


def read(path: str | os.PathLike[str]) -> State:
    """The inverse of `write`. Raises BadInput naming the file if it is not a saved search or is damaged."""
    file = Path(check_path("path", path))
    try:
        content = read_named(file, most_bytes=MAX_FILE_BYTES)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror or error}") from error
    except TooLarge as error:
        raise BadInput(f"{file}: too large for a saved search: {error.problem}") from error
    except Malformed as error:
        raise BadInput(f"{file}: cannot be read: {error.problem}") from error
    try:
        data = parse_json(content, str(file))
    except Malformed as error:
        raise BadInput(f"{file}: is not a saved search, or is damaged: {error.problem}") from error
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, bool) or not isinstance(found, int):
        raise BadInput(f"{file}: is not a saved search: it has no format number")
    if found != FORMAT:
        raise BadInput(f"{file}: has format {found}, and this version of mlcd reads format {FORMAT}")
    try:
        return from_json(data, State)
    except (DecodeError, RecursionError) as error:
        raise BadInput(f"{file}: is not a saved search, or is damaged: {error}") from error
