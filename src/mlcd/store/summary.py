"""One line of the list of runs, and which runs a list has."""

from dataclasses import dataclass

from mlcd.run.kind import Kind
from mlcd.store.database import Connection
from mlcd.trial.outcome import Status
from mlcd.units import Usd

MOST_POINTS = 40
"""Points of `RunSummary.spending`; of more steps, some are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `mlcd runs`. `trials` counts the trials and epochs that have ended; `spent` covers all steps.

    goal      in words
    choice    the configuration that was chosen; "" where none was, or none yet
    fleets    on functions: how many epochs ran on the functions that most ran on; "" of other kinds
    damage    what is wrong with the run's record; "" where nothing is. Of a damaged run, only the name is known
    budget    the most that may be spent; None without a limit
    spending  what was spent after each step that has ended, in order
    made_by   who started it, and on which machine, in a store that a team shares; else ""
    """

    run_id: str
    created: str
    cloud: str
    strategy: str
    status: Status | None
    trials: int
    spent: Usd
    kind: Kind = Kind.TRAIN
    goal: str = ""
    choice: str = ""
    fleets: str = ""
    damage: str = ""
    budget: Usd | None = None
    spending: tuple[Usd, ...] = ()
    made_by: str = ""

    def state(self, *, live: bool) -> str:
        """The run's state as it is listed: `stopped` for one that runs no more although it has not ended."""
        if self.damage:
            return "damaged"
        return "stopped" if self.status is Status.RUNNING and not live else str(self.status)

    def row(self, *, live: bool) -> dict[str, object]:
        """The run as JSON, and as a line of CSV. `live`: whether a process works on it now."""
        return {
            "run_id": self.run_id,
            "kind": self.kind,
            "created": self.created,
            "cloud": self.cloud,
            "strategy": self.strategy,
            "goal": self.goal,
            "choice": self.choice or None,
            "status": "damaged" if self.damage else str(self.status),
            "damage": self.damage,
            "live": live,
            "trials": self.trials,
            "spent_usd": self.spent.dollars,
            "made_by": self.made_by or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are wanted; None for all.

    words   every one of them is in the run's name, cloud, strategy or date
    status  the last one that was recorded
    """

    words: tuple[str, ...] = ()
    kind: Kind | None = None
    status: Status | None = None


def find_names(db: Connection, wanted: RunFilter, *, limit: int, offset: int) -> tuple[list[str], int]:
    """The names of the runs that are wanted, the newest first, and how many there are in all.

    Only the columns that are asked for are read, and no digest is checked: a list of 50 from 10,000 runs is quick.
    """
    clauses, values = ["1 = 1"], list[object]()
    masks = [f"%{_plain(word)}%" for word in wanted.words]
    if wanted.kind is not None:
        masks.append(f'%"kind":"{wanted.kind}"%')
    for mask in masks:
        clauses.append("lower(header) LIKE lower(?) ESCAPE '\\'")
        values.append(mask)
    if wanted.status is not None:
        clauses.append(_LAST_STATUS)
        values.append(wanted.status.value)
    where = " AND ".join(clauses)
    counted = db.execute(f"SELECT count(*) AS found FROM runs WHERE {where}", values).fetchone()  # noqa: S608 - ours
    query = f"SELECT run_id FROM runs WHERE {where} ORDER BY rowid DESC LIMIT ? OFFSET ?"  # noqa: S608 - ours
    found = db.execute(query, (*values, limit, offset)).fetchall()
    return [str(row["run_id"]) for row in found], int(counted["found"])


_LAST_STATUS = "(SELECT status FROM statuses s WHERE s.run_id = runs.run_id ORDER BY id DESC LIMIT 1) = ?"


def _plain(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def thinned(amounts: list[Usd]) -> tuple[Usd, ...]:
    """At most MOST_POINTS of them, evenly, the last included."""
    if len(amounts) <= MOST_POINTS:
        return tuple(amounts)
    last = len(amounts) - 1
    return tuple(amounts[round(at * last / (MOST_POINTS - 1))] for at in range(MOST_POINTS))
