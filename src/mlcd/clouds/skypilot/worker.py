"""SkyPilot's side of the engine: a program run by the Python that has SkyPilot, which may not be mlcd's.

    python worker.py

Reads one request per line from its standard input, {"id": 1, "op": "status", "given": {...}}, and writes one answer per
line to its standard output, {"id": 1, "value": ...} or {"id": 1, "error": {"types": [...], "message": ...}}. Answers
come as they are ready. SkyPilot's own output goes to standard error. Uses the standard library, SkyPilot and, for
CloudWatch, boto3.

When its input is closed, mlcd is gone: the worker then takes down whatever it launched and nobody released, and stops
the SkyPilot API server if it started that itself and the server is idle.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import importlib.util
import itertools
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

THREADS = 8
DOWN_TRIES = 3
LOG_BYTES = 1_000_000
MOST_LOGS = 200
ACTIVE = ("PENDING", "WAITING", "RUNNING")
"""States of an API server request that has not ended."""

launched: dict[str, str] = {}
"""Clusters this worker launched and nobody has taken down -> the launch's request."""
started_server = threading.Event()


def hello(**_: object) -> dict[str, Any]:
    """SkyPilot's version; starts its API server where none runs."""
    import sky  # noqa: PLC0415
    from sky.client import sdk  # noqa: PLC0415
    from sky.server import common  # noqa: PLC0415
    from sky.skylet import constants  # noqa: PLC0415

    if common.is_api_server_local() and not sdk._local_api_server_running():
        started_server.set()
        try:
            sdk.api_start()
        except RuntimeError as error:  # it names only the log, which has the reason
            raise RuntimeError(f"{error} ({_last_line(Path(constants.API_SERVER_LOGS).expanduser())})") from error
    return {"version": sky.__version__, "server": common.get_server_url()}


def _last_line(log: Path) -> str:
    lines = _tail(log).decode(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it is empty")


def check(*, cloud: str) -> dict[str, Any]:
    """Whether SkyPilot can use the cloud, with the output of its check."""
    from sky.client import sdk  # noqa: PLC0415

    output = _Text()
    enabled = sdk.stream_and_get(sdk.check((cloud,), verbose=False), output_stream=output)
    names = {name.lower() for clouds in enabled.values() for name, can in clouds.items() if "compute" in can}
    return {"enabled": cloud.lower() in names, "output": output.text}


def launch(*, task: Mapping[str, Any], cluster: str, idle_minutes: int | None, dryrun: bool = False) -> dict[str, str]:
    """Requests the nodes with the job on them; returns the request's id at once."""
    import sky  # noqa: PLC0415
    from sky.skylet.autostop_lib import AutostopWaitFor  # noqa: PLC0415

    made = sky.Task.from_yaml_config(dict(task))
    request = sky.launch(
        made,
        cluster_name=cluster,
        idle_minutes_to_autostop=idle_minutes,
        wait_for=None if idle_minutes is None else AutostopWaitFor.JOBS,
        down=idle_minutes is not None,
        dryrun=dryrun,
    )
    if not dryrun:
        launched[cluster] = str(request)
    return {"request": str(request)}


def poll(*, request: str) -> dict[str, Any]:
    """The state of a request; raises what it failed with. `job` is the job's number where the request is a launch."""
    import sky  # noqa: PLC0415

    found = sky.api_status([request], all_status=True)
    state = found[0].status if found else "CANCELLED"
    if state in ACTIVE:
        return {"state": state}
    value = sky.get(request)  # ended, so at once; raises what the request raised
    return {"state": state, "job": value[0] if isinstance(value, tuple | list) and value else None}


def outcome(*, request: str) -> str:
    """Waits for a request to end; returns its output. Raises what it failed with."""
    from sky.client import sdk  # noqa: PLC0415

    output = _Text()
    sdk.stream_and_get(request, output_stream=output)
    return output.text


def request_log(*, request: str, lines: int) -> str:
    """The last lines of the log of a request that has ended, failed or not."""
    from sky.client import sdk  # noqa: PLC0415

    output = _Text()
    response = sdk.server_common.make_authenticated_request(
        "GET", f"/api/stream?request_id={request}&format=plain&follow=false&tail={lines}", stream=True
    )
    for line in response.iter_lines(decode_unicode=True):
        output.write(line + "\n")
    return output.text


def hosts(*, cluster: str) -> dict[str, Any]:
    """The host names of the nodes for ssh and rsync, the first node first, and the job's home there.

    Writes SkyPilot's part of ~/.ssh. `home` is "" where it is ssh's login folder; on Slurm it is the cluster's own.
    """
    from sky.client.cli import command  # noqa: PLC0415

    records = command._get_cluster_records_and_set_ssh_config([cluster])
    if not records or records[0]["handle"] is None:
        return {"hosts": [], "home": ""}
    handle = records[0]["handle"]
    names = [cluster, *(f"{cluster}-worker{i}" for i in range(1, handle.launched_nodes))]
    info = handle.cached_cluster_info
    base = (info.provider_config or {}).get("sky_base_dir") if info is not None else None
    return {"hosts": names, "home": f"{base}/.sky_clusters/{handle.cluster_name_on_cloud}/" if base else ""}


def job(*, cluster: str, number: int | None) -> str | None:
    """The job's state in SkyPilot; None where SkyPilot knows no such job."""
    import sky  # noqa: PLC0415

    states = sky.get(sky.job_status(cluster, None if number is None else [number]))
    state = next(iter(states.values()), None)
    return None if state is None else state.value


def status(*, names: list[str] | None = None, refresh: bool = False) -> list[dict[str, Any]]:
    """Clusters of this user: name, state, nodes, cloud, region, and whether a launch is in progress.

    With `refresh` the provider is asked; a cluster that no longer exists there is omitted.
    """
    import sky  # noqa: PLC0415

    mode = sky.StatusRefreshMode.FORCE if refresh else sky.StatusRefreshMode.NONE
    found = {}
    for record in sky.get(sky.status(names, refresh=mode)):
        handle = record["handle"]
        found[record["name"]] = {
            "name": record["name"],
            "state": record["status"].value,
            "nodes": getattr(handle, "launched_nodes", None),
            "on_cloud": getattr(handle, "cluster_name_on_cloud", None),
            "cloud": str(handle.launched_resources.cloud).lower() if handle is not None else "",
            "region": handle.launched_resources.region if handle is not None else None,
            "active": False,
        }
    for request in sky.api_status():
        name = request.cluster_name
        if name and request.name.endswith("launch") and request.status in ACTIVE and (not names or name in names):
            row = {"name": name, "state": "INIT", "nodes": None, "on_cloud": None, "cloud": "", "region": None}
            found.setdefault(name, row)["active"] = True
    return list(found.values())


def down(*, cluster: str) -> bool:
    """Cancels a launch in progress, takes the nodes down; returns whether they are gone. Raises the last failure."""
    import sky  # noqa: PLC0415

    for tries_left in range(DOWN_TRIES - 1, -1, -1):
        try:
            _cancel_launches(cluster)
            sky.get(sky.down(cluster))
        except sky.exceptions.ClusterDoesNotExist:
            pass
        except (RuntimeError, OSError, sky.exceptions.NetworkError, sky.exceptions.ClusterStatusFetchingError):
            if not tries_left:
                raise
            time.sleep(2)
            continue
        if not status(names=[cluster]):
            launched.pop(cluster, None)
            return True
    return False


def _cancel_launches(cluster: str) -> None:
    import sky  # noqa: PLC0415

    mine = [
        r.request_id
        for r in sky.api_status(cluster_name=cluster)
        if r.cluster_name == cluster and r.name.endswith("launch") and r.status in ACTIVE
    ]
    if mine:
        sky.get(sky.api_cancel(mine, silent=True))


def logs(*, cluster: str, number: int | None, folder: str) -> list[str]:
    """Copies the ends of SkyPilot's own logs of a job into `folder`; returns the files."""
    import sky  # noqa: PLC0415

    paths = sky.download_logs(cluster, None if number is None else [str(number)])
    found = []
    for path in paths.values():
        for file in itertools.islice(sorted(Path(path).expanduser().rglob("*.log")), MOST_LOGS):
            if stat.S_ISREG(file.lstat().st_mode):  # the nodes have written them: no links, no pipes
                target = Path(folder) / file.name
                target.write_bytes(_tail(file))
                found.append(str(target))
    return found


def _tail(file: Path) -> bytes:
    """The end of a log, at most LOG_BYTES: logs of jobs have any size."""
    with file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(size - LOG_BYTES, 0))
        return log.read(LOG_BYTES)


def cloudwatch(**given: Any) -> dict[str, Any]:
    """See cloudwatch.py in this folder."""
    spec = importlib.util.spec_from_file_location("mlcd_cloudwatch", Path(__file__).with_name("cloudwatch.py"))
    if spec is None or spec.loader is None:
        raise ImportError("cloudwatch.py is not in the folder of worker.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.metrics(**given)
    return found


def stop_server(*, force: bool = False) -> bool:
    """Stops the local API server if it is idle, or always with `force`; returns whether it was stopped."""
    import sky  # noqa: PLC0415
    from sky.client import sdk  # noqa: PLC0415
    from sky.server import common  # noqa: PLC0415

    if not common.is_api_server_local() or not sdk._local_api_server_running():
        return False
    busy = any(request.cluster_name for request in sky.api_status())  # requests without a cluster are its own daemons
    if not force and (busy or sky.get(sky.status(all_users=True))):
        return False
    sky.api_stop()
    started_server.clear()
    return True


OPS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        hello,
        check,
        launch,
        poll,
        outcome,
        request_log,
        hosts,
        job,
        status,
        down,
        logs,
        cloudwatch,
        stop_server,
    )
}


class _Text:
    """A stream that collects SkyPilot's output as text."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""


def answer(line: str) -> dict[str, Any]:
    """The answer to one request."""
    asked = json.loads(line)
    try:
        return {"id": asked["id"], "value": OPS[asked["op"]](**asked.get("given", {}))}
    except (Exception, SystemExit) as error:  # the edge of this program: mlcd interprets the error
        types = [kind.__name__ for kind in type(error).__mro__]
        reasons = [f"{type(e).__name__}: {e}" for e in getattr(error, "failover_history", [])]
        return {"id": asked["id"], "error": {"types": types, "message": str(error), "reasons": reasons}}


def clean_up_after_mlcd() -> None:
    """Takes down what nobody released; then stops the server, if this worker started it and it is idle."""
    for cluster in list(launched):
        result = answer(json.dumps({"id": 0, "op": "down", "given": {"cluster": cluster}}))
        sys.stderr.write(f"mlcd is gone; taking {cluster} down: {json.dumps(result)}\n")
    if started_server.is_set():
        answer(json.dumps({"id": 0, "op": "stop_server"}))


def main() -> int:
    """Answers requests until the input is closed."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # SkyPilot prints to standard output; answers use a separate channel
    writing = threading.Lock()

    def reply(line: str) -> None:
        text = json.dumps(answer(line))
        with writing:
            try:
                channel.write(text + "\n")
                channel.flush()
            except BrokenPipeError:
                return  # mlcd is gone; the input is closed too

    with ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin:
            pool.submit(reply, line)
    clean_up_after_mlcd()
    return 0


if __name__ == "__main__":
    sys.exit(main())
