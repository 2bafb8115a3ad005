"""One kind of job file: read from text, a file or a Python mapping, with flags that override its fields."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from mlcd.errors import SpecError
from mlcd.spec.document import document, read_text
from mlcd.spec.mapping import as_text, tree
from mlcd.spec.node import YamlNode
from mlcd.spec.place import Place, PlacedSpec, places_of
from mlcd.spec.record import Reader
from mlcd.spec.scalar import scalar

Job = TypeVar("Job", bound=PlacedSpec)

SHARED_FIELDS = frozenset({"name", "resources", "goal", "search"})
PROGRAM_FIELDS = frozenset({"knobs", "workdir", "secrets", "file_mounts", "setup"})
"""What job files with a program of the user's on nodes may have: trainings and servers."""
OWN_FIELDS = {
    "train": frozenset(
        {"num_nodes", "batch", "data", "learning_rate", "pricing", "envs", "run"}
        | {"platform", "progress", "checkpoints", "outputs", "job"}
    ),
    "serve": frozenset({"model", "server", "sizes", "inputs", "load"}),
    "serverless": frozenset({"workload", "functions", "memory", "sync"}),
}
"""Command -> the fields that only its job files have: they tell which command a file is for."""


OTHER_FILES = {
    ".py": "is a script, not a job file: a job file says how to run it, such as run: python {file}",
    ".ipynb": "is a notebook, not a job file: save it as a script, and run that from a job file",
    ".onnx": "is a model, not a job file: mlcd serve {file}",
}
"""Suffix of a file that is given instead of a job file -> what to do with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A command-line flag, or an argument from Python, that overrides a field.

    path   the field's dotted name
    spell  converts the flag's value to the form of a job file; may raise the SpecError of the field
    drops  a field that is removed when the flag is given; "" for none
    each   whether the flag is a mapping of which each item overrides the field's item of that name
    """

    path: str
    spell: Callable[[object], object] = lambda value: value
    drops: str = ""
    each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile(Generic[Job]):
    """How jobs of one kind are read. A deadline that is a point in time is counted from `now` (None: this moment).

    command the command that runs such jobs
    record  the reader of all fields
    check   returns the job after the checks that involve several fields; raises SpecError
    flags   by name
    sample  where to find an example, for the error about an empty file

    Flags that are None count as not given. Every method raises SpecError for the first mistake. If a flag caused it,
    the error's field is `mark` and the flag's name, such as `--budget`.
    """

    command: str
    record: Callable[[datetime | None], Reader[Job]]
    check: Callable[[Job], Job]
    flags: Mapping[str, Flag]
    sample: str

    def parse(
        self,
        text: str,
        *,
        file: str = "job.yaml",
        now: datetime | None = None,
        flags: Mapping[str, object] | None = None,
        mark: str = "--",
    ) -> Job:
        """The job that `text` describes. Messages use `file` as the file's name."""
        root = document(text, file=file)
        if root.value is None:
            raise SpecError("the file is empty", file=file, line=1, allowed=f"a job file; {self.sample}")
        self._check_command(root, file)
        return replace(self._job(root, now, _given(flags), mark), file=file, source=text)

    def _check_command(self, root: YamlNode, file: str) -> None:
        """Raises SpecError for a job of another command: it has fields of that one, and none of this one's."""
        given = set(root.value) if isinstance(root.value, Mapping) else set()
        for command, fields in OWN_FIELDS.items():
            if command != self.command and given & fields and given <= fields | SHARED_FIELDS | PROGRAM_FIELDS:
                marks = ", ".join(sorted(given & fields))
                raise SpecError(f"is a job for `mlcd {command}` (it has {marks}): mlcd {command} {file}", file=file)

    def read(
        self,
        path: str | Path,
        *,
        now: datetime | None = None,
        flags: Mapping[str, object] | None = None,
        mark: str = "--",
    ) -> Job:
        """The job in a file."""
        problem = OTHER_FILES.get(Path(path).suffix.lower())
        if problem and Path(path).is_file():
            raise SpecError(f"{problem.format(file=path)}; {self.sample}", file=str(path))
        return self.parse(read_text(path), file=str(path), now=now, flags=flags, mark=mark)

    def from_mapping(
        self,
        job: Mapping[str, object],
        *,
        now: datetime | None = None,
        flags: Mapping[str, object] | None = None,
        mark: str = "--",
    ) -> Job:
        """The job that a Python mapping describes, with the fields of a job file; its `source` is the same as YAML.

        A field that is None counts as not given.
        """
        root = tree(job)
        return replace(self._job(root, now, _given(flags), mark), source=as_text(root))

    def with_flags(
        self, job: Job, flags: Mapping[str, object], *, now: datetime | None = None, mark: str = "--"
    ) -> Job:
        """`job` with `flags` overriding its values. Earlier flags for the same field, or a field below it, are dropped.

        If the job keeps its own deadline, that deadline is still counted from the same moment.
        """
        given = _given(flags)
        if not given:
            return job
        paths = [self.flags[name].path for name in given]
        kept = {
            name: value
            for name, value in job.overrides
            if not any(self.flags[name].path == path or self.flags[name].path.startswith(f"{path}.") for path in paths)
        }
        if now is None and not {"goal", "goal.deadline"} & set(paths):
            now = job.counted_from
        root = document(job.source, file=job.file)
        changed = self._job(root, now, {**kept, **given}, mark)
        earlier = {path: job.places[path] for path in (self.flags[name].path for name in kept) if path in job.places}
        return replace(changed, file=job.file, source=job.source, places={**changed.places, **earlier})

    def _job(self, root: YamlNode, now: datetime | None, given: Mapping[str, object], mark: str) -> Job:
        """The job of `root` with the flags' values applied and recorded."""
        moment = now or datetime.now(UTC)
        try:
            for name, value in sorted(given.items(), key=lambda each: self.flags[each[0]].path.count(".")):
                flag = self.flags[name]
                if flag.drops:
                    root = _put(root, flag.drops.split("."), None)
                spelled = tree(flag.spell(value), path=flag.path)
                items = spelled.mapping().items() if flag.each else ()
                root = _put(root, flag.path.split("."), spelled) if not flag.each else root
                for key, item in items:
                    root = _put(root, [*flag.path.split("."), key], item)
            job = self.record(moment)(root)
            places = {**places_of(root), **{self.flags[name].path: Place(mark + name) for name in given}}
            overrides = tuple((name, tree(value).plain()) for name, value in given.items())
            return self.check(replace(job, file=root.file, places=places, overrides=overrides, counted_from=moment))
        except SpecError as error:
            raise self._named(error, given, mark) from error

    def _named(self, error: SpecError, given: Mapping[str, object], mark: str) -> SpecError:
        """The same error, naming the flag if a flag gave the value."""
        for name, value in given.items():
            path = self.flags[name].path
            if self.flags[name].each and error.field != path:
                continue  # the error names the item
            if error.field == path or error.field.startswith((f"{path}.", f"{path}[")):
                shown = error.value if error.field == path else value
                return SpecError(
                    error.problem, field=mark + name, value=shown, allowed=error.allowed, nearest=error.nearest
                )
        return error


def as_written(value: object) -> object:
    """The value that this text has in a job file, for numbers that the command line passes as text."""
    return scalar(value) if isinstance(value, str) else value


def _given(flags: Mapping[str, object] | None) -> dict[str, object]:
    return {name: value for name, value in (flags or {}).items() if value is not None}


def _put(node: YamlNode, path: list[str], value: YamlNode | None) -> YamlNode:
    """`node` with `value` at `path` (None removes the field). A node that is not a mapping is left for its reader."""
    fields = {} if node.value is None else node.value
    if not isinstance(fields, Mapping):
        return node
    name, below = path[0], path[1:]
    if below:
        section = fields.get(name, YamlNode(value={}, path=node.child_path(name)))
        value = _put(section, below, value)
    changed = {**fields, name: value} if value is not None else {key: fields[key] for key in fields if key != name}
    return replace(node, value=changed)
