"""What mlcd left running anywhere, and its end."""

from collections.abc import Sequence
from pathlib import Path

from mlcd.clouds.nodes import Closable, Leftover, NodeEngine
from mlcd.errors import MlcdError, ProviderError
from mlcd.jobs.real import engine_for

EVERYWHERE = ("local", "minicloud", "slurm", "skypilot")


def leftovers(home: Path, *, on: str | None = None) -> tuple[tuple[Leftover, ...], tuple[tuple[str, str], ...]]:
    """All that was found, and (cloud, why) for each that could not be looked at.

    Raises ProviderError where the only cloud asked for cannot be looked at.
    """
    found: list[Leftover] = []
    silent: list[tuple[str, str]] = []
    for kind in EVERYWHERE if on is None else (on.partition("/")[0],):
        engine = _engine(kind, home)
        try:
            found += engine.leftovers()
        except ProviderError as error:
            if on is not None:
                raise
            silent.append((kind, str(error)))
        finally:
            _close(engine)
    return tuple(found), tuple(silent)


def end_all(home: Path, found: Sequence[Leftover]) -> tuple[tuple[Leftover, MlcdError], ...]:
    """End each; those that could not be ended, with the reason."""
    failed = []
    engines = {kind: _engine(kind, home) for kind in {leftover.cloud for leftover in found}}
    for leftover in found:
        try:
            engines[leftover.cloud].end(leftover)
        except MlcdError as error:
            failed.append((leftover, error))
    for engine in engines.values():
        _close(engine)
    return tuple(failed)


def _close(engine: NodeEngine) -> None:
    if isinstance(engine, Closable):
        engine.close()


def _engine(kind: str, home: Path) -> NodeEngine:
    return engine_for(kind, "", home)
