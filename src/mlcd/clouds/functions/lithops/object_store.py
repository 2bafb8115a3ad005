"""Object storage as functions and driver see it: whole objects, ranges and listings; counts every request."""

import errno
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from mlcd.clouds.functions.lithops.objects import EpochTry, ShardUpdate, Torn, unframe
from mlcd.errors import ProviderError
from mlcd.workloads.model import Floats

PARALLEL_GETS = 8


class OutOfRequests(Exception):
    """A call has used up the storage requests that were authorised for it."""


class ObjectStore:
    """One bucket. A listing costs as much as a PUT on every cloud whose prices we know, and is counted as one.

    storage    Lithops' own client
    bucket     "" is Lithops' own; on this machine any folder can be one
    most_puts, most_gets   None: unlimited (the driver)
    """

    def __init__(
        self, storage: Any, bucket: str = "", *, most_puts: int | None = None, most_gets: int | None = None
    ) -> None:
        self._storage, self._bucket = storage, bucket or storage.bucket
        self._most_puts, self._most_gets = most_puts, most_gets
        self._counting = Lock()
        self.puts = self.gets = 0

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises ProviderError where the storage is full."""
        self._count_put()
        try:
            self._storage.put_object(self._bucket, key, data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise ProviderError(
                f"the storage of the functions is full: {key} has {len(data):,} bytes ({error}); free some space there"
            ) from error

    def get(self, key: str, span: tuple[int, int] | None = None) -> bytes | None:
        """An object, or its bytes first..last; None where there is none. Raises OutOfRequests."""
        from lithops.storage.utils import StorageNoSuchKeyError  # noqa: PLC0415 - only where Lithops is installed

        with self._counting:
            if self._most_gets is not None and self.gets >= self._most_gets:
                raise OutOfRequests(f"more than the {self._most_gets} GETs that were authorised for a call")
            self.gets += 1
        extra = {} if span is None else {"Range": f"bytes={span[0]}-{span[1]}"}
        try:
            data: bytes = self._storage.get_object(self._bucket, key, extra_get_args=extra)
        except StorageNoSuchKeyError:
            return None
        return data

    def vector(self, key: str) -> tuple[dict[str, Any], Floats] | None:
        """A framed object; None where it does not exist or is still being written."""
        data = self.get(key)
        if data is None:
            return None
        try:
            return unframe(data)
        except Torn:
            return None

    def vectors(self, keys: Sequence[str]) -> list[tuple[dict[str, Any], Floats] | None]:
        """`vector` of many keys, fetched concurrently: object storage is slow per request, but parallel."""
        if len(keys) < 2:
            return [self.vector(key) for key in keys]
        with ThreadPoolExecutor(max_workers=min(PARALLEL_GETS, len(keys))) as pool:
            return list(pool.map(self.vector, keys))

    def keys(self, prefix: str) -> list[str]:
        """Every key below `prefix`, in order."""
        self._count_put()
        return sorted(self._storage.list_keys(self._bucket, prefix))

    def delete(self, keys: list[str]) -> None:
        """Delete objects; deleting is free."""
        if keys:
            self._storage.delete_objects(self._bucket, keys)

    def _count_put(self) -> None:
        if self._most_puts is not None and self.puts >= self._most_puts:
            raise OutOfRequests(f"more than the {self._most_puts} PUTs and listings that were authorised for a call")
        self.puts += 1


class EpochListing:
    """What a listing of one try at an epoch shows: how far each shard is, who closed, whether to stop."""

    def __init__(self, epoch_try: EpochTry, keys: list[str]) -> None:
        self.furthest: dict[int, ShardUpdate] = {}
        self.parts: set[ShardUpdate] = set()
        self.ends: list[str] = []
        self.stopped = False
        start = len(epoch_try.prefix)
        for key in keys:
            kind, _, name = key[start:].partition("/")
            if kind == "part":
                if (part := ShardUpdate.named(name)) is not None:
                    self._note(part)
            elif kind == "end":
                self.ends.append(key)
            elif key == epoch_try.stop:
                self.stopped = True

    def _note(self, part: ShardUpdate) -> None:
        """Of several that are equally far the first attempt counts, so that all readers agree."""
        self.parts.add(part)
        known = self.furthest.get(part.shard)
        if known is None or (part.step, -part.attempt) > (known.step, -known.attempt):
            self.furthest[part.shard] = part

    def steps(self, shard: int) -> int:
        """The steps of a shard so far."""
        known = self.furthest.get(shard)
        return 0 if known is None else known.step
