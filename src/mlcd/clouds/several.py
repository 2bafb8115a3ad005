"""Nodes of several clouds and regions in one job: implements NodeEngine over one engine for each place."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

from mlcd.catalog import Instance
from mlcd.catalog.places import at_place
from mlcd.clouds.nodes import Closable, Leftover, NodeEngine, NodeOrder, Nodes
from mlcd.errors import ProviderError
from mlcd.space.placed import place_of, plain_name


class SeveralPlaces:
    """Engines by place, in the job's order. The name of a type says at which place it is (mlcd.space.placed)."""

    has_others = True
    """A place that refuses leaves the others: see node_lease."""

    def __init__(self, engines: Mapping[str, NodeEngine]) -> None:
        self.engines = dict(engines)

    @property
    def name(self) -> str:
        """As in `resources.infra`."""
        return ",".join(self.engines)

    @property
    def noise(self) -> float:
        """See NodeEngine: that of the place with most."""
        return max(engine.noise for engine in self.engines.values())

    @property
    def outlives_mlcd(self) -> bool:
        """Whether nodes of any place go on when mlcd dies."""
        return any(getattr(engine, "outlives_mlcd", False) is True for engine in self.engines.values())

    def offer(self) -> tuple[Instance, ...]:
        """See NodeEngine: the types of every place that can be used. Raises ProviderError if none can."""
        found, refused = self._asked()
        if not found:
            raise ProviderError("; ".join(map(str, refused.values())))
        return tuple(instance for place, types in found.items() for instance in at_place(types, place))

    @property
    def notes(self) -> tuple[str, ...]:
        """Which places are excluded and why, and what a user should know of the others."""
        found, refused = self._asked()
        excluded = tuple(f"{place} is excluded: {error}" for place, error in refused.items())
        notes = ((place, note) for place in found for note in getattr(self.engines[place], "notes", ()))
        return (*excluded, *(f"{place}: {note}" for place, note in notes))

    def refused(self) -> dict[str, ProviderError]:
        """The places that cannot be used, and why."""
        return self._asked()[1]

    def most_nodes(self, instance: str) -> int | None:
        """See NodeEngine."""
        return self.engines[place_of(instance)].most_nodes(plain_name(instance))

    def start(self, order: NodeOrder) -> Nodes:
        """See NodeEngine: starts the nodes at the type's place."""
        return self.engines[place_of(order.instance)].start(replace(order, instance=plain_name(order.instance)))

    def leftovers(self) -> tuple[Leftover, ...]:
        """See NodeEngine: what exists at every place."""
        return tuple(dict.fromkeys(left for engine in self.engines.values() for left in engine.leftovers()))

    def end(self, leftover: Leftover) -> None:
        """See NodeEngine."""
        next(engine for engine in self.engines.values() if engine.name == leftover.cloud).end(leftover)

    def close(self) -> None:
        """Close every engine that keeps something between leases."""
        with ExitStack() as closing:
            for engine in self._closable():
                closing.callback(engine.close)

    def _closable(self) -> Iterator[Closable]:
        return (engine for engine in self.engines.values() if isinstance(engine, Closable))

    def _asked(self) -> tuple[dict[str, tuple[Instance, ...]], dict[str, ProviderError]]:
        """The types of each place that can be used, and why the others cannot."""
        found: dict[str, tuple[Instance, ...]] = {}
        refused: dict[str, ProviderError] = {}
        for place, engine in self.engines.items():
            try:
                found[place] = engine.offer()
            except ProviderError as error:
                refused[place] = error
        return found, refused
