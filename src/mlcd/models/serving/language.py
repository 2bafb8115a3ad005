r"""What is expected of a language model on every configuration before its first trial: a roofline, and its errors.

ln seconds of a request of model m in configuration c (requests in flight / rate) is the prediction of
mlcd.models.serving.roofline plus a residual:

    r_m(c) = g(c) + h_m(c),    cov = S(m, m') K_g(c, c') + R(m, m') K_h(c, c')

g is what the roofline gets wrong on a GPU or at a concurrency for all models, S is 1 for two models that both have an
encoder or both have none, else OTHER_KIND; h is the model's own. R is 1 for a model and itself, 0 for two models of
which one has an encoder, else LIKENESS times a correlation that falls with the distance of their sizes (`alike`): a
server runs a fine-tuned model as it runs its base. Both kernels add up a level, the kind of GPU, the
instance type, and smooth changes along the concurrency. Known models are measurements of r; what remains uncertain of
the new one is the belief's covariance, which trials then reduce.

A description may be wrong. So there is a second belief that ignores it: an average of the known models, with a wide
level. Trials say which one holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from mlcd.known.gpus import Machine
from mlcd.known.language_models import LanguageModel, TokenLengths
from mlcd.known.tables import Known
from mlcd.models.serving.gaussian import Belief, matern
from mlcd.models.serving.roofline import DEFAULTS, Run, Setting, fits, learnt_factors, log_seconds
from mlcd.space import Config

Floats = NDArray[np.float64]
Names = NDArray[np.str_]

OTHER_KIND = 0.5
"""How much of a shared residual a model with an encoder and one without have in common. Unmeasured."""
SHARED = {"level": 0.2, "gpu": 0.2, "instance": 0.15, "users": 0.15, "gpu users": 0.15}
OWN = {"level": 0.3, "gpu": 0.12, "instance": 0.05, "users": 0.15, "gpu users": 0.1, "instance users": 0.1}
"""Standard deviations of ln seconds. Round figures, checked on llama-7b of the llmpilot tables alone: a roofline is
off by a third as a whole, and by 10 to 20% from one GPU or one concurrency to another."""
SINGLE = 0.05
"""The same of a single configuration."""
SCALES = {"shared": (0.5, 0.7, 1.0, 1.4), "level": (0.3, 0.45, 0.7, 1.0, 1.5), "own": (0.5, 0.7, 1.0, 1.4)}
"""What SHARED, the own level and the rest of OWN are multiplied with: the values under which each known model is most
likely given the others."""
SCALE_DEVIATION = 0.5
"""Prior deviation of ln of a scale: five models say little about a deviation."""
LIKENESS = 0.9
"""How much of their own residuals two models of the same sizes have in common: their vocabularies may differ, and with
them the tokens of a text. Unmeasured."""
LIKENESS_LENGTHS = (0.1, 0.3, 1.0)
"""Distances of two models' sizes over which that falls: the one under which each known model is most likely given the
others. 0.1 is that of two models of one size alone; 1 that of two that differ by a factor of e in one size."""
LEAST_MODELS = 3
"""With fewer known models, all scales are 1."""
MOST_ROWS_OF_A_MODEL = 40
"""Of a known model, so many evenly spread rows are used to choose the scales: for speed."""
MOST_ROWS = 4000
"""Of a belief: its covariance then takes 128 MB."""
KNOBS = 0.3
"""The same along a server's own settings, which the roofline does not know."""
UNDESCRIBED_LEVEL = 1.0
"""The level's deviation where the model's sizes are not known: a factor of 3 around the average of the known models."""
USERS_LENGTH = 2.0
"""Doublings of the concurrency over which errors change."""
MEASUREMENT_ERROR = 0.03
OUTLIER = 0.8
"""A known model's residual beyond this is no error of the roofline: the server was out of memory or failed."""
RATIO_LEVEL, LEAST_RATIO_DEVIATION = 0.1, 0.05
"""Deviations of ln(median latency of a request / requests in flight x rate): of a whole model, and the least of one
concurrency. Round figures."""
TYPICAL = LanguageModel(parameters=7e9, layers=32, hidden=4096, kv_heads=8, head_dim=128)
"""Stands for a model of which nothing is known, where nothing is known of others either."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguagePrior:
    """What is expected of a language model, for the N configurations of a problem.

    Where a load test goes through K numbers of requests in flight (`users`), the beliefs have N x K rows: those of the
    first configuration come first. Else K is 1, and the concurrency is the configuration's.

    described    belief of ln seconds by its sizes; None if they are not known
    undescribed  the same without them
    fits         (N,) whether weights and a request fit into memory by its sizes; all True without them
    ratio        belief of ln(median latency of a request / seconds); None where no known model's was measured
    """

    described: Belief | None
    undescribed: Belief
    fits: NDArray[np.bool_]
    ratio: Belief | None
    known_models: int
    users: tuple[int, ...] = ()
    output_tokens: float = 1.0


def language_prior(
    known: Known, language: LanguageModel | None, configs: tuple[Config, ...], knobs: Floats | None = None
) -> LanguagePrior | None:
    """The prior for `configs`; None where the GPUs of some instance type or the requests' lengths are not known.

    `knobs` (N, N) is the correlation of configurations along the server's own settings, where there are some.
    """
    if known.lengths is None:
        return None
    users = thinned_users(known.users, len(configs))
    places = _places(configs, known.machines, users)
    if places is None:
        return None
    if users and knobs is not None:
        knobs = np.repeat(np.repeat(knobs, len(users), axis=0), len(users), axis=1)
    past = known.paces or known
    experience = _experience(past)
    ratio = _ratio(past, places, language)
    memory = np.ones(len(configs), dtype=bool)
    described = None
    if language is not None:
        machines = [setting.machine for setting in places.settings[:: max(len(users), 1)]]
        memory = np.array([fits(language, machine, known.lengths) for machine in machines])
        mean = log_seconds(language, places.settings, known.lengths, experience.log_factors)
        described = _belief(experience, places, mean, model=language, knobs=knobs)
    models = [run.model for run in experience.runs] or [TYPICAL]
    mean = _average(models, places.settings, known.lengths, experience.log_factors)
    undescribed = _belief(experience, places, mean, model=None, level=UNDESCRIBED_LEVEL, knobs=knobs)
    return LanguagePrior(
        described=described,
        undescribed=undescribed,
        fits=memory,
        ratio=ratio,
        known_models=len(experience.runs),
        users=users,
        output_tokens=known.lengths.output_tokens,
    )


def _average(
    models: list[LanguageModel], settings: tuple[Setting, ...], lengths: TokenLengths, log_factors: Floats
) -> Floats:
    """(N,) the mean of these models' ln seconds: at each setting of those that fit there; of all, where none does."""
    every = np.array([log_seconds(model, settings, lengths, log_factors) for model in models])
    fit = np.array([[fits(model, setting.machine, lengths) for setting in settings] for model in models])
    fit[:, ~fit.any(axis=0)] = True
    return np.asarray(np.where(fit, every, 0.0).sum(axis=0) / fit.sum(axis=0))


def thinned_users(users: tuple[int, ...], configs: int) -> tuple[int, ...]:
    """As many of the numbers of requests in flight, evenly spread, as MOST_ROWS allow for so many configurations."""
    count = min(len(users), max(MOST_ROWS // configs, 1))
    return tuple(users[at] for at in np.linspace(len(users) - 1, 0, count).round().astype(int)[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What the deviations are multiplied with (SCALES), and one of LIKENESS_LENGTHS."""

    shared: float = 1.0
    level: float = 1.0
    own: float = 1.0
    likeness_length: float = LIKENESS_LENGTHS[0]

    def deviations(self) -> tuple[dict[str, float], dict[str, float]]:
        """SHARED and OWN with these scales."""
        shared = {name: self.shared * deviation for name, deviation in SHARED.items()}
        own = {name: (self.level if name == "level" else self.own) * deviation for name, deviation in OWN.items()}
        return shared, own


@dataclass(frozen=True, kw_only=True, eq=False)
class _Places:
    """Configurations as the kernels see them: the settings, and GPU, instance and log2 users of each."""

    settings: tuple[Setting, ...]
    gpu: Names
    instance: Names
    users: Floats

    def at(self, rows: NDArray[np.intp]) -> "_Places":
        return _Places(
            settings=tuple(self.settings[row] for row in rows),
            gpu=self.gpu[rows],
            instance=self.instance[rows],
            users=self.users[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Experience:
    """The known models: their runs, the factors learnt from them, and the residuals (n,) that remain.

    model, encoder  (n,) of each residual: the run it is of, and whether that has an encoder
    errors          (n,) its standard error
    """

    runs: tuple[Run, ...]
    log_factors: Floats
    places: _Places | None
    residuals: Floats
    errors: Floats
    model: NDArray[np.intp]
    encoder: NDArray[np.bool_]
    scales: Scales

    def but(self, left_out: int, lengths: TokenLengths) -> tuple["_Experience", NDArray[np.intp]]:
        """What is known without one of the runs, and the rows that are left out: with factors of its own."""
        kept = np.flatnonzero(self.model != left_out)
        runs = tuple(run for number, run in enumerate(self.runs) if number != left_out)
        factors = learnt_factors(runs, lengths)
        residuals = np.concatenate([_residuals(run, lengths, factors) for run in runs])
        made = _Experience(
            runs=runs,
            log_factors=factors,
            places=None if self.places is None else self.places.at(kept),
            residuals=residuals,
            errors=_errors(residuals),
            model=self.model[kept],
            encoder=self.encoder[kept],
            scales=self.scales,
        )
        return made, np.flatnonzero(self.model == left_out)

    def thinned(self) -> "_Experience":
        """At most MOST_ROWS_OF_A_MODEL rows of each run."""
        rows = np.concatenate([_spread(np.flatnonzero(self.model == number)) for number in range(len(self.runs))])
        return replace(
            self,
            places=None if self.places is None else self.places.at(rows),
            residuals=self.residuals[rows],
            errors=self.errors[rows],
            model=self.model[rows],
            encoder=self.encoder[rows],
        )


def _spread(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    count = min(len(rows), MOST_ROWS_OF_A_MODEL)
    return rows[np.linspace(0, len(rows) - 1, count).round().astype(np.intp)]


def _residuals(run: Run, lengths: TokenLengths, factors: Floats) -> Floats:
    return run.log_seconds - log_seconds(run.model, run.settings, lengths, factors)


def _errors(residuals: Floats) -> Floats:
    """An outlier says nothing: its error is its size."""
    return np.where(np.abs(residuals) > OUTLIER, np.abs(residuals), MEASUREMENT_ERROR)


def _places(
    configs: tuple[Config, ...], machines: Mapping[str, Machine], paces: tuple[int, ...] = ()
) -> _Places | None:
    """Every configuration, at each of the paces where there are some; None if the GPUs of one are not known."""
    found = [dict(config.values) for config in configs]
    values = [{**each, "batch": pace} for each in found for pace in paces] if paces else found
    instances = tuple(str(each.get("instance", "")) for each in values)
    if any(instance not in machines for instance in instances):
        return None
    users = [float(each.get("batch", 1)) for each in values]
    return _Places(
        settings=tuple(
            Setting(machine=machines[instance], users=count) for instance, count in zip(instances, users, strict=True)
        ),
        gpu=np.array([str(machines[instance].gpu) for instance in instances]),
        instance=np.array(instances),
        users=np.log2(users),
    )


@lru_cache(maxsize=32)
def _experience(known: Known) -> _Experience:
    """What the known models teach; with their measurements only where they ran."""
    places, lengths = _places(known.configs, known.machines), known.lengths
    runs: list[Run] = []
    at: list[NDArray[np.intp]] = []
    for model in known.models:
        rows = np.flatnonzero(np.isfinite(model.latency_seconds))
        if places is None or model.target.language is None or not len(rows):
            continue
        settings = places.at(rows).settings
        runs.append(
            Run(model=model.target.language, settings=settings, log_seconds=np.log(model.latency_seconds[rows]))
        )
        at.append(rows)
    if lengths is None or places is None or not runs:
        none = np.zeros(0)
        which = np.zeros(0, dtype=np.intp)
        return _Experience(
            runs=(),
            log_factors=DEFAULTS,
            places=None,
            residuals=none,
            errors=none,
            model=which,
            encoder=which > 0,
            scales=Scales(),
        )
    factors = learnt_factors(runs, lengths)
    residuals = np.concatenate([_residuals(run, lengths, factors) for run in runs])
    made = _Experience(
        runs=tuple(runs),
        log_factors=factors,
        places=places.at(np.concatenate(at)),
        residuals=residuals,
        errors=_errors(residuals),
        model=np.concatenate([np.full(len(rows), number) for number, rows in enumerate(at)]),
        encoder=np.concatenate([np.full(len(rows), run.model.has_encoder) for run, rows in zip(runs, at, strict=True)]),
        scales=Scales(),
    )
    return replace(made, scales=_learnt_scales(made, lengths)) if len(runs) >= LEAST_MODELS else made


def _learnt_scales(experience: _Experience, lengths: TokenLengths) -> Scales:
    """The scales under which each known model is most likely given the others, near 1."""
    cases = []
    for number, run in enumerate(experience.runs):
        others, rows = experience.but(number, lengths)
        off = _residuals(run, lengths, others.log_factors)
        some = _spread(np.arange(len(rows), dtype=np.intp))
        if experience.places is not None:
            cases.append((others.thinned(), experience.places.at(rows[some]), off[some], run.model))

    def score(scales: Scales) -> float:
        parts = (scales.shared, scales.level, scales.own)
        total = -0.5 * sum((float(np.log(scale)) / SCALE_DEVIATION) ** 2 for scale in parts)
        for others, places, off, model in cases:
            belief = _belief(replace(others, scales=scales), places, np.zeros(len(off)), model=model)
            errors = np.where(np.abs(off) > OUTLIER, np.abs(off), MEASUREMENT_ERROR)
            total += belief.log_likelihood(np.arange(len(off), dtype=np.intp), off, errors)
        return total

    # The length first, then the deviations under it: all combinations would take three times as long.
    length = max(LIKENESS_LENGTHS, key=lambda each: score(Scales(likeness_length=each)))
    every = (Scales(shared=s, level=v, own=o, likeness_length=length) for s, v, o in product(*SCALES.values()))
    return max(every, key=score)


def _belief(
    experience: _Experience,
    places: _Places,
    mean: Floats,
    *,
    model: LanguageModel | None,
    level: float | None = None,
    knobs: Floats | None = None,
) -> Belief:
    """The belief about a new model whose roofline is `mean`, after the residuals of the known ones.

    Without its description, `model` is None, and it is like none of them.
    """
    in_common, of_one = experience.scales.deviations()
    shared = _kernel(places, places, in_common)
    own = _kernel(places, places, of_one if level is None else {**of_one, "level": level})
    own = own + SINGLE**2 * np.eye(len(mean))
    if knobs is not None:
        own = own + KNOBS**2 * knobs
    if experience.places is None:
        return Belief(mean=mean, covariance=shared + own)
    past = experience.places
    kinds = np.where(experience.encoder[:, None] == experience.encoder[None, :], 1.0, OTHER_KIND)
    runs = [run.model for run in experience.runs]
    length = experience.scales.likeness_length
    likeness = np.array([[1.0 if one is other else alike(one, other, length) for other in runs] for one in runs])
    among = kinds * _kernel(past, past, in_common)
    among += likeness[np.ix_(experience.model, experience.model)] * _kernel(past, past, of_one)
    among += np.diag(experience.errors**2 + SINGLE**2)
    if model is None:
        across = _kernel(places, past, in_common) * OTHER_KIND
    else:
        to_runs = np.array([alike(model, run, length) for run in runs])[experience.model]
        across = _kernel(places, past, in_common) * np.where(experience.encoder == model.has_encoder, 1.0, OTHER_KIND)
        across += _kernel(places, past, of_one) * to_runs
    factor = cho_factor(among, lower=True)
    return Belief(
        mean=mean + across @ cho_solve(factor, experience.residuals),
        covariance=shared + own - across @ cho_solve(factor, across.T),
    )


def alike(one: LanguageModel, other: LanguageModel, length: float) -> float:
    """R of two models: LIKENESS where their sizes are the same, less with their distance, 0 for two kinds.

    The distance is that of ln of parameters, layers, width and bytes kept for a token.
    """
    if one.has_encoder != other.has_encoder:
        return 0.0
    sizes = [(each.parameters, each.layers, each.hidden, each.kv_bytes) for each in (one, other)]
    apart = float(np.sqrt(((np.log(sizes[0]) - np.log(sizes[1])) ** 2).sum()))
    return LIKENESS * float(matern(np.array(apart / length)))


def _kernel(one: _Places, other: _Places, deviations: Mapping[str, float]) -> Floats:
    parts = _parts(one, other)
    return np.asarray(sum(deviation**2 * parts[name] for name, deviation in deviations.items()))


@lru_cache(maxsize=32)
def _parts(one: _Places, other: _Places) -> dict[str, Floats]:
    """The correlation along each of the names in SHARED and OWN."""
    gpu = (one.gpu[:, None] == other.gpu[None, :]).astype(float)
    instance = (one.instance[:, None] == other.instance[None, :]).astype(float)
    users = matern(np.abs(one.users[:, None] - other.users[None, :]) / USERS_LENGTH)
    return {
        "level": np.ones_like(users),
        "gpu": gpu,
        "instance": instance,
        "users": users,
        "gpu users": gpu * users,
        "instance users": instance * users,
    }


def _ratio(known: Known, places: _Places, language: LanguageModel | None) -> Belief | None:
    """By concurrency: the weighted median over known models, between two concurrencies on a straight line.

    A model of another kind counts OTHER_KIND times as much: servers schedule the prompts of encoders differently.
    """
    found: dict[float, list[tuple[float, float]]] = {}
    for model in known.models:
        if model.p50_seconds is None:
            continue
        theirs = model.target.language
        other = language is not None and theirs is not None and language.has_encoder != theirs.has_encoder
        rows = np.flatnonzero(np.isfinite(model.latency_seconds) & np.isfinite(model.p50_seconds))
        for row in rows:
            ratio = float(np.log(model.p50_seconds[row] / model.latency_seconds[row]))
            found.setdefault(float(np.log2(known.batches[row])), []).append((ratio, OTHER_KIND if other else 1.0))
    if not found:
        return None
    seen = sorted(found)
    middle = {users: _weighted_median(found[users]) for users in seen}
    off = [(abs(value - middle[users]), weight) for users in seen for value, weight in found[users]]
    deviation = max(_weighted_median(off) * 1.5, LEAST_RATIO_DEVIATION)  # robust: 1.48 x median for a normal
    mean = np.interp(places.users, seen, [middle[users] for users in seen])
    apart = matern(np.abs(places.users[:, None] - places.users[None, :]) / USERS_LENGTH)
    return Belief(
        mean=mean,
        covariance=RATIO_LEVEL**2 + deviation**2 * 0.5 * (apart + np.eye(len(mean))),
    )


def _weighted_median(pairs: list[tuple[float, float]]) -> float:
    """Of (value, weight): where half of the weight lies on either side; between two values their mean."""
    values, weights = np.array(sorted(pairs)).T
    upto = np.cumsum(weights)
    half = upto[-1] / 2
    at = int(np.searchsorted(upto, half * (1 - 1e-12)))
    after = min(at + 1, len(values) - 1)
    return float(values[at] if upto[at] > half * (1 + 1e-12) else (values[at] + values[after]) / 2)
