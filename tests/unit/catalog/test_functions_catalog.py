"""Prices of functions: what a call costs by hand, rounding, tiers, and bad names."""

from dataclasses import replace
from decimal import Decimal

import pytest

from mlcd.catalog.functions import all_function_prices, function_prices
from mlcd.errors import BadInput
from mlcd.units import Usd


def test_lambda_of_2018_rounds_up_to_100_ms_and_todays_to_1_ms() -> None:
    then, now = function_prices("aws-lambda-2018"), function_prices("aws-lambda")
    assert then.billed_seconds(0.301) == Decimal("0.4")
    assert now.billed_seconds(0.3011) == Decimal("0.302")
    assert then.billed_seconds(0.1 + 0.2) == Decimal("0.3"), "a clock in binary must not cost a granule"


def test_a_charge_by_hand() -> None:
    prices = function_prices("aws-lambda-2018")
    # 150 functions x 50.1 s x 0.25 GB: the toy table's $0.031
    usd = prices.charge(memory_mb=256, call_seconds=[50.04] * 150)
    by_hand = 150 * (Decimal("50.1") * Decimal("0.25") * Decimal("0.00001667") + Decimal("0.0000002"))
    assert usd == Usd.of(by_hand)
    assert usd.dollars == pytest.approx(0.0313, abs=1e-4)


def test_calls_are_rounded_one_by_one_and_money_once() -> None:
    prices = function_prices("aws-lambda")
    tiny = prices.charge(memory_mb=128, call_seconds=[0.001])
    assert tiny == Usd(1), "a charge is never less than it is"
    thousand = prices.charge(memory_mb=128, call_seconds=[0.001] * 1000)
    assert thousand.micros == 203, "not a thousand micro-dollars"


def test_storage_and_repeated_requests_are_charged() -> None:
    prices = function_prices("aws-lambda")
    plain = prices.charge(memory_mb=1024, call_seconds=[1.0])
    more = prices.charge(memory_mb=1024, call_seconds=[1.0], puts=2, gets=5, requests=3)
    assert more.micros - plain.micros == pytest.approx(2 * 5 + 5 * 0.4 + 2 * 0.2, abs=1)


def test_grouped_calls_cost_the_same_as_single_calls() -> None:
    prices = function_prices("siren-paper")
    each = prices.charge(memory_mb=1536, call_seconds=[12.34] * 7 + [900.0] * 3, puts=4)
    assert each == prices.charge_alike(memory_mb=1536, calls=[(12.34, 7), (900.0, 3)], puts=4)


def test_google_prices_every_size_separately() -> None:
    prices = function_prices("google-functions")
    assert prices.memory_sizes == (128, 256, 512, 1024, 2048, 4096, 8192)
    assert prices.usd_per_second(1024) == Decimal("0.0000165")
    with pytest.raises(BadInput, match="no functions of 1536 MB; allowed: 128"):
        prices.usd_per_second(1536)


def test_the_papers_action_space_has_138_000_fleets() -> None:
    prices = function_prices("siren-paper")
    assert len(prices.memory_sizes) * prices.concurrency == 138_000


@pytest.mark.parametrize("name", all_function_prices())
def test_every_table_names_its_source(name: str) -> None:
    prices = function_prices(name)
    assert prices.source
    assert prices.date.year >= 2018
    assert prices.usd_per_second(prices.memory_sizes[0]) > 0


def test_an_unknown_table_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'aws-lambda'"):
        function_prices("aws-lamda")


def test_prices_cannot_be_built_wrong() -> None:
    prices = function_prices("aws-lambda")
    with pytest.raises(ValueError, match="prices must not be negative"):
        replace(prices, usd_per_gb_second=Decimal(0))
    with pytest.raises(ValueError, match="memory, time limit"):
        replace(prices, memory_mb=(512, 128, 1))
