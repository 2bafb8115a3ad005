"""Memory that requests hold: counted, so that many large ones at once are turned away and not kept."""

from mlcd.server.protocol import BadRequest

SMALL_BYTES = 64 * 1024
"""Requests up to this are not counted: they are answered however many large ones there are. The limit on connections
bounds them."""


class Memory:
    """Bytes of large requests and answers in memory. For one thread."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes, self.held_bytes = limit_bytes, 0

    def hold(self) -> "Held":
        """A request's share, nothing at first; `set(0)` ends it."""
        return Held(self)


class Held:
    """What one request holds."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.size_bytes = memory, 0

    def resize(self, size_bytes: int) -> None:
        """Hold this much. Raises BadRequest where the limit is passed by it alone (413) or with others (503)."""
        memory, more = self._memory, _counted(size_bytes) - _counted(self.size_bytes)
        if size_bytes > memory.limit_bytes:
            raise BadRequest(f"the request takes {size_bytes} bytes of memory, over {memory.limit_bytes}", status=413)
        if more > 0 and memory.held_bytes + more > memory.limit_bytes:
            raise BadRequest("the server holds too many large requests; try again later", status=503)
        self.set(size_bytes)

    def set(self, size_bytes: int) -> None:
        """Hold this much, whatever the limit: it is there already."""
        self._memory.held_bytes += _counted(size_bytes) - _counted(self.size_bytes)
        self.size_bytes = size_bytes


def _counted(size_bytes: int) -> int:
    return size_bytes if size_bytes > SMALL_BYTES else 0
