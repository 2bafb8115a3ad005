"""The exception tree, by what the user can do about it.

MlcdError                    exit 1
├── BadInput                 exit 2   change the file or the command
│   ├── SpecError                     names file, line, field, value, what is allowed
│   └── CatalogError                  the same for a catalog file
├── ProviderError            exit 7   fix credentials, quota or the provider
│   └── MissingExtra                  install an optional part of mlcd
├── StoreError               exit 1   the state under $MLCD_HOME cannot be read or written
├── RunBusy                  exit 1   another process works on this run
└── Interrupted              exit 130 resume the run

Outcomes such as "nothing fits" are not errors: they are statuses of a Result (mlcd.trial.outcome.Status).
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar


class MlcdError(Exception):
    """Base class: something that mlcd refuses to do or could not do. Its text is one message for the user."""

    exit_code: ClassVar[int] = 1


class BadInput(MlcdError):
    """The user's file or command line is invalid."""

    exit_code = 2


class SpecError(BadInput):
    """One mistake in a job file, with its position and the fix.

    The text reads `FILE:LINE: FIELD: PROBLEM (got VALUE); allowed: ALLOWED; did you mean NEAREST?`
    without the parts that are not known.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str = "",
        line: int | None = None,
        field: str = "",
        value: object = None,
        allowed: str = "",
        nearest: str = "",
    ) -> None:
        self.problem, self.file, self.line, self.field = problem, file, line, field
        self.value, self.allowed, self.nearest = value, allowed, nearest
        place = file + (f":{line}" if file and line is not None else "")
        text = ": ".join(part for part in (place, field, problem) if part)
        if value is not None:
            text += f" (got {value!r})"
        if allowed:
            text += f"; allowed: {allowed}"
        if nearest:
            text += f"; did you mean {nearest!r}?"
        super().__init__(text)


class CatalogError(BadInput):
    """A catalog file or row that fails its sanity checks."""


class ProviderError(MlcdError):
    """The cloud cannot be used: missing credentials, unknown service, or access refused."""

    exit_code = 7


class MissingExtra(ProviderError):
    """An optional part of mlcd is not installed; the text has the command that installs it."""


class StoreError(MlcdError):
    """The state under $MLCD_HOME cannot be read or written."""


class RunBusy(MlcdError):
    """Another live process is working on this run."""


class Interrupted(MlcdError):
    """The user pressed Ctrl-C. Everything that was paid for is stored, and the run can be resumed."""

    exit_code = 130


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name most similar to `name`, or "" if none is similar."""
    by_lower = {each.lower(): each for each in reversed(known)}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else ""
