"""Money that works like a number and stays exact."""

import copy
import dataclasses
import math
import operator
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcd.units import MICROS, ZERO, Usd, parse_usd

amounts = st.integers(min_value=-(10**18), max_value=10**18).map(Usd)
decimals = st.decimals(min_value=-(10**9), max_value=10**9, places=6, allow_nan=False, allow_infinity=False)
numbers = (
    st.integers(min_value=-(10**20), max_value=10**20)
    | st.floats(allow_nan=False, min_value=-1e20, max_value=1e20)
    | decimals
    | st.fractions(min_value=-(10**9), max_value=10**9)
)
ORDERS = (operator.lt, operator.le, operator.gt, operator.ge)


def exactly(usd: Usd) -> Fraction:
    return Fraction(usd.micros, MICROS)


# ---- comparison


@given(amounts, numbers)
def test_comparison_with_a_number_uses_the_exact_dollars(usd: Usd, number: Any) -> None:
    value, other = exactly(usd), Fraction(number)
    assert (usd == number) == (number == usd) == (value == other)
    assert (usd < number) == (number > usd) == (value < other)
    assert (usd <= number) == (number >= usd) == (value <= other)
    assert (usd != number) == (value != other)


@given(decimals)
def test_equal_amounts_and_numbers_have_one_hash(dollars: Decimal) -> None:
    usd = Usd.of(dollars)
    assert usd == dollars == exactly(usd)
    assert hash(usd) == hash(dollars) == hash(exactly(usd))
    assert len({usd, dollars, exactly(usd), Usd(usd.micros)}) == 1


@given(st.integers(min_value=-(10**9), max_value=10**9))
def test_whole_dollars_equal_ints_and_floats(dollars: int) -> None:
    usd = Usd.of(dollars)
    assert usd == dollars == float(dollars) == np.int64(dollars)
    assert hash(usd) == hash(dollars) == hash(float(dollars))


def test_a_float_is_compared_as_it_is_like_a_decimal() -> None:
    assert Usd("0.1") == Decimal("0.1")
    assert Usd("0.1") != 0.1
    assert (Usd("0.1") < 0.1) == (Decimal("0.1") < 0.1)
    assert Usd("0.25") == 0.25 == np.float32(0.25)


@given(amounts)
def test_infinities_are_beyond_every_amount_and_nan_compares_with_none(usd: Usd) -> None:
    for kind in (float, Decimal):
        assert kind("-inf") < usd < kind("inf")
        assert usd != kind("inf")
    nothing = float("nan")
    assert usd != nothing
    assert not any(compare(usd, nothing) for compare in ORDERS)


@given(st.lists(amounts))
def test_amounts_sort_by_their_value(given_amounts: list[Usd]) -> None:
    assert [usd.micros for usd in sorted(given_amounts)] == sorted(usd.micros for usd in given_amounts)


# ---- arithmetic


@given(st.lists(amounts))
def test_sum_needs_no_start(given_amounts: list[Usd]) -> None:
    total = sum(given_amounts)
    assert total == sum(given_amounts, ZERO) == Usd(sum(usd.micros for usd in given_amounts))
    assert isinstance(total, Usd) == bool(given_amounts)


@given(amounts, numbers)
def test_a_product_is_exact_or_rounded_up_by_less_than_a_micro_dollar(usd: Usd, factor: Any) -> None:
    written = Decimal(repr(factor)) if isinstance(factor, float) else factor
    exact = exactly(usd) * Fraction(written)
    assert 0 <= exactly(usd * factor) - exact < Fraction(1, MICROS)
    assert factor * usd == usd * factor


@given(amounts, numbers)
def test_a_quotient_is_exact_or_rounded_up_by_less_than_a_micro_dollar(usd: Usd, divisor: Any) -> None:
    if divisor == 0:
        with pytest.raises(ZeroDivisionError):
            usd / divisor
        return
    written = Decimal(repr(divisor)) if isinstance(divisor, float) else divisor
    assert 0 <= exactly(usd / divisor) - exactly(usd) / Fraction(written) < Fraction(1, MICROS)


@given(amounts, amounts)
def test_an_amount_divided_by_an_amount_is_a_float(above: Usd, below: Usd) -> None:
    if below == 0:
        with pytest.raises(ZeroDivisionError):
            above / below
        return
    ratio = above / below
    assert type(ratio) is float
    assert ratio == above.micros / below.micros


def test_a_float_counts_as_the_decimal_it_is_written_as() -> None:
    assert Usd("1") * 0.1 == Usd("0.1")
    assert Usd("0.3") / 0.1 == Usd("3")
    assert np.float64(0.1) * Usd("1") == Usd("1") * np.float64(0.1) == Usd("0.1")


@given(amounts)
def test_signs(usd: Usd) -> None:
    assert usd + -usd == ZERO
    assert +usd == usd
    assert abs(usd) == max(usd, -usd)
    assert usd  # every amount is truthy, even $0


@given(amounts)
def test_float_is_the_dollars(usd: Usd) -> None:
    assert float(usd) == usd.dollars == usd.micros / MICROS
    assert usd.exact == usd


@given(amounts, st.integers(min_value=-3, max_value=8))
def test_rounding_uses_the_exact_decimal(usd: Usd, digits: int) -> None:
    assert round(usd, digits) == round(exactly(usd), digits)
    assert isinstance(round(usd, digits), Usd)
    assert round(usd) == round(exactly(usd))
    assert isinstance(round(usd), int)


# ---- text


@given(amounts, st.sampled_from([".2f", ",.0f", "+.6f", "012.3f", ".3e", "%", ",.2f", ">20,.2f", "n", "g"]))
def test_a_format_spec_formats_the_exact_dollars(usd: Usd, spec: str) -> None:
    assert format(usd, spec) == format(usd.exact, spec)


def test_formats() -> None:
    usd = Usd("1234.5")
    assert f"{usd}" == f"{usd!s}" == str(usd) == "$1,234.50"
    assert f"{usd:.2f}" == "1234.50"
    assert f"{usd:,.0f}" == "1,234"
    assert f"{usd:g}" == "1234.5"
    assert f"{Usd('100'):g}" == "100"
    assert f"{usd:>12}|{usd:*<11}|{usd:s}" == "   $1,234.50|$1,234.50**|$1,234.50"
    with pytest.raises(ValueError, match="format"):
        format(usd, "d")


@given(amounts)
def test_repr_shows_the_dollars_and_reads_back(usd: Usd) -> None:
    assert eval(repr(usd), {"Usd": Usd}) == usd
    assert parse_usd(repr(abs(usd)).split("'")[1]) == abs(usd)


@pytest.mark.parametrize(("micros", "text"), [(12_340_000, "12.34"), (100_000_000, "100"), (-1, "-0.000001"), (0, "0")])
def test_repr_has_no_needless_digits(micros: int, text: str) -> None:
    assert repr(Usd(micros)) == f"Usd('{text}')"


# ---- immutability and types


@given(amounts)
def test_an_amount_survives_pickling_and_copying(usd: Usd) -> None:
    for again in (pickle.loads(pickle.dumps(usd)), copy.copy(usd), copy.deepcopy(usd), dataclasses.replace(usd)):
        assert again == usd
        assert type(again) is Usd


def test_an_amount_cannot_be_changed() -> None:
    usd = Usd("1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        usd.micros = 2  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        usd.cents = 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [1.5, 100.0, True, None, Decimal(1), [], b"1"], ids=repr)
def test_only_whole_micro_dollars_or_text_make_an_amount(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Usd\.of\(\)"):
        Usd(wrong)


@pytest.mark.parametrize("wrong", ["", "ten", "nan", "inf", "$5"])
def test_other_text_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        Usd(wrong)


@pytest.mark.parametrize("other", ["1", None, [], Ellipsis, 1j, 1, 2.5, Decimal(0)], ids=repr)
def test_only_amounts_and_the_start_of_a_sum_are_added(other: Any) -> None:
    usd = Usd("1")
    for change in (operator.add, operator.sub):
        with pytest.raises(TypeError):
            change(usd, other)
        with pytest.raises(TypeError):
            change(other, usd)


@pytest.mark.parametrize("other", ["1", None, [], Ellipsis, 1j, Usd(1)], ids=repr)
def test_only_numbers_multiply(other: Any) -> None:
    with pytest.raises(TypeError):
        Usd("1") * other
    with pytest.raises(TypeError):
        other * Usd("1")
    with pytest.raises(TypeError):
        1 / Usd("1")  # type: ignore[operator]


@pytest.mark.parametrize("other", [math.nan, math.inf, Decimal("nan"), Decimal("-inf")], ids=repr)
def test_an_amount_stays_finite(other: Any) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        Usd("1") * other
    with pytest.raises(ValueError, match="not a finite number"):
        Usd("1") / other


@pytest.mark.parametrize("other", ["1", None, [], Ellipsis, 1j], ids=repr)
def test_only_amounts_and_numbers_are_ordered(other: Any) -> None:
    assert Usd("1") != other
    for compare in ORDERS:
        with pytest.raises(TypeError):
            compare(Usd("1"), other)
