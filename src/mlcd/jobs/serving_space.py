"""The configurations of a server on this machine or on leased nodes, and the price of each per hour."""

from itertools import product

from mlcd.catalog import Instance
from mlcd.clouds.local import USD_PER_CPU_HOUR, usable_cpus
from mlcd.clouds.serving.local import cores_of
from mlcd.jobs.choice import check_prices, check_size, listed
from mlcd.jobs.gpu_space import LOG2_BITS, offered_precisions, refuse_gpu_knobs
from mlcd.jobs.serve_nodes import MOST_SERVING_CONFIGURATIONS, Leasable, node_space
from mlcd.jobs.served_model import ServedModel
from mlcd.memory import free_memory_bytes
from mlcd.problem import TrialPolicy
from mlcd.profiler.load import WARM_UP_SHARE
from mlcd.server.options import Device
from mlcd.space import Config, Knob, Space
from mlcd.spec.serve import ServeSpec
from mlcd.units import Usd

DEFAULT_BATCHES = (1, 4, 16, 64)
MOST_COUNTED_PROCESSORS = 16
"""Up to so many processors, every number of threads and replicas is offered: 400 configurations."""
SERVING_TRIAL = TrialPolicy(
    seconds=15.0, extra_seconds_per_3_nodes=0.0, extension=0.5, watchdog_seconds=20.0, precision=0.15
)
"""A server starts in a second or two; the rest of a trial is load."""
START_STOP_SECONDS = 60.0
"""Time in a verification for the server to start and stop."""
WORKING_COPIES = 2.0
"""Memory of a replica / size of the model's file: weights and activations."""


def verification_seconds(spec: ServeSpec, start_stop_seconds: float) -> float:
    """The longest that the verification takes; 0 if there is none."""
    if not spec.load.verify_seconds:
        return 0.0
    return spec.load.verify_seconds / (1 - WARM_UP_SHARE) + start_stop_seconds


def work(spec: ServeSpec, model: ServedModel) -> tuple[Space, tuple[Usd, ...], tuple[str, ...]]:
    """The space, the price of each configuration, and notes on what was excluded. Raises SpecError."""
    cpus = len(usable_cpus())
    check_prices(spec, [f"local.{count}" for count in range(1, cpus + 1)])
    notes: list[str] = []
    threads = spec.knobs.threads or processor_counts(cpus)
    replicas = spec.knobs.replicas or processor_counts(cpus)
    precisions = offered_precisions(spec, model, Device.CPU)
    refuse_gpu_knobs(spec)
    pairs = [pair for pair in product(threads, replicas) if pair[0] * pair[1] <= cpus]
    batches = _batches(spec, model, notes)
    size, narrow = len(batches) * len(pairs) * len(precisions), "knobs.batch, threads or replicas"
    check_size(spec, "knobs", size, narrow=narrow, most=MOST_SERVING_CONFIGURATIONS)
    fitting = [(batch, *pair, precision) for batch in batches for pair in pairs for precision in precisions]
    if not fitting:
        problem = f"every threads x replicas is more than the {cpus} processors of this machine"
        raise spec.error("knobs", problem, allowed=f"threads and replicas whose product is at most {cpus}")
    if len(pairs) < len(threads) * len(replicas) and (spec.knobs.threads or spec.knobs.replicas):
        notes.append(f"threads x replicas beyond the {cpus} processors of this machine are excluded")
    kept = _in_memory(spec, model, fitting, notes)
    names = ("batch", "threads", "replicas", "precision")
    configs = tuple(Config(tuple(zip(names, values, strict=True))) for values in kept)
    knobs = (
        *(Knob(name=name, values=tuple(sorted({c[name] for c in configs}, key=float))) for name in names[:3]),
        _precision_knob(precisions),
    )
    return Space(knobs, configs), tuple(_price(spec, config, cpus) for config in configs), tuple(notes)


def work_on_nodes(
    spec: ServeSpec, model: ServedModel, nodes: Leasable
) -> tuple[Space, tuple[Usd, ...], tuple[str, ...]]:
    """The same on leased nodes: a type has room for threads and replicas by its processors and its memory."""
    notes = list(nodes.notes)
    batches, precisions = _batches(spec, model, notes), offered_precisions(spec, model, Device.CPU)
    refuse_gpu_knobs(spec)

    def fitting(instance: Instance) -> list[tuple[int, int, int, str]]:
        cpus = max(int(instance.vcpus), 1)
        usual = processor_counts(cpus)
        pairs = product(spec.knobs.threads or usual, spec.knobs.replicas or usual)
        return [
            (batch, *pair, precision)
            for pair in pairs
            if pair[0] * pair[1] <= cpus and _bytes(model, *pair) <= instance.memory_gib * 2**30
            for batch in batches
            for precision in precisions
        ]

    every = [values for instance in nodes.instances for values in fitting(instance)]
    if not every:
        problem = "no type has the processors for these threads x replicas and the memory for this model"
        raise spec.error("knobs", problem, allowed="smaller threads and replicas, or larger types")
    if unfit := [instance.name for instance in nodes.instances if not fitting(instance)]:
        notes.append(f"excluded, too small for this model and these threads x replicas: {listed(unfit)}")
    names = ("batch", "threads", "replicas")
    knobs = (
        *(Knob(name=name, values=tuple(sorted({row[at] for row in every}))) for at, name in enumerate(names)),
        _precision_knob(precisions),
    )
    return *node_space(spec, nodes, knobs, fitting), tuple(notes)


def processor_counts(cpus: int) -> tuple[int, ...]:
    """The numbers of threads or replicas that are offered: all; on a large machine 1, 2, 4, ... and all processors."""
    if cpus <= MOST_COUNTED_PROCESSORS:
        return tuple(range(1, cpus + 1))
    return tuple(sorted({*(2**i for i in range(cpus.bit_length())), cpus}))


def _batches(spec: ServeSpec, model: ServedModel, notes: list[str]) -> tuple[int, ...]:
    if model.batch is None:
        return spec.knobs.batch or DEFAULT_BATCHES
    if spec.knobs.batch and spec.knobs.batch != (model.batch,):
        problem = f"the model's batch axis is fixed at {model.batch}"
        raise spec.error("knobs.batch", problem, value=list(spec.knobs.batch), allowed=f"{model.batch}")
    notes.append(f"the model's batch axis is fixed at {model.batch}: no other batch can be chosen")
    return (model.batch,)


def _in_memory(
    spec: ServeSpec, model: ServedModel, found: list[tuple[int, int, int, str]], notes: list[str]
) -> list[tuple[int, int, int, str]]:
    free = free_memory_bytes()
    kept = [v for v in found if _bytes(model, v[1], v[2]) <= free]
    if not kept:
        need, have = model.size_bytes * WORKING_COPIES / 2**30, free / 2**30
        problem = f"needs about {need:.1f} GiB of memory and {have:.1f} GiB are free"
        raise spec.error("model", problem, value=spec.model, allowed="a smaller model, or a larger machine")
    if len(kept) < len(found):
        excluded = sorted({str(v[2]) for v in found} - {str(v[2]) for v in kept})
        notes.append(f"excluded, too large for this machine's memory: {listed(excluded) or 'some'} replicas")
    return kept


def _bytes(model: ServedModel, threads: int, replicas: int) -> float:
    """Memory of a server. With one thread all replicas share one session, and one copy of the weights."""
    return model.size_bytes * WORKING_COPIES * (1 if threads == 1 else replicas)


def _precision_knob(precisions: tuple[str, ...]) -> Knob:
    return Knob(name="precision", values=precisions, features={p: (LOG2_BITS[p],) for p in precisions})


def _price(spec: ServeSpec, config: Config, cpus: int) -> Usd:
    """USD per hour of the processors it uses: the user's price, else the nominal price."""
    cores = cores_of(config, cpus)
    own = spec.resources.prices.get(f"local.{cores}")
    return own or Usd.of(str(round(USD_PER_CPU_HOUR * cores, 6)))
