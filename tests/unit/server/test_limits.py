"""What clients may take: memory in flight, lines of the log, names for a server on loopback, options."""

import io
import logging
from pathlib import Path

import pytest

from mlcd.errors import BadInput
from mlcd.server.journal import MOST_KINDS, Journal
from mlcd.server.limits import Limits
from mlcd.server.memory import SMALL_BYTES, Memory
from mlcd.server.options import ServerOptions
from mlcd.server.origin import is_loopback, stranger
from mlcd.server.protocol import BadRequest


class TestMemory:
    def test_large_requests_are_turned_away_and_small_ones_never(self) -> None:
        memory = Memory(10 * SMALL_BYTES)
        first, second, small = memory.hold(), memory.hold(), memory.hold()
        first.resize(7 * SMALL_BYTES)
        with pytest.raises(BadRequest) as turned_away:
            second.resize(4 * SMALL_BYTES)
        assert turned_away.value.status == 503
        small.resize(SMALL_BYTES)
        first.resize(6 * SMALL_BYTES)
        second.resize(4 * SMALL_BYTES)
        assert memory.held_bytes == memory.limit_bytes
        for each in (first, second, small):
            each.set(0)
        assert memory.held_bytes == 0

    def test_what_can_never_fit_is_not_told_to_try_again(self) -> None:
        with pytest.raises(BadRequest) as refused:
            Memory(10 * SMALL_BYTES).hold().resize(11 * SMALL_BYTES)
        assert refused.value.status == 413


class TestJournal:
    def log(self, interval_seconds: float = 1000.0) -> tuple[logging.Logger, Journal, io.StringIO]:
        stream = io.StringIO()
        journal = Journal(stream, interval_seconds=interval_seconds)
        logger = logging.Logger("test")
        logger.addHandler(journal)
        return logger, journal, stream

    def test_a_kind_is_written_once_and_then_counted(self) -> None:
        logger, journal, stream = self.log()
        for number in range(500):
            logger.warning("slow client %d", number)
        logger.warning("another kind")
        assert len(stream.getvalue().splitlines()) == 2
        journal.write_counts()
        assert len(stream.getvalue().splitlines()) == 2
        journal.write_counts(ending=True)
        assert "slow client 0 (499 more" in stream.getvalue().splitlines()[2]
        journal.write_counts(ending=True)
        assert len(stream.getvalue().splitlines()) == 3

    def test_the_next_interval_has_a_line_with_the_count(self) -> None:
        logger, journal, stream = self.log(interval_seconds=0.0)
        logger.warning("kind")
        logger.warning("kind")
        journal.write_counts()
        assert len(stream.getvalue().splitlines()) == 2

    def test_endless_kinds_are_one(self) -> None:
        logger, _, stream = self.log()
        for number in range(MOST_KINDS * 3):
            logger.warning(f"kind {number}")
        assert len(stream.getvalue().splitlines()) == MOST_KINDS + 1

    def test_a_full_disk_is_no_reason_to_end(self) -> None:
        class Full(io.StringIO):
            def write(self, _: str) -> int:
                raise OSError(28, "No space left on device")

        logger = logging.Logger("test")
        logger.addHandler(Journal(Full()))
        logger.warning("kind")


class TestOrigin:
    @pytest.mark.parametrize(
        "value",
        ["localhost", "localhost:8000", "127.0.0.1:80", "127.8.8.8", "[::1]", "[::1]:80", "LocalHost", "a.localhost"],
    )
    def test_this_machine(self, value: str) -> None:
        assert stranger([(b"host", value.encode()), (b"origin", b"http://" + value.encode())]) == ""

    @pytest.mark.parametrize(
        "value",
        [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[",
            "",
            "null",
            "[::2]:1",
            "::1@x",
            "10.0.0.1",
            "\xff",
            "127.0.0.1@evil.example:80",
        ],
    )
    def test_others(self, value: str) -> None:
        assert "--allow-host" in stranger([(b"host", value.encode("latin-1"))])
        assert "Origin" in stranger([(b"host", b"localhost"), (b"origin", value.encode("latin-1"))])

    def test_allowed(self) -> None:
        assert stranger([(b"host", b"models.example:443")], ("models.example",)) == ""

    def test_loopback(self) -> None:
        assert [is_loopback(name) for name in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example")] == [
            True,
            True,
            True,
            False,
            False,
            False,
        ]


class TestOptions:
    @pytest.mark.parametrize(
        "name", ["connections", "header_bytes", "header_seconds", "body_seconds", "in_flight_bytes"]
    )
    @pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
    def test_out_of_range(self, name: str, value: float) -> None:
        with pytest.raises(BadInput, match=f"--{name.replace('_', '-')}: must be more than 0"):
            Limits(**{name: value})  # type: ignore[arg-type]

    def test_a_body_that_could_never_be_held(self) -> None:
        with pytest.raises(BadInput, match="--in-flight-bytes: must be --request-bytes or more"):
            ServerOptions(model=Path("m.onnx"), request_bytes=2**20, limits=Limits(in_flight_bytes=2**19))

    def test_arguments_carry_every_limit(self) -> None:
        options = ServerOptions(
            model=Path("m.onnx"), limits=Limits(connections=7, body_seconds=3.5), allowed_hosts=("a",)
        )
        given = options.arguments()
        assert {"--connections=7", "--body-seconds=3.5", "--header-bytes=16384", "--idle-seconds=75.0"} <= set(given)
        assert given[given.index("--allow-host") + 1] == "a"
