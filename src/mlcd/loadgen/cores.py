"""Which processors the server gets, and which the load generator."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSplit:
    """Processors by number; empty means any. `note` says in words where the two could not be kept apart."""

    server: tuple[int, ...]
    generator: tuple[int, ...]
    apart: bool
    note: str


def split_cores(server_cores: int) -> CoreSplit:
    """`server_cores` processors for the server, and the others for the generator where there are any.

    The server always gets what it asks for, up to all there are: a load test that shares processors measures a little
    too few requests, one whose server has fewer than it will have later measures something else.
    """
    if not hasattr(os, "sched_getaffinity"):
        return CoreSplit(server=(), generator=(), apart=False, note="this system does not let processes be pinned")
    here = tuple(sorted(os.sched_getaffinity(0)))
    if server_cores < len(here):
        return CoreSplit(server=here[:server_cores], generator=here[server_cores:], apart=True, note="")
    count = f"all {len(here)} processors" if len(here) > 1 else "the only processor"
    note = f"the server uses {count}, so that the load generator takes its share from them"
    return CoreSplit(server=here, generator=here, apart=False, note=note)
