"""Values of a job's environment variables: kept apart from the record, for the owner only, until the run has ended.

The store has the variables' names. A run that may continue has their values in $MLCD_HOME/envs/RUN.json, and a lease
has them in its job.json, which the agent reads.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from mlcd.home.folder import private_folder, write_private
from mlcd.untrusted import Malformed, read_json

FOLDER = "envs"
MOST_BYTES = 4 * 2**20
"""Of a file with values: a job file has at most 256 KiB, and JSON takes at most 12 bytes for one of its characters."""


def keep(home: Path, run_id: str, values: Mapping[str, str]) -> None:
    """Keep the values for when the run is resumed. Raises OSError."""
    if values:
        write_private(private_folder(home / FOLDER) / f"{run_id}.json", json.dumps(dict(values)))


def kept(home: Path, run_id: str) -> dict[str, str]:
    """The values of a run that has not ended; {} where there are none. Raises Malformed, OSError."""
    file = home / FOLDER / f"{run_id}.json"
    try:
        found = read_json(file, most_bytes=MOST_BYTES)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Malformed(str(file), "should hold the value of each variable")
    return found


def forget(home: Path, run_id: str) -> None:
    """Remove the values of a run that has ended, from its leases, too. Never fails."""
    with contextlib.suppress(OSError):
        (home / FOLDER / f"{run_id}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for file in (home / "work" / run_id / "leases").glob("*/job.json"):
            if not file.parent.is_symlink():  # the job could write there
                forget_in_lease(file.parent)


def forget_in_lease(folder: Path) -> None:
    """Remove the values from the job.json of a lease that has ended; the names stay. Never fails."""
    file = folder / "job.json"
    with contextlib.suppress(OSError):
        try:
            data = read_json(file, most_bytes=MOST_BYTES)
            values = data.get("envs") if isinstance(data, dict) else None
            if isinstance(values, dict) and any(values.values()):
                write_private(file, json.dumps({**data, "envs": dict.fromkeys(values, "")}, indent=2))
        except FileNotFoundError:
            return
        except (Malformed, OSError):  # not as mlcd wrote it, or no room to write it again
            file.unlink()
