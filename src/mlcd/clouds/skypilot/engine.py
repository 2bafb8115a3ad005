"""Nodes on AWS, GCP, Azure, Kubernetes and whatever else SkyPilot supports: implements NodeEngine."""

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from mlcd.catalog import Catalog, Instance
from mlcd.clouds.nodes import PREFIX, Leftover, NodeOrder
from mlcd.clouds.shipping import NODES, ship
from mlcd.clouds.skypilot import prices
from mlcd.clouds.skypilot.client import SkyError, Worker
from mlcd.clouds.skypilot.credentials import ACCOUNTS, require, require_sky, sky_was_used
from mlcd.clouds.skypilot.nodes import DOWN_SECONDS, SkyNodes
from mlcd.clouds.skypilot.refusals import refused, shortened
from mlcd.clouds.skypilot.task import ALL_CLOUDS, SkySettings, cluster_name, make_task
from mlcd.errors import ProviderError
from mlcd.home import private_folder

SERVER_SECONDS = 180.0
"""SkyPilot's API server takes half a minute to start on a small machine."""
NOISE = 0.05
"""Deviation between two runs on the same kind of cloud nodes: an estimate, not measured (docs/clouds/skypilot.md)."""


class SkyPilotEngine:
    """One SkyPilot infra. The worker process starts when it is first needed; `close` ends it."""

    outlives_mlcd = True
    """Its nodes end only when their time is over (task.run_command), not when mlcd dies."""

    def __init__(
        self,
        settings: SkySettings,
        *,
        state: Path,
        catalog: Catalog,
        shipped: Mapping[str, tuple[str, ...]] = NODES,
    ) -> None:
        """`state` is mlcd's folder for its log, locks and what is shipped to nodes, `shipped` (see shipping.NODES)."""
        self.settings, self._state, self._catalog, self._roots = settings, state, catalog, shipped
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._checked = False

    @property
    def name(self) -> str:
        """As in `resources.infra`."""
        return self.settings.infra

    @property
    def noise(self) -> float:
        """See NodeEngine."""
        return NOISE

    def offer(self) -> tuple[Instance, ...]:
        """See NodeEngine. Reads files only: SkyPilot is not started."""
        require(self.settings.infra)
        return prices.offer(self.settings, self._catalog).instances

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the offer: where its prices come from."""
        return (f"prices are from {prices.offer(self.settings, self._catalog).source}",)

    def most_nodes(self, instance: str) -> int | None:  # noqa: ARG002
        """Only the provider knows."""
        return None

    def start(self, order: NodeOrder) -> SkyNodes:
        """See NodeEngine. The first call asks SkyPilot whether it can use the cloud, and starts its API server."""
        worker = self._checked_worker()
        cluster = cluster_name(order.lease_id)
        write_skyignore(order.folder)
        task = make_task(order, self.settings, agent=self._shipped())
        lock = self._lease_lock(cluster)
        lock.acquire(timeout=0)
        try:
            request = worker.call(
                "launch",
                seconds=SERVER_SECONDS,
                task=task,
                cluster=cluster,
                idle_minutes=self.settings.autostop_minutes,
            )["request"]
        except SkyError as error:
            _drop_lock(lock)
            raise refused(error, infra=self.settings.infra, ordering=True) from error
        except ProviderError:  # no answer: the launch may have started nevertheless
            with contextlib.suppress(SkyError, ProviderError):
                worker.call("down", seconds=DOWN_SECONDS, cluster=cluster)
            _drop_lock(lock)
            raise
        return SkyNodes(
            worker,
            order,
            self.settings,
            cluster=cluster,
            request=request,
            released=lambda: _drop_lock(lock),
        )

    def plan(self, order: NodeOrder) -> str:
        """The output of SkyPilot's dry run for the order; starts nothing. Raises LeaseFailed, ProviderError."""
        worker = self._checked_worker()
        task = make_task(order, self.settings, agent=self._shipped())
        name = cluster_name(order.lease_id)
        try:
            given = worker.call(
                "launch", seconds=SERVER_SECONDS, task=task, cluster=name, idle_minutes=None, dryrun=True
            )
            return str(worker.call("outcome", seconds=SERVER_SECONDS, request=given["request"]))
        except SkyError as error:
            raise refused(error, infra=self.settings.infra, ordering=True) from error

    def leftovers(self) -> tuple[Leftover, ...]:
        """See NodeEngine: the user's clusters of this cloud, including launches that have no node yet.

        An engine for ALL_CLOUDS finds those of every cloud. Does not start SkyPilot where it was never used.
        """
        require_sky(self.settings.infra)
        if not sky_was_used():
            return ()
        try:
            rows = self._running_worker().call("status", seconds=SERVER_SECONDS)
        except SkyError as error:
            raise ProviderError(f"{self.name}: SkyPilot cannot list its clusters: {shortened(error.text)}") from error
        return tuple(
            Leftover(
                cloud=self.name,
                lease_id=row["name"],
                what=f"SkyPilot cluster {row['name']}"
                + (f" of {row['nodes']} nodes" if row["nodes"] else "")
                + f" ({row['state']}{', being launched' if row['active'] else ''})",
                owned=self._is_owned(row["name"]),
            )
            for row in rows
            if row["name"].startswith(PREFIX)
            and (self.settings.cloud == ALL_CLOUDS or row["cloud"] in ("", self.settings.cloud))
        )

    def end(self, leftover: Leftover) -> None:
        """See NodeEngine."""
        try:
            gone = self._running_worker().call("down", seconds=DOWN_SECONDS, cluster=leftover.lease_id)
        except SkyError as error:
            raise ProviderError(f"{leftover.what} could not be taken down: {shortened(error.text)}") from error
        if not gone:
            raise ProviderError(f"{leftover.what} is still there; run: sky down {leftover.lease_id}")

    def check(self) -> str | None:
        """What is missing according to `sky check`, or None. Starts SkyPilot's API server, which takes a while."""
        require(self.settings.infra)
        try:
            found = self._running_worker().call("check", seconds=SERVER_SECONDS, cloud=self.settings.cloud)
        except SkyError as error:
            return shortened(error.text)
        return None if found["enabled"] else _hint(found["output"], self.settings.cloud)

    def close(self) -> None:
        """End the worker, which stops the API server it started if that is idle. Idempotent."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    # ---- inside

    def _running_worker(self) -> Worker:
        """A running worker with an API server."""
        with self._lock:
            if self._worker is None or not self._worker.is_alive:
                worker = Worker(require_sky(self.settings.infra), self._state / "skypilot.log")
                try:
                    worker.call("hello", seconds=SERVER_SECONDS)
                except SkyError as error:
                    worker.close()
                    raise ProviderError(f"SkyPilot cannot be used: {shortened(error.text)}") from error
                self._worker = worker
            return self._worker

    def _checked_worker(self) -> Worker:
        if not self._checked:
            if (lack := self.check()) is not None:
                raise ProviderError(f"{self.name}: {lack}")
            self._checked = True
        return self._running_worker()

    def _shipped(self) -> Path:
        return ship(self._state, self._roots)

    def _lease_lock(self, cluster: str) -> FileLock:
        folder = self._state / "leases"
        private_folder(folder)
        return FileLock(folder / f"{cluster}.lock", thread_local=False, mode=0o600)

    def _is_owned(self, cluster: str) -> bool:
        """Whether a running mlcd process holds the lease's lock; the system drops the lock of a killed one."""
        lock = self._lease_lock(cluster)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        _drop_lock(lock)
        return False


def _drop_lock(lock: FileLock) -> None:
    lock.release(force=True)
    Path(lock.lock_file).unlink(missing_ok=True)


def write_skyignore(folder: Path) -> None:
    """Write a .skyignore: without one SkyPilot skips what .gitignore lists, which often includes the job's data."""
    (folder / ".skyignore").write_text("# made by mlcd: everything in this folder goes to the nodes\n")


def _hint(output: str, cloud: str) -> str:
    """SkyPilot's reason and the command that fixes it."""
    account = ACCOUNTS.get(cloud)
    fix = account.command if account else f"sky check {cloud}"
    return f"SkyPilot cannot use {cloud}: {shortened(SkyError((), output).text)}; run: {fix}"
