"""One row of the table of kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from mlcd.jobs.prepared import Prepared
from mlcd.report.live import LiveLine
from mlcd.run.kind import Kind
from mlcd.run.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job, from its stored text to its report. Whoever adds a fourth kind writes one of these.

    read      the job of a stored run, from what the store keeps of it
    prepare   names become machines, prices and a problem; see mlcd.jobs
    check     whether a stored job can go on with the given objects, by name, or without; raises BadInput
    progress  an observer and context manager that writes to a stream, for a problem on a cloud
    text      the answer in words; `plain` in ASCII, `width` columns at most, `colour` for terminals
    json      the same for programs; docs/output.md lists the fields
    html      the same as one self-contained page
    pictures  the names of the pictures that a run of this kind has; the first is the usual one
    picture   one of them as SVG
    """

    kind: Kind
    read: Callable[[Mapping[str, Any]], Any]
    prepare: Callable[..., Prepared[Any]]
    check: Callable[..., None]
    progress: Callable[[TextIO, Any, str], LiveLine]
    text: Callable[..., str]
    json: Callable[[Run[Any]], dict[str, object]]
    html: Callable[[Run[Any]], str]
    pictures: Callable[[Run[Any]], tuple[str, ...]]
    picture: Callable[[Run[Any], str], str]

    def prepare_again(
        self, run: Run[Any], stored: Mapping[str, Any], folder: Path | None, **objects: Any
    ) -> Prepared[Any]:
        """A stored run's job, prepared to go on. `objects` as `prepare` takes them, such as strategy=...

        Raises BadInput where the run was begun with an object and none is given now.
        """
        spec = self.read(stored)
        self.check(spec, **objects)
        known = {"earlier": run.header.functions.earlier} if run.header.functions is not None else {}
        return self.prepare(spec, seed=run.seed, folder=folder, **known, **objects)


def kind_of(kind: Kind) -> JobKind:
    """The row of a kind; its module is imported here, so that a command loads only what it needs."""
    row: JobKind = import_module(f"mlcd.kinds.{kind}").ROW
    return row
