"""Texts of a job file as long as the file may be: each is read or refused in linear time."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from mlcd.errors import SpecError
from mlcd.spec.data import DATA
from mlcd.spec.functions import memory
from mlcd.spec.knobs import knob_values
from mlcd.spec.mapping import tree
from mlcd.spec.node import YamlNode
from mlcd.spec.parse import gpus
from mlcd.spec.quantity import budget
from mlcd.spec.serving import latency, rate

LONG = 200_000
HANG_SECONDS = 60.0
"""Linear time is a hundredth of a second; quadratic time minutes."""
SPACES = f"1{' ' * LONG}x"


def _data(field: str) -> Callable[[YamlNode], object]:
    return lambda node: DATA(tree({"location": "aws/us-east-1", "size": "1 GB", field: node.value}))


@pytest.fixture(autouse=True)
def _hang_ends() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"still read after {HANG_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        pytest.param(rate, SPACES, id="rate"),
        pytest.param(latency, SPACES, id="latency"),
        pytest.param(budget, SPACES, id="money"),
        pytest.param(memory, SPACES, id="memory"),
        pytest.param(_data("size"), SPACES, id="size"),
        pytest.param(_data("egress"), SPACES, id="egress"),
        pytest.param(_data("egress"), f"1 /{' ' * LONG}GBx", id="egress per"),
        pytest.param(_data("bandwidth"), SPACES, id="bandwidth"),
        pytest.param(gpus, f"{'.' * LONG}x", id="gpus"),
        pytest.param(gpus, f"{'1.' * LONG}x", id="gpus of digits"),
    ],
)
def test_a_long_text_is_refused_at_once(read: Callable[[YamlNode], object], text: str) -> None:
    with pytest.raises(SpecError):
        read(YamlNode(value=text))


@pytest.mark.parametrize("text", [f"{'.' * LONG}x", f"{'1e' * LONG}..x", f"1..{' ' * LONG}x"])
def test_a_long_value_of_a_knob_is_a_text(text: str) -> None:
    assert knob_values(YamlNode(value=text)) == (text,)


@pytest.mark.parametrize("text", ["0.1..0.5", "1..", "1...4", "1 .. 4 GB", "-1..1e3", "...", "1e3 .. "])
def test_half_a_range_and_one_of_fractions_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is not a range of whole numbers"):
        knob_values(YamlNode(value=text))


@pytest.mark.parametrize(("text", "per_second"), [("500/s", 500.0), ("1,500 requests / s ", 1500.0), (" 20 rps", 20.0)])
def test_rates_are_read_as_before(text: str, per_second: float) -> None:
    assert rate(YamlNode(value=text)) == per_second
