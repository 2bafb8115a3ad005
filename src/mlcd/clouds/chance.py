"""Deterministic randomness: the same arguments give the same draw in any process."""

import hashlib
import random


def _digest(parts: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()[:8], "big")


def share(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone."""
    return (_digest(parts) >> 11) / (1 << 53)


def generator(*parts: object) -> random.Random:
    """A generator seeded by `parts`."""
    return random.Random(_digest(parts))  # noqa: S311 - a simulation, no secret
