"""`resources.accelerators`: only the types that have them."""

from collections.abc import Iterable, Sequence

from mlcd.catalog import Instance, accelerators_of, nearest_accelerator
from mlcd.spec import TrainSpec
from mlcd.spec.serve import ServeSpec

FIELD = "resources.accelerators"


def with_accelerators(spec: TrainSpec | ServeSpec, instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """The types that have one of the job's accelerators; all of them if it names none."""
    wanted = spec.resources.accelerators
    return tuple(i for i in instances if not wanted or any(accelerator.fits(i) for accelerator in wanted))


def check_accelerators(spec: TrainSpec | ServeSpec, instances: Sequence[Instance]) -> None:
    """Raises SpecError for an accelerator that none of the types, which the job may choose from otherwise, has.

    Of a range such as `{A10G: 1..4}` one number that some type has is enough.
    """
    wanted = spec.resources.accelerators
    for position, accelerator in enumerate(wanted):
        item = f"{FIELD}.{accelerator.name}"
        is_named = item in spec.places
        also = [other for other in wanted if other.name == accelerator.name] if is_named else [accelerator]
        if any(other.fits(instance) for other in also for instance in instances):
            continue
        offered = accelerators_of(instances)
        narrowed = " among resources.instance_type" if spec.resources.instance_type is not None else ""
        item = item if is_named else f"{FIELD}[{position}]"
        raise spec.error(
            item if item in spec.places else FIELD,
            f"no instance type of {spec.resources.infra}{narrowed} has this accelerator",
            value=str(accelerator),
            allowed=", ".join(offered) or f"leave {FIELD} out: no type there has any",
            nearest=nearest_accelerator(str(accelerator), instances),
        )
