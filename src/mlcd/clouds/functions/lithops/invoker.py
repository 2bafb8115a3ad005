"""The only file that starts Lithops: sends a fleet of calls, and returns one answer for each."""

import io
import logging
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcd.clouds.functions.lithops.own_folder import keep_cache_apart, own_python
from mlcd.clouds.shipping import FUNCTIONS, ship
from mlcd.errors import BadInput, MissingExtra, ProviderError
from mlcd.extras import missing_text

CONNECT_HINT = {
    "localhost": "check that the temporary folder is writable",
    "aws_lambda": "check that ~/.aws/credentials or AWS_ACCESS_KEY_ID name an account that may use S3 and Lambda,"
    " and `aws_lambda.execution_role` a role (docs/serverless.md)",
}

STORAGE = {"localhost": "localhost", "aws_lambda": "aws_s3", "gcp_functions": "gcp_storage"}
"""The default storage of a back end, unless the user's configuration names another."""
LONGEST_CALL_SECONDS = 900
ANSWER_GRACE_SECONDS = 2.0
"""How long after its process ended a call's answer may still arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call ended: with a value, or with an error's text.

    seconds  the function's duration as its cloud bills it, where the cloud reports it
    cold     whether its container was new
    """

    value: Any = None
    error: str = ""
    seconds: float | None = None
    cold: bool = False


class Invoker:
    """A Lithops executor that stays open over the epochs of a run.

    Raises ProviderError where the back end or its storage cannot be used, BadInput for what cannot be sent.
    """

    def __init__(self, backend: str, *, most_calls: int, settings: Mapping[str, Any] | None = None) -> None:
        self.backend = backend
        try:
            self._python = own_python()
            import lithops  # noqa: PLC0415 - heavy, and an extra of its own
            import lithops.config  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra(missing_text("lithops", f"lithops/{backend}")) from error
        if backend == "localhost":
            keep_cache_apart()
        logging.getLogger("lithops").setLevel(logging.CRITICAL)
        try:
            usual = lithops.config.load_config(log=False) if backend != "localhost" and not settings else settings
            config = _config(backend, most_calls, usual or {}, self._python)
            self._executor = lithops.FunctionExecutor(config=config, log_level=None)
            self.storage = self._executor.storage
        except Exception as error:  # Lithops raises bare Exception, and each cloud's SDK its own
            raise self.unusable(error) from error
        self._jobs: list[Any] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """What is sent to functions that do not run on this machine."""

    def unusable(self, error: Exception) -> ProviderError:
        """The back end's error as one line, with what to check."""
        text = " ".join(str(error).split()) or type(error).__name__
        hint = CONNECT_HINT.get(self.backend, "check its Lithops configuration")
        return ProviderError(f"lithops/{self.backend} cannot be used: {text[:300]}; {hint}")

    def call(
        self, function: Callable[..., Any], orders: Sequence[Any], *, memory_mb: int, seconds: float
    ) -> list["Call"]:
        """Start one call per order, concurrently; Lithops ends each after `seconds`."""
        try:
            pickle.dumps((function, list(orders)))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise BadInput(f"workload: cannot be sent to functions: {error}") from error
        quiet = io.StringIO()
        try:
            with redirect_stdout(quiet), self._shipping() as modules:
                futures = self._executor.map(
                    function,
                    [(order,) for order in orders],
                    runtime_memory=memory_mb,
                    timeout=max(1, int(seconds)),
                    include_modules=modules,
                )
        except Exception as error:  # as above: the SDK behind Lithops may raise anything
            raise self.unusable(error) from error
        self._jobs.extend(futures)
        ended = self._ended if self.backend == "localhost" else None
        return [Call(future, self._executor.internal_storage, ended) for future in futures]

    @contextmanager
    def _shipping(self) -> Iterator[list[str] | None]:
        """Lithops' `include_modules`: on this machine None, elsewhere mlcd as functions need it.

        Left to itself, Lithops sends everything that any module of mlcd could import. It looks on the Python path for
        what it is told to send, so the copy of mlcd comes first there meanwhile; modules already imported stay.
        """
        if self.backend == "localhost":
            yield None
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mlcd-functions-")
        tree = str(ship(Path(self._folder.name), FUNCTIONS))
        sys.path.insert(0, tree)
        try:
            yield ["mlcd"]
        finally:
            sys.path.remove(tree)

    def _ended(self, job_key: str) -> bool:
        """Whether all processes of a map call on this machine have ended."""
        latch = self._executor.compute_handler.env.jobs.get(job_key)
        return latch is None or latch.done

    def end(self, calls: Sequence["Call"]) -> bool:
        """End running calls where this machine runs them. Elsewhere returns False: they end at their own limit."""
        if self.backend != "localhost":
            return False
        self._executor.compute_handler.clear({call.job_key for call in calls}, exception=TimeoutError())
        return True

    def close(self) -> None:
        """End whatever runs, and delete the calls' own objects."""
        quiet = io.StringIO()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        with redirect_stdout(quiet):
            self._executor.__exit__(None, None, None)
            if self._jobs:
                self._executor.clean(fs=self._jobs, clean_cloudobjects=False)


class Call:
    """A running call. `ended` reports whether the processes of its map call are gone; None where that is unknown."""

    def __init__(self, future: Any, storage: Any, ended: Callable[[str], bool] | None = None) -> None:
        self._future, self._storage, self._ended = future, storage, ended
        self._gone_at: float | None = None

    @property
    def job_key(self) -> str:
        """Lithops' name of the map call that it belongs to."""
        key: str = self._future.job_key
        return key

    def answer(self) -> Answer | None:
        """How it ended, or None while it runs."""
        future = self._future
        ended = future.success or future.done or future.ready or future.error
        if not ended and future.status(throw_except=False, internal_storage=self._storage, check_only=True) is None:
            return self._end_without_answer()
        future.status(throw_except=False, internal_storage=self._storage)
        if future.error:
            return Answer(error=_reason(future), seconds=_seconds(future), cold=_cold(future))
        value = future.result(throw_except=False, internal_storage=self._storage)
        return Answer(value=value, seconds=_seconds(future), cold=_cold(future))

    def _end_without_answer(self) -> Answer | None:
        """An answer for a process that died without one: Lithops would wait for it forever."""
        if self._ended is None or not self._ended(self.job_key):
            return None
        now = time.monotonic()
        self._gone_at = now if self._gone_at is None else self._gone_at
        return Answer(error="the call ended without an answer") if now - self._gone_at > ANSWER_GRACE_SECONDS else None


def _seconds(future: Any) -> float | None:
    found = future.stats.get("worker_exec_time")
    return None if found is None else float(found)


def _cold(future: Any) -> bool:
    return bool(future.stats.get("worker_cold_start", False))


def _reason(future: Any) -> str:
    raised = future._exception  # the only public way to get it is to raise it, which replaces sys.excepthook
    if raised is None:
        return "the call ended without an answer"
    kind, value = raised[0], raised[1]
    return f"{getattr(kind, '__name__', kind)}: {value}"


def _config(backend: str, most_calls: int, given: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Lithops' configuration: the user's own, plus what this run needs."""
    config: dict[str, Any] = {name: dict(section) for name, section in given.items() if isinstance(section, Mapping)}
    lithops = config.setdefault("lithops", {})
    lithops.update(backend=backend, data_cleaner=False)
    lithops.pop("mode", None)
    lithops.setdefault("monitoring_interval", 0.2 if backend == "localhost" else 1)
    if backend in STORAGE:
        lithops.setdefault("storage", STORAGE[backend])
    own = config.setdefault(backend, {})
    if backend == "localhost":
        own.update(runtime=python, worker_processes=most_calls)
    else:
        own.setdefault("runtime_timeout", LONGEST_CALL_SECONDS)
        own.setdefault("max_workers", most_calls)
    return config
