"""The objects of a run: their names, and a frame that tells a whole object from one that is still being written."""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcd.workloads.model import Floats

_MAGIC = b"mlcd1"
_HEAD = struct.Struct("<IIQ")


class Torn(Exception):
    """The object is not whole: Lithops' local storage shows a file while it is written."""


def frame(header: dict[str, Any], vector: Floats) -> bytes:
    """A header and a vector of float32, with a checksum over both."""
    text = json.dumps(header, separators=(",", ":")).encode()
    body = text + np.ascontiguousarray(vector, dtype="<f4").tobytes()
    return _MAGIC + _HEAD.pack(zlib.crc32(body), len(text), len(body)) + body


def unframe(data: bytes) -> tuple[dict[str, Any], Floats]:
    """The header and the vector. Raises Torn for what is cut short or spoilt."""
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start or data[: len(_MAGIC)] != _MAGIC:
        raise Torn
    checksum, text, size = _HEAD.unpack_from(data, len(_MAGIC))
    body = data[start : start + size]
    if len(body) != size or zlib.crc32(body) != checksum:
        raise Torn
    header: dict[str, Any] = json.loads(body[:text])
    return header, np.frombuffer(body[text:], dtype="<f4")


@dataclass(frozen=True, slots=True, order=True)
class ShardUpdate:
    """A shard's part of an epoch so far, by name: after `step` steps of it, as `attempt` made them."""

    shard: int
    step: int
    attempt: int

    @property
    def name(self) -> str:
        """As it stands in a key; the key says all, so that a listing shows how far everyone is."""
        return f"{self.shard:05d}-{self.step:07d}-{self.attempt:03d}"

    @classmethod
    def named(cls, name: str) -> "ShardUpdate":
        """The inverse of `name`."""
        shard, step, attempt = name.split("-")
        return cls(int(shard), int(step), int(attempt))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTry:
    """One go at an epoch. A go after a kill has another token, so that calls left over cannot reach into it."""

    run_id: str
    epoch: int
    token: str

    @property
    def prefix(self) -> str:
        """Below it lies all that this go writes."""
        return f"mlcd/{self.run_id}/epochs/{self.epoch:05d}/{self.token}/"

    def part(self, part: ShardUpdate) -> str:
        """The key of a shard's part."""
        return f"{self.prefix}part/{part.name}"

    def end(self, shard: int, attempt: int) -> str:
        """The key of the parameters at the barrier, by who closed it."""
        return f"{self.prefix}end/{shard:05d}-{attempt:03d}"

    @property
    def stop(self) -> str:
        """The key that tells every function of this go to end."""
        return f"{self.prefix}stop"


def run_prefix(run_id: str) -> str:
    """Below it lies all that a run keeps."""
    return f"mlcd/{run_id}/"


def data_key(run_id: str, name: str) -> str:
    """`x`, `y` and the user's own `model.py`."""
    return f"{run_prefix(run_id)}data/{name}"


def outcome_key(run_id: str, epoch: int) -> str:
    """What an epoch brought, and where its parameters are: written last, by the driver."""
    return f"{run_prefix(run_id)}outcomes/{epoch:05d}.json"
