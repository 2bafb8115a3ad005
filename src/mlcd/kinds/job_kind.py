"""One row of the table of kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mlcd.errors import MlcdError, StoreError
from mlcd.findings import shown
from mlcd.report.page import Table
from mlcd.report.picture import Picture
from mlcd.report.pictures import pictures_of
from mlcd.run.kind import Kind
from mlcd.run.run import Run

if TYPE_CHECKING:
    from mlcd.jobs.prepared import Prepared
    from mlcd.report.live import LiveLine


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job, from its stored text to its report. A new kind of job is one more of these.

    read      the job of a stored run, from what the store keeps of it
    prepare   names become machines, prices and a problem; see mlcd.jobs
    check     raises BadInput if a stored job cannot continue with (or without) the given objects
    progress  an observer and context manager that writes to a stream, for a problem on a cloud
    as_text   the answer in words; likewise as_json, as_html and as_tables. Each needs a run with findings: call `text`,
              `json`, `html` and `pictures`, which add them
    """

    kind: Kind
    read: Callable[[Mapping[str, Any]], Any]
    prepare: "Callable[..., Prepared[Any]]"
    check: Callable[..., None]
    progress: "Callable[[TextIO, Any, str], LiveLine]"
    as_text: Callable[..., str]
    as_json: Callable[[Run[Any]], dict[str, object]]
    as_html: Callable[..., str]
    as_tables: Callable[..., list[Table]]

    def text(self, run: Run[Any], *, plain: bool = False, width: int | None = None, colour: bool = False) -> str:
        """The answer in words; `plain` in ASCII, at most `width` columns, with `colour` for terminals that have it."""
        return self.as_text(shown(run), plain=plain, width=width, colour=colour)

    def json(self, run: Run[Any]) -> dict[str, object]:
        """The same for programs; docs/output.md lists the fields."""
        return self.as_json(shown(run))

    def html(self, run: Run[Any]) -> str:
        """The same as one self-contained page."""
        return self.as_html(shown(run))

    def fragment(self, run: Run[Any]) -> str:
        """The same to be shown inside another page, such as a notebook."""
        return self.as_html(shown(run), whole=False)

    def tables(self, run: Run[Any]) -> list[Table]:
        """The tables of the page."""
        return self.as_tables(shown(run))

    def pictures(self, run: Run[Any]) -> tuple[Picture, ...]:
        """The pictures of a run; the first is the default."""
        return pictures_of(shown(run))

    def prepare_again(
        self, run: Run[Any], stored: Mapping[str, Any], folder: Path | None, **objects: Any
    ) -> "Prepared[Any]":
        """A stored run's job, prepared to continue. `objects` are arguments of `prepare`, such as strategy=...

        Raises BadInput if the run was started with an object and none is given now, and StoreError if the record of
        its job is damaged.
        """
        try:
            spec = self.read(stored)
        except MlcdError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(f"run {run.run_id}: the record of its job is damaged: {error}; start it anew") from error
        self.check(spec, **objects)
        facts = run.header.functions or run.header.serving
        known = {"earlier": facts.earlier} if facts is not None else {}
        return self.prepare(spec, seed=run.seed, folder=folder, **known, **objects)


def kind_of(kind: Kind) -> JobKind:
    """The row of a kind. Its module is imported here, so that a command loads only what it needs."""
    row: JobKind = import_module(f"mlcd.kinds.{kind}").ROW
    return row
