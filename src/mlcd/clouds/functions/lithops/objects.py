"""The objects of a run: their names, and a frame that distinguishes complete objects from partly written ones."""

import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcd.untrusted import Malformed, parse_json
from mlcd.workloads.model import Floats

_MAGIC = b"mlcd1"
_HEAD = struct.Struct("<IIQ")
_UPDATE = re.compile(r"([0-9]{1,9})-([0-9]{1,12})-([0-9]{1,9})")
HEADER_BYTES = 64 * 1024
"""A header has under 1 KiB."""


class Torn(Exception):
    """The object is incomplete: Lithops' local storage shows a file while it is being written."""


def frame(header: dict[str, Any], vector: Floats) -> bytes:
    """A header and a vector of float32, with a checksum over both."""
    text = json.dumps(header, separators=(",", ":")).encode()
    body = text + np.ascontiguousarray(vector, dtype="<f4").tobytes()
    return _MAGIC + _HEAD.pack(zlib.crc32(body), len(text), len(body)) + body


def unframe(data: bytes) -> tuple[dict[str, Any], Floats]:
    """The header and the vector. Raises Torn for truncated or corrupt data.

    Functions wrote it: numbers of the header that are not finite are None, and its fields are yet to be checked.
    """
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start or data[: len(_MAGIC)] != _MAGIC:
        raise Torn
    checksum, text, size = _HEAD.unpack_from(data, len(_MAGIC))
    body = data[start : start + size]
    if len(body) != size or zlib.crc32(body) != checksum:
        raise Torn
    if text > min(size, HEADER_BYTES) or (size - text) % 4:
        raise Torn
    try:
        header = parse_json(body[:text], non_finite_as_null=True)
    except Malformed as error:
        raise Torn from error
    if not isinstance(header, dict):
        raise Torn
    return header, np.frombuffer(body[text:], dtype="<f4")


@dataclass(frozen=True, slots=True, order=True)
class ShardUpdate:
    """The name of a shard's part of an epoch: the result of its first `step` steps, made by `attempt`."""

    shard: int
    step: int
    attempt: int

    @property
    def name(self) -> str:
        """The name in a key. It contains everything, so that a listing alone shows how far each shard is."""
        return f"{self.shard:05d}-{self.step:07d}-{self.attempt:03d}"

    @classmethod
    def named(cls, name: str) -> "ShardUpdate | None":
        """The inverse of `name`; None where a key is not one of ours."""
        found = _UPDATE.fullmatch(name)
        return None if found is None else cls(int(found[1]), int(found[2]), int(found[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTry:
    """One try at an epoch. A try after a kill has a new token, so that old calls cannot write into it."""

    run_id: str
    epoch: int
    token: str

    @property
    def prefix(self) -> str:
        """The prefix of everything that this try writes."""
        return f"mlcd/{self.run_id}/epochs/{self.epoch:05d}/{self.token}/"

    def part(self, part: ShardUpdate) -> str:
        """The key of a shard's part."""
        return f"{self.prefix}part/{part.name}"

    def end(self, shard: int, attempt: int) -> str:
        """The key of the parameters at the barrier, by the call that closed the epoch."""
        return f"{self.prefix}end/{shard:05d}-{attempt:03d}"

    @property
    def stop(self) -> str:
        """The key that tells every function of this try to end."""
        return f"{self.prefix}stop"


def run_prefix(run_id: str) -> str:
    """The prefix of everything that a run keeps."""
    return f"mlcd/{run_id}/"


def data_key(run_id: str, name: str) -> str:
    """The key of `x`, `y` or the user's own `model.py`."""
    return f"{run_prefix(run_id)}data/{name}"


def outcome_key(run_id: str, epoch: int) -> str:
    """The key of an epoch's outcome and the key of its parameters: written last, by the driver."""
    return f"{run_prefix(run_id)}outcomes/{epoch:05d}.json"
