"""`data` of a job file: where the data is, and what bringing it to the nodes takes."""

import re
from dataclasses import dataclass

from mlcd.spec.node import YamlNode
from mlcd.spec.quantity import line_of_text
from mlcd.spec.record import Field, FieldTable
from mlcd.units import parse_usd

_SIZE = re.compile(r"\s*(?P<number>[0-9][0-9_,]{0,15}(?:\.[0-9]{1,9})?)(?:\s*(?P<unit>[A-Za-z]{1,3}))?\s*")
_GB = {"": 1.0, "mb": 1e-3, "gb": 1.0, "tb": 1e3, "pb": 1e6, "mib": 2**20 / 1e9, "gib": 2**30 / 1e9, "tib": 2**40 / 1e9}
_SIZE_FORM = "a size such as 200 GB or 1.5 TB"
_PRICE_FORM = "a price such as 0.09 USD/GB, or 0"
_RATE = re.compile(r"\s*(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?P<unit>Gbps|Gbit/s|Mbps|Mbit/s)\s*", re.IGNORECASE)
_RATE_FORM = "a rate such as 5 Gbps or 800 Mbps"
MOST_GB = 1e9
MOST_USD_PER_GB = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """The data that each lease reads.

    location        the cloud and region where it is
    gb              all of it, as a training needs it
    trial_gb        what a trial reads; None: all
    usd_per_gb      what leaving the location costs; None: the cloud's list price
    gbps            at which it arrives; None: the time is not counted
    """

    location: str
    gb: float
    trial_gb: float | None = None
    usd_per_gb: float | None = None
    gbps: float | None = None


def _size(node: YamlNode) -> float:
    value = node.filled().value
    written = _SIZE.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    unit = _GB.get((written["unit"] or "").lower()) if written and not isinstance(value, bool) else None
    if written is None or unit is None:
        raise node.error("is not a size", allowed=_SIZE_FORM)
    gigabytes = float(re.sub(r"[_,]", "", written["number"])) * unit
    if not 0 < gigabytes <= MOST_GB:
        raise node.error("is out of range", allowed=f"more than 0 and at most {MOST_GB:,.0f} GB")
    return gigabytes


def _price(node: YamlNode) -> float:
    value = node.filled().value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise node.error("is not a price", allowed=_PRICE_FORM)
    text = re.sub(r"(/|per)\s*GB$", "", value.strip(), flags=re.IGNORECASE) if isinstance(value, str) else value
    try:
        usd = parse_usd(text).dollars
    except ValueError as error:
        raise node.error("is not a price", allowed=_PRICE_FORM) from error
    if not 0 <= usd <= MOST_USD_PER_GB:
        raise node.error("is out of range", allowed=f"from 0 to {MOST_USD_PER_GB:g} USD/GB")
    return usd


def _bandwidth(node: YamlNode) -> float:
    written = _RATE.fullmatch(node.line_of_text(allowed=_RATE_FORM))
    gbps = float(written["number"]) * (1.0 if written["unit"].lower().startswith("g") else 1e-3) if written else 0.0
    if not 0 < gbps <= 1e5:
        raise node.error("is not a rate", allowed=_RATE_FORM)
    return gbps


DATA = FieldTable(
    make=DataSpec,
    fields={
        "location": Field(read=line_of_text, required=True, allowed="a cloud and region such as aws/us-east-1"),
        "size": Field(read=_size, into="gb", required=True, allowed=_SIZE_FORM),
        "trial_size": Field(read=_size, into="trial_gb"),
        "egress": Field(read=_price, into="usd_per_gb"),
        "bandwidth": Field(read=_bandwidth, into="gbps"),
    },
    meant={"where": "location", "region": "location", "gb": "size", "price": "egress", "speed": "bandwidth"},
)
