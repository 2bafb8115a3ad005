"""Parse `resources.infra`: which kind of cloud, and which one of that kind."""

from mlcd.catalog import Catalog
from mlcd.clouds.sim import REHEARSALS
from mlcd.errors import ProviderError, SpecError, nearest
from mlcd.jobs.plugin import cloud_names
from mlcd.jobs.real import DIRECT, SKYPILOT
from mlcd.plugins import is_object_name, object_missing
from mlcd.spec import TrainSpec

NOT_FOR_TRAINING = {"lithops": "runs functions, which `mlcd serverless` trains on"}
"""Kinds of infra that do not train on nodes -> what they do."""
BUILT_IN = frozenset(("sim", "replay", *DIRECT, *SKYPILOT, *NOT_FOR_TRAINING))
"""Names that no plug-in's cloud may use."""

_INFRA = "resources.infra"
_TOGETHER = "only sim/CLOUD, or only clouds that SkyPilot reaches, such as aws/us-east-1 and gcp"


def where(spec: TrainSpec, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """(kind, which one of that kind) of each cloud: (`sim`, cloud), (`replay`, folder), (`local`, ""), (`aws`, region).

    A kind that is not BUILT_IN is a plug-in's cloud. Several are all simulated, or all reached through SkyPilot.

    Raises SpecError for a mistake, ProviderError for an infra that does not train on nodes.
    """
    infras = spec.resources.infras
    found = tuple(_where(spec, infra, position, catalog) for position, infra in enumerate(infras))
    if len(found) > 1:
        _check_together(spec, found)
    return found


def _check_together(spec: TrainSpec, found: tuple[tuple[str, str], ...]) -> None:
    """Raises SpecError for clouds that cannot be in one job."""
    infras, is_simulated = spec.resources.infras, found[0][0] == "sim"
    for position, (kind, _) in enumerate(found):
        item, infra = _field(spec, position), infras[position]
        if kind not in ("sim", *SKYPILOT):
            problem = f"{kind} cannot be one of several clouds: its time and prices are not those of rented nodes"
            raise spec.error(item, problem, value=infra, allowed=_TOGETHER)
        if (kind == "sim") != is_simulated:
            problem = f"{infras[0]} and {infras[position]} cannot be in one job: all are simulated, or none is"
            raise spec.error(item, problem, value=infra, allowed=_TOGETHER)
    if is_simulated:
        return
    for name in ("region", "zone"):
        if getattr(spec.resources, name):
            allowed = "the region in resources.infra: [aws/us-east-1, gcp/us-central1]"
            raise spec.error(f"resources.{name}", "is of one cloud, and the job lists several", allowed=allowed)


def _where(spec: TrainSpec, infra: str, position: int, catalog: Catalog) -> tuple[str, str]:
    kind, _, rest = infra.partition("/")
    if kind in NOT_FOR_TRAINING:
        problem = f"{infra!r} {NOT_FOR_TRAINING[kind]}"
        raise ProviderError(str(spec.error(_field(spec, position), problem, allowed=_allowed(catalog))))
    if is_object_name(infra):
        raise spec.error(_INFRA, object_missing(infra, argument="on"))
    if kind in DIRECT and not rest:
        return kind, ""
    if kind in SKYPILOT:
        return kind, rest
    if kind == "sim" and not rest:
        raise _error(spec, catalog, position, "name the cloud to simulate, as sim/CLOUD")
    if kind == "replay" and not rest:
        problem = "name the folder of measured tables, as replay/FOLDER (docs/replay.md)"
        raise _error(spec, catalog, position, problem)
    if kind not in BUILT_IN and kind in cloud_names(BUILT_IN):
        return kind, rest
    cloud, slash, how = rest.partition("/")
    if kind == "sim" and cloud in catalog.clouds and slash and how not in REHEARSALS:
        problem = f"sim/{cloud} has one region; it may only refuse, as sim/{cloud}/{' or '.join(REHEARSALS)}"
        meant = nearest(how, tuple(REHEARSALS))
        raise _error(spec, catalog, position, problem, near=f"sim/{cloud}/{meant}" if meant else f"sim/{cloud}")
    if kind not in ("sim", "replay") or (kind == "sim" and cloud not in catalog.clouds):
        raise _error(spec, catalog, position, "there is no such cloud", near=_nearest(infra, catalog))
    return kind, rest


def _allowed(catalog: Catalog) -> str:
    simulated = (f"sim/{cloud}" for cloud in catalog.clouds)
    return ", ".join((*simulated, "replay/FOLDER", *DIRECT, *SKYPILOT[:4], *cloud_names(BUILT_IN)))


def _error(spec: TrainSpec, catalog: Catalog, position: int, problem: str, *, near: str = "") -> SpecError:
    infra = spec.resources.infras[position]
    return spec.error(_field(spec, position), problem, value=infra, allowed=_allowed(catalog), nearest=near)


def _field(spec: TrainSpec, position: int) -> str:
    """The dotted name of an element; of the whole field if it is not a list."""
    item = f"{_INFRA}[{position}]"
    return item if item in spec.places else _INFRA


_MEANT = {
    **dict.fromkeys(("amazon", "ec2", "sagemaker"), "aws"),
    **dict.fromkeys(("google", "gce"), "gcp"),
    **dict.fromkeys(("microsoft", "az"), "azure"),
    **dict.fromkeys(("eks", "gke", "aks"), "kubernetes"),
    **dict.fromkeys(("localhost", "here"), "local"),
    "sbatch": "slurm",
}
"""Other names that people give to clouds."""


def _nearest(infra: str, catalog: Catalog) -> str:
    """The known infra most similar to `infra`; else `infra` with only its first part corrected."""
    kind, slash, rest = infra.partition("/")
    if meant := _MEANT.get(kind.lower()):
        return f"{meant}{slash}{rest}"
    simulated = [f"sim/{cloud}" for cloud in catalog.clouds]
    others = (*DIRECT, *SKYPILOT, *NOT_FOR_TRAINING, *cloud_names(BUILT_IN))
    if near := nearest(infra.lower(), (*simulated, *others)):
        return near
    near = nearest(kind.lower(), ("sim", "replay", *others))
    return f"{near}{slash}{rest}" if near and near != kind else ""
