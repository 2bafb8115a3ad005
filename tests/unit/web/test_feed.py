"""Live updates: one reading for all clients, and a client that does not read is dropped."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.ui_page import JOB

import mlcd
from mlcd.web.feed import MOST_WAITING, Client, Feed
from mlcd.web.records import Records


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run_id(home: Path) -> str:
    return mlcd.train({**JOB, "search": {"strategy": "heterbo", "max_trials": 2}}, home=home).run_id


async def next_event(stream: AsyncIterator[str]) -> tuple[str, dict[str, object]]:
    async for text in stream:
        if text.startswith("event: "):
            name, data = text.splitlines()[:2]
            return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))
    raise AssertionError("the stream has ended")


def test_fifty_clients_cost_one_reading(home: Path, run_id: str) -> None:
    async def watch() -> int:
        feed = Feed(Records(home))
        streams = [feed.stream(run_id) for _ in range(50)]
        starts = [asyncio.ensure_future(next_event(stream)) for stream in streams]
        await asyncio.sleep(0.1)
        assert feed.clients == 50
        feed.start()
        found = await asyncio.wait_for(asyncio.gather(*starts), 120)
        assert {name for name, _ in found} == {"now"}
        assert {value["run_id"] for _, value in found} == {run_id}
        feed.close()
        return feed.polls

    assert asyncio.run(watch()) == 1


def test_stalled_client_is_dropped_and_nobody_waits_for_it() -> None:
    async def stall() -> list[str | None]:
        client = Client("run")
        for number in range(10 * MOST_WAITING):  # nobody reads meanwhile: were it to wait, this would not end
            client.tell(f"event {number}")
        await asyncio.sleep(0.05)
        found = []
        while not client.waiting.empty():
            found.append(client.waiting.get_nowait())
        return found

    found = asyncio.run(stall())
    assert len(found) <= MOST_WAITING
    assert None in found, "its stream ends"


def test_unknown_run_reaches_no_path(home: Path) -> None:
    async def watch() -> str:
        feed = Feed(Records(home))
        feed.start()
        name, _ = await asyncio.wait_for(next_event(feed.stream("../../etc/passwd")), 120)
        feed.close()
        return name

    assert asyncio.run(watch()) == "gone"
    assert not list(home.parent.glob("**/passwd*"))
