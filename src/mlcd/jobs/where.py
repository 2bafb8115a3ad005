"""Parse `resources.infra`: which kind of cloud, and which one of that kind."""

from mlcd.catalog import Catalog
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


def where(spec: TrainSpec, catalog: Catalog) -> tuple[str, str]:
    """(kind, which one of that kind): (`sim`, cloud), (`replay`, folder), (`local`, ""), (`aws`, region) ...

    A kind that is not BUILT_IN is a plug-in's cloud.

    Raises SpecError for a mistake, ProviderError for an infra that does not train on nodes.
    """
    infra = spec.resources.infra
    kind, _, rest = infra.partition("/")
    if kind in NOT_FOR_TRAINING:
        raise ProviderError(str(spec.error(_INFRA, f"{infra!r} {NOT_FOR_TRAINING[kind]}", allowed=_allowed(catalog))))
    if is_object_name(infra):
        raise spec.error(_INFRA, object_missing(infra, argument="on"))
    if kind in DIRECT and not rest:
        return kind, ""
    if kind in SKYPILOT:
        return kind, rest
    if kind == "sim" and not rest:
        raise _error(spec, catalog, "name the cloud to simulate, as sim/CLOUD")
    if kind == "replay" and not rest:
        raise _error(spec, catalog, "name the folder of measured tables, as replay/FOLDER (docs/replay.md)")
    if kind not in BUILT_IN and kind in cloud_names(BUILT_IN):
        return kind, rest
    if kind not in ("sim", "replay") or (kind == "sim" and rest not in catalog.clouds):
        raise _error(spec, catalog, "there is no such cloud", near=_nearest(infra, catalog))
    return kind, rest


def _allowed(catalog: Catalog) -> str:
    simulated = (f"sim/{cloud}" for cloud in catalog.clouds)
    return ", ".join((*simulated, "replay/FOLDER", *DIRECT, *SKYPILOT[:4], *cloud_names(BUILT_IN)))


def _error(spec: TrainSpec, catalog: Catalog, problem: str, *, near: str = "") -> SpecError:
    return spec.error(_INFRA, problem, value=spec.resources.infra, allowed=_allowed(catalog), nearest=near)


def _nearest(infra: str, catalog: Catalog) -> str:
    """The known infra most similar to `infra`; else `infra` with only its first part corrected."""
    kind, slash, rest = infra.partition("/")
    simulated = [f"sim/{cloud}" for cloud in catalog.clouds]
    others = (*DIRECT, *SKYPILOT, *NOT_FOR_TRAINING, *cloud_names(BUILT_IN))
    if near := nearest(infra.lower(), (*simulated, *others)):
        return near
    near = nearest(kind.lower(), ("sim", "replay", *others))
    return f"{near}{slash}{rest}" if near and near != kind else ""
