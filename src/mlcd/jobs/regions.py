"""Several real clouds and regions in one job: an engine for each, once prices are known for every region."""

from collections.abc import Sequence
from pathlib import Path

from mlcd.catalog.places import HOME_REGIONS, cloud_and_region
from mlcd.clouds.several import SeveralPlaces
from mlcd.clouds.skypilot.prices import catalog_file, regions
from mlcd.errors import nearest
from mlcd.jobs.choice import listed
from mlcd.jobs.real import engine_for
from mlcd.spec import TrainSpec


def several_places(spec: TrainSpec, places: Sequence[tuple[str, str]], home: Path) -> SeveralPlaces:
    """The engine of a job on these (kind, rest). Raises SpecError for a region without prices; starts nothing."""
    infras = spec.resources.infras
    for position, infra in enumerate(infras):
        _check_region(spec, position, infra)
    return SeveralPlaces(
        {infra: engine_for(kind, rest, home, spec) for infra, (kind, rest) in zip(infras, places, strict=True)}
    )


def _check_region(spec: TrainSpec, position: int, infra: str) -> None:
    """Raises SpecError for a region of which no prices are known: it would be chosen at the price of another."""
    cloud, region = cloud_and_region(infra)
    if cloud not in HOME_REGIONS:
        return
    file = catalog_file(cloud)
    known = regions(file) if file.exists() else (HOME_REGIONS[cloud],)
    if region in known:
        return
    item = f"resources.infra[{position}]"
    more = "" if file.exists() else f"; SkyPilot's catalog has more: sky check {cloud} downloads it"
    raise spec.error(
        item if item in spec.places else "resources.infra",
        f"no prices are known for {region} of {cloud}",
        value=infra,
        allowed=f"{cloud}/REGION with {listed(known)}{more}",
        nearest=f"{cloud}/{near}" if (near := nearest(region, known)) else "",
    )
