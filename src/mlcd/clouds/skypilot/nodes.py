"""The nodes of one lease on SkyPilot: a thread follows the launch and synchronises the lease's folder."""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlcd.clouds.exits import exit_file, read_exit
from mlcd.clouds.nodes import NodeOrder, NodesState, create_stop_file
from mlcd.clouds.provider import LeaseFailed
from mlcd.clouds.skypilot import transport
from mlcd.clouds.skypilot.client import SkyError, Worker
from mlcd.clouds.skypilot.metrics_file import FILE, read_node_metrics
from mlcd.clouds.skypilot.refusals import refused, shortened, with_reasons
from mlcd.clouds.skypilot.task import SkySettings, lease_folder
from mlcd.clouds.skypilot.tunnel import Tunnel
from mlcd.errors import ProviderError
from mlcd.home import write_private
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.trial import FailureKind
from mlcd.untrusted import Malformed, last_lines, printable

POLL_SECONDS = 2.0
SYNC_SECONDS = 4.0
STATUS_SECONDS = 30.0
"""The interval at which the provider is asked whether the nodes still exist."""
CALL_SECONDS = 60.0
FETCH_SECONDS = 600.0
DOWN_SECONDS = 300.0
METRICS_SECONDS = 30.0
DOWN_TRIES = 3
FETCH_TRIES = 3
LOG_LINES = 60
EXIT_FILE_TRIES = 5
"""How many times an ended job's exit files are checked_at for before they count as missing."""
_ENDED_JOB = ("SUCCEEDED", "FAILED", "FAILED_SETUP", "FAILED_DRIVER", "CANCELLED")


class SkyNodes:
    """Implements Nodes, Monitored, RemoteFiles and Tunnelled."""

    def __init__(
        self,
        worker: Worker,
        order: NodeOrder,
        settings: SkySettings,
        *,
        cluster: str,
        request: str,
        released: Callable[[], None],
    ) -> None:
        self._worker, self._order, self._settings, self._cluster = worker, order, settings, cluster
        self._request, self._on_released = request, released
        self._began = time.time()
        self._lock = threading.Lock()
        self._state = NodesState.STARTING
        self._failure: LeaseFailed | ProviderError | None = None
        self._hosts: list[str] = []
        self._home = ""
        self._on_cloud: tuple[str, str] | None = None
        self._closing = threading.Event()
        self._released = False
        self._tunnels: dict[int, Tunnel] = {}
        self._thread = threading.Thread(target=self._follow, name=f"sky-{cluster}", daemon=True)
        self._thread.start()

    # ---- Nodes

    def state(self) -> NodesState:
        """See Nodes; the state the thread saw last. Also raises ProviderError, where credentials stopped working."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if fault := next((tunnel.fault for tunnel in self._tunnels.values() if tunnel.fault), ""):
                raise LeaseFailed(FailureKind.LOST, f"{self._cluster}: {fault}", seconds=0.0)
            return self._state

    def ask_to_stop(self) -> None:
        """See Nodes. A node that cannot be reached now ends at its own limit."""
        create_stop_file(self._order.folder)
        hosts, remote = self._hosts, f"{self._home}{lease_folder(self._cluster)}/stop"
        action = lambda host: transport.touch(host, remote, seconds=CALL_SECONDS)  # noqa: E731
        threading.Thread(target=transport.on_each, args=(hosts, action), daemon=True).start()

    def used_seconds(self) -> float | None:
        """See Nodes: known once every node has ended."""
        total = 0.0
        for rank in range(self._order.count):
            try:
                end = read_exit(self._order.folder, rank)
            except (OSError, Malformed):  # the lease reports it
                return None
            if end is None:
                return None
            total += end.cpu_seconds or 0.0
        return total

    def release(self) -> None:
        """See Nodes. Raises ProviderError where the nodes could not be ended."""
        if self._released:
            return
        self._end_thread()
        with self._lock:
            tunnels, self._tunnels = tuple(self._tunnels.values()), {}
        for tunnel in tunnels:
            tunnel.close()
        self._take_down()
        self._released = True
        with self._lock:
            self._state = NodesState.ENDED
        self._write_metrics()
        self._on_released()

    # ---- Monitored

    def node_metrics(self) -> NodeMetrics | None:
        """See Monitored: on AWS, from CloudWatch; elsewhere None."""
        return read_node_metrics(self._order.folder)

    # ---- Tunnelled

    def reach(self, rank: int, address: str, port: int) -> str | None:
        """See Tunnelled: through ssh, so that no port of the node is opened."""
        with self._lock:
            if rank >= len(self._hosts) or self._released:
                return None
            if rank not in self._tunnels:
                log = self._order.folder / f"tunnel-{rank}.log"
                self._tunnels[rank] = Tunnel(self._hosts[rank], address, port, log=log)
            return self._tunnels[rank].place

    # ---- RemoteFiles

    def fetch(self, paths: Sequence[str]) -> None:
        """See RemoteFiles; also fetches the logs. Raises ProviderError where healthy nodes cannot be reached."""
        if not self._hosts or self._released:
            return
        failed: dict[str, str] = {}
        for _ in range(FETCH_TRIES):
            failed = self._fetch_news() | self._fetch(self._hosts[:1], transport.path_filters(paths), FETCH_SECONDS)
            if not failed or self._failure is not None:
                return
        raise ProviderError(f"{self._cluster}: its files could not be fetched: {'; '.join(failed.values())}")

    # ---- the thread

    def _follow(self) -> None:
        try:
            number = self._await_launch()
            if not self._closing.is_set():
                self._await_end(number)
        except (LeaseFailed, ProviderError) as error:
            with self._lock:
                self._failure = error
        except SkyError as error:
            with self._lock:
                self._failure = LeaseFailed(FailureKind.LOST, f"{self._cluster}: {error.text}", seconds=0.0)
        except OSError as error:  # the nodes sent something that is in the way, or the disk is full
            with self._lock:
                text = f"the nodes' files cannot be placed: {error.filename}: {error.strerror}"
                self._failure = LeaseFailed(FailureKind.ERROR, text, seconds=0.0)
        except (
            Exception
        ) as error:  # an answer of SkyPilot that is not as it should be: the lease must not wait for ever
            with self._lock:
                text = f"{self._cluster}: SkyPilot answered what mlcd cannot read: {type(error).__name__}: {error}"
                self._failure = LeaseFailed(FailureKind.LOST, printable(text, most_characters=300), seconds=0.0)

    def _await_launch(self) -> int | None:
        while not self._closing.wait(POLL_SECONDS):
            try:
                answer = self._worker.call("poll", seconds=CALL_SECONDS, request=self._request)
            except SkyError as error:
                raise refused(with_reasons(error, self._request_log()), infra=self._settings.infra) from error
            if answer["state"] == "CANCELLED":
                raise LeaseFailed(FailureKind.LAUNCH, f"{self._cluster}: the launch was cancelled", seconds=0.0)
            if answer["state"] == "SUCCEEDED":
                number = answer.get("job")
                return None if number is None else int(number)
        return None

    def _request_log(self) -> str:
        try:
            return str(self._worker.call("request_log", seconds=CALL_SECONDS, request=self._request, lines=LOG_LINES))
        except SkyError:
            return ""  # the error itself is reported without it

    def _await_end(self, number: int | None) -> None:
        found = self._call("hosts", CALL_SECONDS, cluster=self._cluster)
        self._hosts, self._home = found["hosts"], found["home"]
        checked_at, over = time.monotonic(), 0
        while not self._closing.wait(SYNC_SECONDS):
            failed = self._fetch_news()
            self._note_running()
            if self._has_ended() or over >= EXIT_FILE_TRIES:
                self._conclude(number)
                return
            if failed or over or time.monotonic() - checked_at >= STATUS_SECONDS:
                checked_at = time.monotonic()
                over += self._check_cluster(number, failed)

    def _check_cluster(self, number: int | None, failed: dict[str, str]) -> int:
        """1 when SkyPilot reports that the job has ended, else 0. Raises LeaseFailed when nodes are gone."""
        rows = self._call("status", CALL_SECONDS, names=[self._cluster], refresh=True)
        if not rows or rows[0]["state"] != "UP":
            is_spot = self._settings.use_spot or self._order.spot
            kind = FailureKind.INTERRUPTED if is_spot else FailureKind.LOST
            what = "is gone" if not rows else f"is {rows[0]['state']}"
            raise LeaseFailed(kind, f"the cluster {self._cluster} {what}; {'; '.join(failed.values())}", seconds=0.0)
        return int(self._call("job", CALL_SECONDS, cluster=self._cluster, number=number) in _ENDED_JOB)

    def _note_running(self) -> None:
        started = len(list(self._order.folder.glob("node-*/agent.pid")))
        if started >= self._order.count:
            with self._lock:
                self._state = NodesState.RUNNING

    def _has_ended(self) -> bool:
        return all(os.path.lexists(exit_file(self._order.folder, rank)) for rank in range(self._order.count))

    def _conclude(self, number: int | None) -> None:
        """Fetch everything, then set ENDED. Raises LeaseFailed LAUNCH where no agent wrote an exit.json."""
        failed = self._fetch_all_results()
        if not any(self._order.folder.glob("node-*/exit.json")):
            if failed:
                text = f"the nodes' files could not be fetched: {'; '.join(failed.values())}"
                raise LeaseFailed(FailureKind.LOST, text, seconds=0.0)
            raise LeaseFailed(FailureKind.LAUNCH, f"the job did not start: {self._log_tail(number)}", seconds=0.0)
        with self._lock:
            self._state = NodesState.ENDED

    def _log_tail(self, number: int | None) -> str:
        try:
            files = self._call(
                "logs", CALL_SECONDS, cluster=self._cluster, number=number, folder=str(self._order.folder)
            )
        except (SkyError, ProviderError) as error:
            return f"and its SkyPilot log could not be fetched: {shortened(str(error))}"
        lines = [line for file in files for line in last_lines(Path(file)) if line.strip()]
        return printable(shortened(" / ".join(lines[-5:]))) or "its SkyPilot log is empty"

    # ---- files

    def _fetch_news(self) -> dict[str, str]:
        """Fetch news; returns what failed, by host. A node's exit.json appears only after all it wrote before."""
        news, ends = transport.news_filters(self._settings.live), self._order.folder / ".ends"
        failed = self._fetch(self._hosts, news, CALL_SECONDS)
        failed |= self._fetch(self._hosts, transport.end_filters(), CALL_SECONDS, into=ends)
        ended = [file for file in ends.glob("node-*/exit.json") if not os.path.lexists(self._placed(file))]
        if ended:
            failed = self._fetch(self._hosts, news, CALL_SECONDS)
        if not failed:
            for file in ended:
                self._placed(file).parent.mkdir(exist_ok=True)
                file.replace(self._placed(file))  # whatever it is: the lease reads it
        return failed

    def _placed(self, end: Path) -> Path:
        return self._order.folder / end.parent.name / end.name

    def _fetch_all_results(self) -> dict[str, str]:
        """Fetch all nodes' logs and exits, then the first node's working folder; returns what failed, by host."""
        wanted = transport.result_filters(self._settings.outputs)
        return self._fetch_news() | self._fetch(self._hosts[:1], wanted, FETCH_SECONDS)

    def _fetch(
        self, hosts: Sequence[str], filters: Sequence[str], seconds: float, *, into: Path | None = None
    ) -> dict[str, str]:
        remote, folder = f"{self._home}{lease_folder(self._cluster)}", into or self._order.folder
        folder.mkdir(exist_ok=True)
        return transport.on_each(hosts, lambda host: transport.fetch(host, remote, folder, filters, seconds=seconds))

    # ---- the end

    def _end_thread(self) -> None:
        self._closing.set()
        self._thread.join(CALL_SECONDS + FETCH_SECONDS)

    def _take_down(self) -> None:
        last = "its nodes still exist"
        for _ in range(DOWN_TRIES):
            try:
                self._note_name_on_cloud()
                if self._worker.call("down", seconds=DOWN_SECONDS, cluster=self._cluster):
                    return
            except (SkyError, ProviderError) as error:
                last = shortened(getattr(error, "text", str(error)))
            time.sleep(POLL_SECONDS)
        raise ProviderError(
            f"{self._cluster} could not be taken down: {last}; run: mlcd down (or: sky down {self._cluster})"
        )

    def _note_name_on_cloud(self) -> None:
        if self._settings.cloud == "aws" and self._on_cloud is None:
            rows = self._worker.call("status", seconds=CALL_SECONDS, names=[self._cluster])
            if rows and rows[0]["on_cloud"] and rows[0]["region"]:
                self._on_cloud = rows[0]["on_cloud"], rows[0]["region"]

    def _write_metrics(self) -> None:
        """Write CloudWatch's metrics, or why there are none, into cloudwatch.json; never fails the lease."""
        if self._on_cloud is None:
            return
        name, region = self._on_cloud
        try:
            data = self._worker.call(
                "cloudwatch",
                seconds=METRICS_SECONDS,
                cluster_on_cloud=name,
                region=region,
                begin=self._began,
                end=time.time() + CALL_SECONDS,
            )
        except (SkyError, ProviderError) as error:
            data = {"missing": shortened(str(error))}
        with suppress(OSError):  # the disk is full
            write_private(self._order.folder / FILE, json.dumps(data))

    def _call(self, op: str, seconds: float, **given: object) -> Any:
        return self._worker.call(op, seconds=seconds, **given)
