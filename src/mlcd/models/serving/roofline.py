r"""A language model's pace by its sizes and the GPUs' data sheets, with factors that other models' runs teach.

With U requests in flight, a step of the server gives each of them a token. In a closed loop, one request's prompt must
be processed for every answer that ends, so that a token of all U requests takes

    s(U) = L a + [GPUs > 1] L b + w W / bw
           + U ((n_in / n_out) (p 2 P / F + x E / link) + k (n_in + n_out / 2) KV / bw + r / n_out)

L layers, W bytes of weights that a token reads, bw memory bandwidth, P parameters that a prompt's token passes, F peak
FLOP/s, E bytes that GPUs exchange for a prompt's token, KV bytes kept for a token; all GPUs of the node together. Then
the server gives U / s tokens a second, and a request takes n_out s. A cache that holds fewer than U requests lets the
others wait: s grows with U.

a, b, w, p, x, k, r are FACTORS: 1 / efficiency, or seconds. Their defaults stand on what is published of such servers;
runs of other models move them (maximum a posteriori, every model with the same weight). Layers beside an encoder have
factors of their own: cross attention is a third block, and servers pad its prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from mlcd.known.gpus import Machine
from mlcd.known.language_models import LanguageModel, TokenLengths

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A factor's default, and how far a server may be from it: the deviation of its logarithm."""

    name: str
    default: float
    deviation: float


FACTORS = (
    Factor(name="seconds of a layer", default=2e-4, deviation=1.0),
    Factor(name="seconds of a layer beside an encoder", default=6e-4, deviation=1.0),
    Factor(name="seconds of a layer's synchronisation", default=6e-5, deviation=1.0),
    Factor(name="reading weights", default=1 / 0.7, deviation=0.5),
    Factor(name="processing prompts", default=1 / 0.5, deviation=0.7),
    Factor(name="processing prompts in an encoder", default=1 / 0.25, deviation=0.7),
    Factor(name="exchanging prompts between GPUs", default=1 / 0.5, deviation=1.0),
    Factor(name="reading the cache", default=1 / 0.5, deviation=1.0),
    Factor(name="reading the cache beside an encoder", default=1 / 0.25, deviation=1.0),
    Factor(name="seconds of a request", default=2e-3, deviation=1.0),
)
"""Defaults: about ten kernels a layer at 10 to 20 us each, two all-reduces of 30 us, 70% of the bandwidth and half of
the peak, which vendors' and servers' own guides name for large batches; deviations are a factor of 2 to 3. Not fitted
to any table."""

MEMORY_SHARE = 0.9
"""Of a GPU's memory that a server uses for weights and cache: the default of vLLM and TGI."""
MODEL_WEIGHT = 16.0
"""A known model counts as so many independent measurements: those of one model have errors in common."""
LENGTHS_DEVIATION = 0.5
"""Of ln of how many requests the cache holds: lengths vary, so some wait before a cache for mean lengths is full."""
OUTLIER = 0.2
"""Residuals of ln seconds beyond this count linearly: a server that ran out of cache says nothing about the factors."""

DEFAULTS = np.log([factor.default for factor in FACTORS])
_DEVIATIONS = np.array([factor.deviation for factor in FACTORS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a model is served: the GPUs, and the requests in flight."""

    machine: Machine
    users: float


def terms(model: LanguageModel, setting: Setting, lengths: TokenLengths) -> Floats:
    """(len(FACTORS),) what each factor is multiplied with; their sum is s(U), without waiting for the cache."""
    machine, users = setting.machine, setting.users
    gpus, encoder = machine.count, model.has_encoder
    per_answer = lengths.input_tokens / lengths.output_tokens
    prompt = 2 * (model.prompt_parameters * per_answer + model.token_parameters) / machine.flops
    layers = model.layers + model.encoder_layers
    exchanged = layers * 2 * model.hidden * 2 * 2 * (gpus - 1) / gpus
    exchange = per_answer * exchanged / (machine.gpu.link_gb_per_second * 1e9)
    context = lengths.input_tokens + lengths.output_tokens / 2
    cache = context * model.kv_bytes / machine.bytes_per_second
    return np.array(
        [
            0.0 if encoder else model.layers,
            model.layers if encoder else 0.0,
            model.layers if gpus > 1 else 0.0,
            model.token_parameters * model.bytes_per_weight / machine.bytes_per_second,
            0.0 if encoder else users * prompt,
            users * prompt if encoder else 0.0,
            users * exchange,
            0.0 if encoder else users * cache,
            users * cache if encoder else 0.0,
            users / lengths.output_tokens,
        ]
    )


def held_requests(model: LanguageModel, machine: Machine, lengths: TokenLengths) -> float:
    """How many requests the memory beside the weights holds; at most 0 where the weights do not fit."""
    free = machine.memory_bytes * MEMORY_SHARE - model.weight_bytes
    return free / (model.kv_bytes * (lengths.input_tokens + lengths.output_tokens))


def fits(model: LanguageModel, machine: Machine, lengths: TokenLengths) -> bool:
    """Whether the weights and one request fit into the memory of all GPUs."""
    return held_requests(model, machine, lengths) >= 1.0


def log_seconds(
    model: LanguageModel, settings: Sequence[Setting], lengths: TokenLengths, log_factors: Floats
) -> Floats:
    """(N,) ln of the seconds of a request, n_out s(U), waiting for the cache included."""
    rows = np.array([terms(model, setting, lengths) for setting in settings]).reshape(len(settings), len(FACTORS))
    held = np.array([max(held_requests(model, setting.machine, lengths), 1.0) for setting in settings])
    users = np.array([setting.users for setting in settings])
    waits = LENGTHS_DEVIATION * np.log1p((users / held) ** (1 / LENGTHS_DEVIATION))
    return np.asarray(np.log(lengths.output_tokens * (rows @ np.exp(log_factors))) + waits)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Measurements of one known model: ln seconds of a request (requests in flight / rate), at each setting."""

    model: LanguageModel
    settings: tuple[Setting, ...]
    log_seconds: Floats


def learnt_factors(runs: Sequence[Run], lengths: TokenLengths) -> Floats:
    """(len(FACTORS),) ln of the factors that explain the runs best, near their defaults; the defaults without runs."""
    runs = [run for run in runs if run.settings]
    if not runs:
        return DEFAULTS
    tables = [np.array([terms(run.model, setting, lengths) for setting in run.settings]) for run in runs]
    # What waiting for the cache adds, from the difference to a sum of terms with any factors.
    waits = [
        log_seconds(run.model, run.settings, lengths, DEFAULTS) - np.log(table @ np.exp(DEFAULTS))
        for run, table in zip(runs, tables, strict=True)
    ]
    weights = np.concatenate([np.full(len(of), np.sqrt(MODEL_WEIGHT / max(len(of), MODEL_WEIGHT))) for of in tables])
    table, wait = np.concatenate(tables), np.concatenate(waits)
    seen = np.concatenate([run.log_seconds for run in runs])

    def errors(shift: Floats) -> Floats:
        fitted = np.log(table @ np.exp(DEFAULTS + shift * _DEVIATIONS)) + wait
        off = (fitted - seen) / OUTLIER
        soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([weights * soft, shift])

    found = least_squares(errors, np.zeros(len(FACTORS)), max_nfev=60)
    return np.asarray(DEFAULTS + found.x * _DEVIATIONS)
