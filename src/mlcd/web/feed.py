"""Live updates: one thread watches the store for all clients, and tells each what has changed.

The thread asks SQLite whether anybody has written, which costs a few microseconds; only then does it read the runs that
somebody watches, each once however many clients there are. It never writes and holds no lock: the engine does not know
of it. A client that does not read is dropped; its browser connects again.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from mlcd.errors import MlcdError, StoreError
from mlcd.report.result_types import result_json
from mlcd.store.store import Store
from mlcd.web.records import NoSuchRun, Records

POLL_SECONDS = 0.2
LIVE_SECONDS = 2.0
"""How often it is asked whether the processes of the watched runs are still there: a killed one writes nothing."""
PING_SECONDS = 15.0
"""A comment is sent so often, so that a client which is gone is noticed."""
MOST_WAITING = 16
"""Events that a client may be behind. Then it is dropped."""
RETRY_MS = 1000
"""After this time a browser connects again."""
TROUBLE_SECONDS = 1.0
"""How long the watcher waits before it looks at a store again that it could not read."""
MOST_CLIENTS = 200


class Client:
    """One stream of events of one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.loop = asyncio.get_running_loop()
        self.waiting: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)

    def tell(self, event: str) -> None:
        """Called by the watcher's thread; never waits."""
        with suppress(RuntimeError):  # the server is shutting down
            self.loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: str) -> None:
        if self.waiting.full():  # it does not read: end its stream
            while not self.waiting.empty():
                self.waiting.get_nowait()
            self.waiting.put_nowait(None)
        else:
            self.waiting.put_nowait(event)


class Feed:
    """All streams of a server."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._clients: dict[str, set[Client]] = {}
        self._last: dict[str, tuple[object, str]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self.polls = 0
        """How often a run was read: tests count it."""

    def start(self) -> None:
        """Start the watcher; it sleeps while there are no clients."""
        threading.Thread(target=self._watch, name="mlcd-feed", daemon=True).start()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake.set()
        with self._lock:
            clients = [client for each in self._clients.values() for client in each]
        for client in clients:
            with suppress(RuntimeError, asyncio.QueueFull):
                client.waiting.put_nowait(None)

    @property
    def clients(self) -> int:
        """How many streams are open."""
        with self._lock:
            return sum(len(each) for each in self._clients.values())

    async def stream(self, run_id: str) -> AsyncIterator[str]:
        """Server-sent events: where the run stands, now and after every change."""
        client = Client(run_id)
        with self._lock:
            self._clients.setdefault(run_id, set()).add(client)
            self._last.pop(run_id, None)  # so that the newcomer is told at once
        self._wake.set()
        try:
            yield f"retry: {RETRY_MS}\n\n"
            while True:
                try:
                    event = await asyncio.wait_for(client.waiting.get(), PING_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                watching = self._clients.get(run_id, set())
                watching.discard(client)
                if not watching:
                    self._clients.pop(run_id, None)
                    self._last.pop(run_id, None)

    # ---- the watcher's thread

    def _watch(self) -> None:
        while not self._closed:
            self._wake.wait()
            try:
                with self._records.store() as store:
                    self._watch_store(store)
            except MlcdError as error:
                self._tell_all("trouble", {"error": str(error)})
                time.sleep(TROUBLE_SECONDS)
            except Exception as error:  # the clients are told, and the others go on
                logging.getLogger("mlcd.web").exception("the watcher of the store failed")
                self._tell_all("trouble", {"error": f"unexpected {type(error).__name__}; this is a bug in mlcd"})
                time.sleep(TROUBLE_SECONDS)

    def _watch_store(self, store: Store) -> None:
        """Until nobody watches any more. Raises StoreError."""
        version, checked = -1, 0.0
        while not self._closed:
            with self._lock:
                watched = list(self._clients)
                new = [run_id for run_id in watched if run_id not in self._last]
            if not watched:
                self._wake.clear()
                with self._lock:
                    if not self._clients:
                        return
                continue
            now, found = time.monotonic(), store.changes()
            if found != version or now - checked > LIVE_SECONDS:
                if now - checked > LIVE_SECONDS and not store.is_as_opened():
                    return
                version, checked, new = found, now, watched
            for run_id in new:
                self._look(store, run_id)
            time.sleep(POLL_SECONDS)

    def _look(self, store: Store, run_id: str) -> None:
        """Tell the clients of a run where it stands, if that has changed."""
        rows = store.row_count(run_id)
        key: object = (rows, bool(rows) and store.is_live(run_id))  # only a known name becomes part of a path
        with self._lock:
            known = self._last.get(run_id)
        if known is not None and known[0] == key:
            return
        try:
            self.polls += 1
            now, name = result_json(self._records.now(run_id)), "now"
        except NoSuchRun as error:
            now, name = {"error": str(error)}, "gone"
        except StoreError as error:
            now, name = {"error": str(error)}, "trouble"
        event = _event(name, now)
        with self._lock:
            self._last[run_id] = (key, event)
            clients = list(self._clients.get(run_id, ()))
        for client in clients:
            client.tell(event)

    def _tell_all(self, name: str, value: object) -> None:
        with self._lock:
            clients = [client for each in self._clients.values() for client in each]
            self._last.clear()
        for client in clients:
            client.tell(_event(name, value))


def _event(name: str, value: object) -> str:
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n"
