"""Connections whose socket fails under them, which a real client brings about only by chance."""

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from uvicorn.server import ServerState  # noqa: E402

from mlcd.server.front import Connections, Front  # noqa: E402
from mlcd.server.journal import Journal  # noqa: E402
from mlcd.server.limits import Limits  # noqa: E402
from mlcd.server.memory import Memory  # noqa: E402


async def nothing(scope: Any, receive: Any, send: Any) -> None: ...


def opened(connections: Connections) -> tuple[Front, MagicMock]:
    config = uvicorn.Config(nothing, log_config=None, lifespan="off")
    config.load()
    front = connections.protocol(
        config=config, server_state=ServerState(), app_state={}, _loop=asyncio.get_running_loop()
    )
    transport = MagicMock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    front.connection_made(transport)
    front.data_received(b"GET /")
    return front, transport


def test_a_client_that_was_reset_does_not_stop_the_watch_over_others() -> None:
    async def check() -> None:
        connections = Connections(Limits(header_seconds=0.01), Memory(2**20), Journal())
        watched = [opened(connections) for _ in range(6)]
        for _, transport in watched[::2]:
            transport.write_eof.side_effect = OSError(107, "Transport endpoint is not connected")
        watched[1][1].write.side_effect = RuntimeError("a bug")
        await asyncio.sleep(0.02)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        asyncio.get_running_loop().call_soon(connections.start)
        for _ in range(200):
            await asyncio.sleep(0.02)
            if all(transport.write.called for _, transport in watched):
                break
        assert all(transport.write.called for _, transport in watched)
        assert all(transport.abort.called for _, transport in watched[::2])

    asyncio.run(check())


def test_connections_that_close_when_their_answers_are_read_count_until_then() -> None:
    async def check() -> None:
        limits = Limits(connections=10)
        connections = Connections(limits, Memory(2**20), Journal())
        unread = [opened(connections) for _ in range(limits.connections)]
        for front, transport in unread:  # uvicorn has closed them, and their clients do not read
            transport.is_closing.return_value = True
            assert not front.is_over(asyncio.get_running_loop().time())
        newest, transport = opened(connections)
        assert not transport.write.called  # it is admitted: the oldest of them makes room
        assert [transport.abort.called for _, transport in unread] == [True] + [False] * 9
        assert len(connections.open - connections.closing.keys()) == limits.connections
        newest.drop()

    asyncio.run(check())
