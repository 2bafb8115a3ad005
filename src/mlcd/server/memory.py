"""Memory that requests hold: counted, so that many large ones at once are turned away and not kept."""

from mlcd.server.protocol import BadRequest


class Memory:
    """Bytes of requests and answers in memory. For one thread."""

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
        memory = self._memory
        if size_bytes > memory.limit_bytes:
            raise BadRequest(f"the request takes {size_bytes} bytes of memory, over {memory.limit_bytes}", status=413)
        if size_bytes > self.size_bytes and memory.held_bytes + size_bytes - self.size_bytes > memory.limit_bytes:
            raise BadRequest("the server holds too many large requests; try again later", status=503)
        self.set(size_bytes)

    def set(self, size_bytes: int) -> None:
        """Hold this much, whatever the limit: it is there already."""
        self._memory.held_bytes += size_bytes - self.size_bytes
        self.size_bytes = size_bytes
