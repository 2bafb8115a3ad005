"""Which processors the server gets, and which the load generator."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSplit:
    """Processors by number; empty means any. `note` says why the two could not be separated; "" where they are."""

    server: tuple[int, ...]
    generator: tuple[int, ...]
    apart: bool
    note: str


def split_cores(server_cores: int) -> CoreSplit:
    """`server_cores` processors for the server, and the others for the generator where there are any.

    The server always gets the processors it asks for, up to all of them. A load test that shares processors measures
    slightly too few requests; one whose server has fewer processors than in production measures something else.
    """
    if not hasattr(os, "sched_getaffinity"):
        return CoreSplit(server=(), generator=(), apart=False, note="this system cannot pin processes to processors")
    here = tuple(sorted(os.sched_getaffinity(0)))
    if server_cores < len(here):
        return CoreSplit(server=here[:server_cores], generator=here[server_cores:], apart=True, note="")
    count = f"all {len(here)} processors" if len(here) > 1 else "the only processor"
    note = f"the server uses {count}, so the load generator shares them"
    return CoreSplit(server=here, generator=here, apart=False, note=note)
