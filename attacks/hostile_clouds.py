"""Clouds that lie, fail and hang, through the real engine and a store on disk.

In this process; the cases overlap in threads, since most of their time is waiting. The engine's bounds are seconds
instead of minutes.
"""

import random
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attacks.attack import Attack, Kind, Tally
from mlcd.clouds.provider import Purpose
from mlcd.errors import MlcdError
from mlcd.kinds import kind_of
from mlcd.run.kind import Kind as JobKind
from mlcd.store.store import Store
from mlcd.testing.hostile_clouds import (
    Fault,
    FunctionFault,
    HostileCloud,
    HostileFunctions,
    HostileServers,
    ServerFault,
)
from mlcd.testing.hostile_drives import RUN_ID, Driven, defects, drive, drive_functions, drive_servers

MOST_SECONDS = 60.0
"""A case has at most three steps, each bounded by its time (at most 40 s for a verification) and half a second."""
AT_ONCE = 6


def _cases() -> list[tuple[str, Fault | FunctionFault | ServerFault, bool, Purpose]]:
    """(kind, fault, simulated, purpose), all there are."""
    nodes = [("nodes", fault, simulated, at) for fault in Fault for simulated in (False, True) for at in Purpose]
    functions = [("functions", fault, simulated, Purpose.RUN) for fault in FunctionFault for simulated in (False, True)]
    servers = [("servers", fault, False, Purpose.TRIAL) for fault in ServerFault]
    return [*nodes, *functions, *servers]


def _attack(count: int, seed: int, folder: Path) -> Tally:
    tally, lock = Tally(), threading.Lock()

    def one(case: int) -> None:
        found = _case(case, seed, folder / f"home-{case}")
        with lock:
            tally.count(found[0])
            for kind, what in found[1]:
                tally.find(kind, case, what)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        list(pool.map(one, range(count)))
    return tally


def _case(case: int, seed: int, home: Path) -> tuple[str, list[tuple[Kind, str]]]:
    """How one case ended, and what is wrong with it. Case i is one of a shuffled list, so that 40 are a fair sample."""
    cases = _cases()
    random.Random(f"hostile|{seed}").shuffle(cases)
    kind, fault, simulated, at = cases[case % len(cases)]
    what = f"{kind}, {'simulated' if simulated else 'real'}, {at}: {fault.value}"
    held = 0.0
    found: list[tuple[Kind, str]] = []
    with Store(home) as store:
        try:
            if isinstance(fault, Fault):
                nodes = HostileCloud(fault, simulated=simulated, at=at)
                driven = _freed(nodes, lambda: drive(nodes, store))
                held = nodes.charged_at_least()
            elif isinstance(fault, FunctionFault):
                functions = HostileFunctions(fault, simulated=simulated)
                driven = _freed(functions, lambda: drive_functions(functions, store))
            else:
                servers = HostileServers(fault)
                driven = _freed(servers, lambda: drive_servers(servers, store))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return "traceback", [(Kind.TRACEBACK, f"{what}: {type(error).__name__}: {error} ({last.name})")]
        for defect in defects(driven, held_seconds=held, most_seconds=MOST_SECONDS):
            over = "spent" in defect or "charged" in defect
            sort = Kind.OVERSPEND if over else Kind.HANG if "it took" in defect else Kind.WRONG
            found.append((sort, f"{what}: {defect}"))
        found += _again(store, driven, what)
    ended = "refused" if driven.error is not None else str(driven.run.status)
    return ended, found


def _freed(cloud: HostileCloud | HostileFunctions | HostileServers, call: Callable[[], Driven]) -> Driven:
    try:
        return call()
    finally:
        cloud.let_go()


def _again(store: Store, driven: Driven, what: str) -> list[tuple[Kind, str]]:
    """The run is read, reported, and continued where it has not ended."""
    try:
        run = store.load(RUN_ID)
        kind = kind_of(run.kind)
        kind.text(run), kind.json(run), kind.html(run)
        if driven.error is not None and run.kind is JobKind.TRAIN:
            honest = HostileCloud(None, simulated=run.simulated)
            resumed = drive(honest, store, add=False)
            if resumed.error is not None or not resumed.run.status.is_final:
                return [(Kind.WRONG, f"{what}: cannot be resumed: {resumed.error or resumed.run.status}")]
        elif run != driven.run:
            return [(Kind.WRONG, f"{what}: the store has another run")]
    except (MlcdError, ValueError, TypeError, KeyError, AttributeError) as error:
        return [(Kind.TRACEBACK, f"{what}: {type(error).__name__}: {error}")]
    return []


ATTACKS = (Attack(name="hostile-clouds", what="hostile cloud", count=220, run=_attack),)
