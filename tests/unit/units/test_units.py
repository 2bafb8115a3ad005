import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.units import MICROS, ZERO, Usd, format_seconds, parse_seconds, parse_usd

micros = st.integers(min_value=0, max_value=10**18)


@given(micros)
def test_money_round_trips_as_text(amount: int) -> None:
    exact = f"{Decimal(amount) / MICROS:f}"
    for form in ("{} USD", "${}", "{}", "USD {}", " {} $ "):
        assert parse_usd(form.format(exact)) == Usd(amount)


@given(st.integers(min_value=0, max_value=10**12))
def test_money_may_have_its_thousands_separated(dollars: int) -> None:
    assert parse_usd(f"{dollars:,}.25 USD") == Usd(dollars * MICROS + 250_000)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_bare_number_is_dollars(dollars: int) -> None:
    assert parse_usd(dollars) == parse_usd(float(dollars)) == Usd(dollars * MICROS)


@given(micros, micros, st.integers(min_value=0, max_value=1000))
def test_money_adds_like_integers(a: int, b: int, count: int) -> None:
    assert Usd(a) + Usd(b) - Usd(b) == Usd(a)
    assert Usd(a) * count == Usd(a * count)
    assert (Usd(a) < Usd(b)) == (a < b)


@given(st.integers(min_value=1, max_value=10**9), st.floats(min_value=0, max_value=1e7))
def test_a_rate_over_time_is_rounded_up_and_never_by_much(rate: int, seconds: float) -> None:
    exact = Decimal(rate) * Decimal(seconds) / 3600
    charged = Usd(rate).for_seconds(seconds).micros
    a_millisecond = Decimal(rate) / 3_600_000
    assert exact - Decimal(rate) / 10**9 <= charged <= exact + a_millisecond + 1


def test_an_hour_costs_the_rate() -> None:
    assert Usd.of("0.9").for_seconds(3600) == Usd.of("0.9")
    assert Usd(1).for_seconds(0.001) == Usd(1)


def test_fractions_of_a_micro_dollar_round_up() -> None:
    assert Usd.of("0.0000001") == Usd(1)
    assert Usd.of(Decimal("1.5")).dollars == 1.5


@pytest.mark.parametrize(
    "bad", ["", "ten", "-5", "- $5", "100 EUR", "1e3", "$", "5 5", ".", -1, -0.5, math.nan, math.inf, True]
)
def test_text_that_is_not_money_is_refused(bad: str | float) -> None:
    with pytest.raises(ValueError, match="money"):
        parse_usd(bad)


def test_a_negative_amount_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        parse_usd("-5 USD")


@pytest.mark.parametrize("bad", ["x", math.nan, math.inf])
def test_an_amount_must_be_a_finite_number(bad: str | float) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        Usd.of(bad)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (ZERO, "$0.00"),
        (Usd.of(1234.5), "$1,234.50"),
        (Usd.of(-2), "-$2.00"),
        (Usd.of("0.25"), "$0.2500"),
        (Usd(12), "$0.000012"),
    ],
)
def test_money_is_shown_with_the_digits_that_matter(usd: Usd, text: str) -> None:
    assert str(usd) == text


@given(
    st.integers(min_value=0, max_value=400),
    st.integers(min_value=0, max_value=23),
    st.integers(min_value=0, max_value=59),
    st.integers(min_value=0, max_value=59),
)
def test_durations_round_trip_as_text(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    for form in ("{}d{}h{}m{}s", "{} days, {} hours, {} minutes, {} seconds", " {}D {}hrs {}min {}sec "):
        assert parse_seconds(form.format(days, hours, minutes, seconds)) == total


@given(st.integers(min_value=0, max_value=10**8))
def test_a_shown_duration_reads_back_to_within_half_its_last_unit(seconds: int) -> None:
    shown = format_seconds(seconds)
    half_unit = 0.5 if seconds < 3600 else 30 if seconds < 48 * 3600 - 30 else 1800
    assert abs(parse_seconds(shown) - seconds) <= half_unit


def test_durations_may_have_fractions() -> None:
    assert parse_seconds("1.5h") == 5400
    assert parse_seconds("0.5 s") == 0.5


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "not a duration"),
        ("  ", "not a duration"),
        ("6", "needs a unit"),
        ("6.5", "needs a unit"),
        ("6h30", "not a duration"),
        ("-6h", "not a duration"),
        ("h", "not a duration"),
        ("5ms", "not a duration"),
        ("3 weeks", "not a duration"),
    ],
)
def test_text_that_is_not_a_duration_is_refused(bad: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_seconds(bad)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.01, "10.0 ms"),
        (8.2, "8.2 s"),
        (45, "45 s"),
        (725, "12 min 5 s"),
        (720, "12 min"),
        (27_600, "7 h 40 min"),
        (7200, "2 h"),
        (86400 * 3, "3 d"),
        (86400 * 3 + 7200, "3 d 2 h"),
        (-60, "-1 min"),
    ],
)
def test_durations_are_shown_in_two_units_at_most(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
