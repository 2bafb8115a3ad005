"""The name of a run and how it was made: enough to repeat it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcd.known.gpus import Machine
from mlcd.known.language_models import LanguageModel
from mlcd.known.resemblance import Resemblance
from mlcd.run.kind import Kind
from mlcd.trial.trial import Trial

CHAT = "chat"
"""The scenario of a language model: prompts with streamed answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """Facts of a serving job that are not part of its problem.

    model           the file that is served
    scenario        how requests arrive
    headroom        the share of the measured rate that is kept free
    verify_seconds  how long the choice is load-tested before it is recommended
    resemblance     what was known of the model in advance; None if no other models are known
    notes           what was excluded from the space, and why
    profile         requests a second of every hour; empty: the traffic does not change
    language        a language model's sizes, for later runs of other models; None if they are not known
    earlier         the runs of other models that the strategy knew when this one began
    from_node       whether one node more of each lease sent the load
    machines        the GPUs of a language model's nodes by instance type, "" for this machine; the known ones only
    """

    model: str
    scenario: str
    headroom: float
    verify_seconds: float
    resemblance: Resemblance | None = None
    notes: tuple[str, ...] = ()
    profile: tuple[float, ...] = ()
    language: LanguageModel | None = None
    earlier: tuple[str, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    from_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFacts:
    """Facts of a serverless job that are not part of its problem.

    model    the trained model
    sync     how functions synchronise
    earlier  the runs that the scheduler knew when this one began
    """

    model: str
    sync: str
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusedTrial:
    """A trial of the same job in an earlier run: known from the start of this one, and paid for there.

    created       when that run began, ISO 8601
    catalog_date  of the prices that it was paid at; plans use this run's own prices
    """

    run_id: str
    created: str
    catalog_date: str
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """How the run was started, written once when it begins.

    created       ISO 8601, UTC
    cloud         as in `resources.infra`
    simulated     whether the cloud's time and money are simulated
    parallel      the most trials at the same time
    version       of mlcd
    catalog_date  of the prices
    serving       facts of a serving job; `functions`: of a serverless job
    reused        trials of the same job that earlier runs paid for
    made_by       user@machine, in a store that a team shares; else ""
    """

    run_id: str
    created: str
    kind: Kind
    cloud: str
    simulated: bool
    strategy: str
    seed: int
    version: str
    catalog_date: str
    parallel: int = 1
    serving: ServingFacts | None = None
    functions: FunctionFacts | None = None
    reused: tuple[ReusedTrial, ...] = ()
    made_by: str = ""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_run_name(name: str) -> bool:
    """Whether a run may have this name. It becomes part of paths, and a colleague may have written it."""
    return _NAME.fullmatch(name) is not None


def is_run_of(run_id: str, job: str) -> bool:
    """Whether a run has the name that runs of this job get: the job's, and six hexadecimal digits."""
    return run_id.startswith(f"{job}-") and re.fullmatch(r"[0-9a-f]{6}", run_id[len(job) + 1 :]) is not None
