"""Find what mlcd left running on any cloud, and end it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from mlcd.clouds.local import Local
from mlcd.clouds.nodes import PREFIX, Closable, Leftover, ListsUnproved, NodeEngine, Sweeping, Unproved
from mlcd.clouds.skypilot.task import cluster_name
from mlcd.clouds.workspace import Workspace
from mlcd.errors import BadInput, MlcdError, ProviderError, nearest
from mlcd.jobs.plugin import cloud_names, plugin_engine
from mlcd.jobs.real import DIRECT, SKYPILOT, engine_for
from mlcd.jobs.where import BUILT_IN
from mlcd.spec.infra import infras_of
from mlcd.store.store import Store, has_store

_Found = TypeVar("_Found", Leftover, Unproved)
EVERYWHERE = (*DIRECT, "skypilot")


def run_named(home: Path, name: str) -> str:
    """The run of this name or unique prefix. Raises BadInput where there is none.

    A run with folders of its own is found even if the store cannot be read.
    """
    if "/" not in name and name not in ("", ".", "..") and Workspace(home, name).root.is_dir():
        return name
    with Store(home, reading=True) as store:
        return store.load(name).run_id


def leftovers(
    home: Path, *, on: str | None = None, run_id: str | None = None
) -> tuple[tuple[Leftover, ...], tuple[tuple[str, str], ...]]:
    """Everything found, or what belongs to one run, and (cloud, reason) for each cloud that could not be searched.

    Raises ProviderError if `on` names a cloud that cannot be searched.
    """
    found: list[Leftover] = []
    unreachable: list[tuple[str, str]] = []
    for kind in _kinds(on):
        engine: NodeEngine | None = None
        try:
            with _asked(kind):
                engine = _engine(kind, home)
                if engine is not None:
                    found += _own(kind, _valid(kind, tuple(engine.leftovers()), Leftover), found)
        except (ProviderError, BadInput, OSError) as error:  # BadInput: a plug-in that cannot be loaded
            if on is not None:
                raise _explained(kind, error) from error
            unreachable.append((kind, str(error)))
        finally:
            _close(kind, engine)
    return tuple(one for one in found if _is_of(home, run_id, one)), tuple(unreachable)


def was_used(home: Path, kind: str) -> bool:
    """Whether a run of this home was on a cloud of `kind`, so that something of it may be there; True if unknown."""
    if kind not in ("slurm", "skypilot"):
        return True
    if not has_store(home):
        return False
    names = (*SKYPILOT, "skypilot") if kind == "skypilot" else (kind,)
    try:
        with Store(home, reading=True) as store:
            found = store.runs()
    except MlcdError:
        return True
    return any(
        each.damage or any(infra.partition("/")[0] in names for infra in infras_of(each.cloud)) for each in found
    )


def unproved(home: Path, *, on: str | None = None, run_id: str | None = None) -> tuple[Unproved, ...]:
    """What may belong to mlcd's leases and cannot be proved to, on the clouds that can be searched. Ends nothing."""
    found: list[Unproved] = []
    for kind in _kinds(on):
        engine: NodeEngine | None = None
        try:
            with _asked(kind):
                engine = _engine(kind, home)
            if isinstance(engine, ListsUnproved):
                with _asked(kind):
                    listed = _valid(kind, tuple(engine.unproved()), Unproved)
                found += [one for one in listed if _key(one) not in map(_key, found)]
        except (ProviderError, BadInput, OSError):  # `leftovers` has said so
            continue
        finally:
            _close(kind, engine)
    return tuple(one for one in found if (run_id is not None and one.run_id == run_id) or _is_of(home, run_id, one))


def end_all(home: Path, found: Sequence[Leftover]) -> tuple[tuple[Leftover, MlcdError], ...]:
    """End each of `found`. Returns those that could not be ended, with the reason."""
    failed: list[tuple[Leftover, MlcdError]] = []
    for kind in dict.fromkeys(leftover.cloud for leftover in found):
        engine: NodeEngine | None = None
        for leftover in (one for one in found if one.cloud == kind):
            try:
                with _asked(kind):
                    engine = engine or _engine(kind, home)
                    if engine is not None:
                        engine.end(leftover)
            except (MlcdError, OSError) as error:  # what is left must not keep the others running
                failed.append((leftover, _explained(leftover.lease_id, error)))
        _close(kind, engine)
    return tuple(failed)


def sweep(home: Path, *, on: str | None = None) -> None:
    """Forget ended leases of killed mlcd processes, on the clouds that keep something of them."""
    for kind in _kinds(on):
        with suppress(ProviderError, BadInput, OSError), _asked(kind):  # `leftovers` has said so
            engine = _engine(kind, home)
            if isinstance(engine, Sweeping):
                engine.sweep()
            _close(kind, engine)


def end_abandoned(home: Path, run_id: str) -> tuple[Unproved, ...]:
    """End what a killed mlcd left of a run on this machine. Never raises for what it cannot end.

    Returns what may be the run's and was not ended. Before the run's folders are deleted: they show what that is.
    """
    leases = Local(home).leases
    leases.end_abandoned(run_id)
    return tuple(one for one in leases.unproved() if one.run_id == run_id)


def forget_leases(home: Path, run_id: str) -> None:
    """Forget the ended leases of a run whose folders are deleted, on every cloud. Those with processes are kept."""
    from mlcd.clouds.slurm.engine import forget_owners  # noqa: PLC0415 - loaded for those who use it

    Local(home).leases.forget_run(run_id)
    forget_owners(home, run_id)


def _explained(what: str, error: MlcdError | OSError) -> MlcdError:
    return error if isinstance(error, MlcdError) else ProviderError(f"{what}: {error}")


def _is_of(home: Path, run_id: str | None, found: Leftover | Unproved) -> bool:
    """Whether it belongs to the run, by the folders of the run's leases; everything does where no run is named."""
    if run_id is None:
        return True
    leases = Workspace(home, run_id).root / "leases"
    names: list[str] = []
    with suppress(OSError):  # none, or another process deletes them
        names = [folder.name for folder in leases.iterdir()]
    return found.lease_id in names or found.lease_id in [cluster_name(n) for n in names if n.startswith(PREFIX)]


def _kinds(on: str | None) -> tuple[str, ...]:
    plugged = cloud_names(BUILT_IN)
    if on is None:
        return (*EVERYWHERE, *plugged)
    kinds, known = [infra.partition("/")[0] for infra in infras_of(on)], (*DIRECT, *SKYPILOT, *plugged)
    for kind in kinds:
        if kind not in (*known, "skypilot"):
            near = nearest(kind, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"--on: there is no such cloud (got {on[:80]!r}); allowed: {', '.join(known)}{hint}")
    return tuple(dict.fromkeys(kinds))


def _key(one: Unproved) -> tuple[int | None, str]:
    """Engines that share this machine and its records may list the same."""
    return one.pid, one.what


def _close(kind: str, engine: NodeEngine | None) -> None:
    if isinstance(engine, Closable):
        with suppress(ProviderError) if _is_plugged(kind) else nullcontext(), _asked(kind):
            engine.close()


@contextmanager
def _asked(kind: str) -> Iterator[None]:
    """Any error of a plug-in's cloud, and its end of the program, as a ProviderError: the other clouds are searched."""
    try:
        yield
    except (MlcdError, OSError):
        raise
    except (Exception, SystemExit) as error:
        if not _is_plugged(kind):
            raise
        raise ProviderError(f"the plug-in of {kind} failed: {type(error).__name__}: {error}") from error


def _valid(kind: str, found: tuple[_Found, ...], wanted: type[_Found]) -> tuple[_Found, ...]:
    """What an engine found. Raises ProviderError where a plug-in's is something else."""
    for one in found if _is_plugged(kind) else ():
        if not isinstance(one, wanted) or not all(isinstance(x, str) for x in (one.cloud, one.lease_id, one.what)):
            what = f"it listed {str(one)[:80]!r}, which is no {wanted.__name__}"
            raise ProviderError(f"the plug-in of {kind} failed: {what}")
    return found


def _own(kind: str, listed: Sequence[Leftover], found: Sequence[Leftover]) -> list[Leftover]:
    """The leftovers of a cloud, under its name. A plug-in on a built-in engine may list what that one has listed."""
    known = {(one.cloud, one.lease_id) for one in found}
    return [
        replace(one, cloud=kind) if _is_plugged(kind) else one
        for one in listed
        if (one.cloud, one.lease_id) not in known
    ]


def _is_plugged(kind: str) -> bool:
    return kind in cloud_names(BUILT_IN)


def _engine(kind: str, home: Path) -> NodeEngine | None:
    """The engine of a cloud; None for a plug-in's cloud that starts no nodes through mlcd."""
    if _is_plugged(kind):
        return plugin_engine(kind, BUILT_IN, home)
    return engine_for(kind, "", home)
