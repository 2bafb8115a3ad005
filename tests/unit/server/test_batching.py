"""Requests become batches: which requests wait, which run together, and what happens when a run fails."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numpy")
from mlcd.server.batching import Batcher
from mlcd.server.model import ModelRefused
from mlcd.server.protocol import BadRequest

Feeds = Mapping[str, Any]


class Doubles:
    """A model that doubles its input, blocks while held, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self.replicas: set[int] = set()
        self.free = threading.Event()
        self.free.set()

    def run(self, replica: int, feeds: Feeds) -> list[Any]:
        assert self.free.wait(10)
        self.batches.append(feeds["x"].ravel().tolist())
        self.replicas.add(replica)
        if (feeds["x"] == -1).any():
            raise ModelRefused("minus one")
        if (feeds["x"] == -2).any():
            raise RuntimeError("a fault of ours")
        return [feeds["x"] * 2]


def one(*values: float) -> Feeds:
    """A request with an item for each value."""
    return {"x": np.array(values, dtype=np.float32).reshape(-1, 1)}


def with_batcher(
    model: Doubles,
    check: Callable[[Batcher], Awaitable[None]],
    *,
    rows: int = 4,
    replicas: int = 1,
    delay: float = 0.0,
    limit: int = 99,
) -> None:
    async def main() -> None:
        batcher = Batcher(model.run, max_rows=rows, replicas=replicas, delay_seconds=delay, limit=limit)
        try:
            await check(batcher)
        finally:
            model.free.set()
            batcher.close()

    asyncio.run(main())


async def submitted(batcher: Batcher, *feeds: Feeds) -> list[Any]:
    answers = [asyncio.ensure_future(batcher.submit(each, len(next(iter(each.values()))))) for each in feeds]
    return list(await asyncio.gather(*answers, return_exceptions=True))


def test_requests_that_arrive_together_share_a_batch() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        answers = await submitted(batcher, one(1), one(2, 3), one(4))
        assert [answer[0].ravel().tolist() for answer in answers] == [[2], [4, 6], [8]]
        assert model.batches == [[1, 2, 3, 4]]

    with_batcher(model, check)


def test_a_batch_is_never_larger_than_allowed_and_keeps_the_order() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        await submitted(batcher, one(1, 2, 3), one(4, 5), one(6), one(7))
        assert model.batches == [[1, 2, 3, 6], [4, 5, 7]]

    with_batcher(model, check)


def test_requests_that_arrive_while_replicas_are_busy_share_the_next_batch() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        model.free.clear()
        first = asyncio.ensure_future(batcher.submit(one(1), 1))
        await asyncio.sleep(0.05)
        others = [asyncio.ensure_future(batcher.submit(one(value), 1)) for value in (2, 3)]
        await asyncio.sleep(0.05)
        assert (batcher.counts.running, batcher.counts.waiting) == (1, 2)
        model.free.set()
        await asyncio.gather(first, *others)
        assert model.batches == [[1], [2, 3]]
        assert (batcher.counts.running, batcher.counts.waiting, batcher.counts.rows) == (0, 0, 3)

    with_batcher(model, check)


def test_a_request_waits_for_others_up_to_the_delay() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.submit(one(1), 1))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, batcher.submit(one(2), 1))
        assert model.batches == [[1, 2]]

    with_batcher(model, check, delay=0.5)


def test_a_full_batch_does_not_wait() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        await asyncio.wait_for(submitted(batcher, one(1, 2), one(3, 4)), timeout=30)
        assert model.batches == [[1, 2, 3, 4]]

    with_batcher(model, check, delay=10_000)


def test_different_shapes_are_different_batches() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        await submitted(batcher, one(1), {"x": np.array([[2.0, 3.0]])}, one(4))
        assert model.batches == [[1, 4], [2, 3]]

    with_batcher(model, check)


def test_replicas_run_at_the_same_time() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        model.free.clear()
        answers = [asyncio.ensure_future(batcher.submit(one(value), 1)) for value in (1, 2, 3)]
        await asyncio.sleep(0.05)
        assert batcher.counts.running == 2
        model.free.set()
        await asyncio.gather(*answers)
        assert model.replicas == {0, 1}

    with_batcher(model, check, rows=1, replicas=2)


def test_only_the_faulty_request_is_refused() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        good, bad, other = await submitted(batcher, one(1), one(-1), one(3))
        assert (good[0].item(), other[0].item()) == (2, 6)
        assert isinstance(bad, BadRequest)
        assert bad.status == 400
        assert batcher.counts.refused == 1

    with_batcher(model, check)


def test_a_replica_continues_after_a_server_error() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        (fault,) = await submitted(batcher, one(-2))
        assert isinstance(fault, RuntimeError)
        (answer,) = await submitted(batcher, one(5))
        assert answer[0].item() == 10

    with_batcher(model, check)


def test_requests_beyond_the_queue_limit_are_turned_away() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        model.free.clear()
        first = asyncio.ensure_future(batcher.submit(one(1), 1))
        await asyncio.sleep(0.05)
        waiting = [asyncio.ensure_future(batcher.submit(one(value), 1)) for value in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(BadRequest, match="2 requests are already waiting") as refused:
            await batcher.submit(one(4), 1)
        assert refused.value.status == 503
        assert batcher.counts.turned_away == 1
        model.free.set()
        await asyncio.gather(first, *waiting)

    with_batcher(model, check, limit=2)


def test_requests_of_disconnected_clients_are_not_run() -> None:
    model = Doubles()

    async def check(batcher: Batcher) -> None:
        model.free.clear()
        first = asyncio.ensure_future(batcher.submit(one(1), 1))
        await asyncio.sleep(0.05)
        remaining, stays = (asyncio.ensure_future(batcher.submit(one(value), 1)) for value in (2, 3))
        await asyncio.sleep(0)
        remaining.cancel()
        await asyncio.sleep(0)
        model.free.set()
        await asyncio.gather(first, stays)
        assert model.batches == [[1], [3]]
        assert batcher.counts.waiting == 0

    with_batcher(model, check)
