"""Which server would be chosen at another rate or under other latency limits, from what the load tests measured."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mlcd.errors import BadInput
from mlcd.findings.serve import REQUESTS_PER_MILLION, failed_verifications, missed, promised_share
from mlcd.goal import Goal, Slo
from mlcd.loadgen.chat.plan import ChatLimit
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.space import Config
from mlcd.trial.plan import Plan, best
from mlcd.trial.replicas import with_replicas
from mlcd.trial.trial import Load, Measurement, TokenLoad, TokenPoint
from mlcd.units import Usd, percent_text, speed_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOption:
    """A configuration that was load-tested.

    requests_per_second  that may be promised within the limits: as verified, else the share of the measured rate that
                         was promised of the choice; as measured where a rate was asked for, or a limit is broken
    usd_per_million      price of a million requests at that rate, or at the asked one if that is lower
    seconds              at that rate, what each limit of the job is on, in the order of `limits_of`; None: not measured
    text                 why it does not do; "" if it does
    """

    config: Config
    requests_per_second: float
    usd_per_hour: Usd
    usd_per_million: Usd
    seconds: tuple[float | None, ...]
    text: str = ""

    @property
    def fits(self) -> bool:
        """Whether it kept the limits and held the rate."""
        return not self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWhatIf:
    """The answer of `serving_what_if`.

    goal     what was asked
    choice   one of `options`; None if nothing measured does
    options  every configuration that answered a load test: those that do first, best first
    text     the answer in a sentence
    """

    goal: Goal
    choice: ServingOption | None
    options: tuple[ServingOption, ...]
    text: str


def limits_of(goal: Goal) -> Mapping[str, Slo | ChatLimit]:
    """The latency limits of a goal by name: `p99`, or `ttft_p99` of a language model."""
    plain = {} if goal.slo is None else {f"p{goal.slo.percentile}": goal.slo}
    return {**plain, **{limit.name: limit for limit in goal.token_limits}}


def serving_what_if(run: SearchRun, *, rate: float | None, limits: Mapping[str, float]) -> ServingWhatIf:
    """What would be chosen to hold `rate` requests a second (None: as many as it can) under these limits, in seconds.

    limits  those of the job's own that hold, by name (`limits_of`)

    A load test says what a server did at the rates that were tried: at least as much under a looser limit, and only as
    much as a slower pace showed under a tighter one. Raises BadInput for runs of other kinds and for other values.
    """
    if run.kind is not Kind.SERVE:
        raise BadInput(f"{run.run_id} is a run of `mlcd {run.kind}`: rates and latencies are those of servers")
    goal = _goal(run.problem.goal, rate, limits)
    then = replace(run, problem=replace(run.problem, goal=goal))
    known = tuple(limits_of(run.problem.goal).values())
    share = promised_share(run) if rate is None else 1.0
    verified, fell = _verified(run), {attempt.config: attempt.message for attempt in failed_verifications(run)}
    doing: dict[Config, tuple[Plan, ServingOption]] = {}
    failing: list[ServingOption] = []
    measured = {trial.config: trial for trial in with_replicas(run.problem, run.history).measured}
    for config, trial in measured.items():
        held = verified if verified is not None and verified.config == config else None
        forms = [] if config in fell else [_promised(form, share) for form in _forms(trial, goal) if form.meets(goal)]
        forms += [held] if held is not None and held.meets(goal) else []
        if forms:
            fastest = max(forms, key=lambda form: form.samples_per_second)
            doing[config] = Plan.of(then.problem, fastest), _option(then, fastest, known)
        elif config in fell and held is None:
            failing.append(_option(then, trial, known, f"failed its verification: {fell[config]}"))
        else:
            shown = held if config in fell and held is not None else trial
            failing.append(_option(then, shown, known, missed(then, shown).text))
    chosen = best(then.problem, (plan for plan, _ in doing.values()))
    choice = None if chosen is None else doing[chosen.config][1]
    ranked = sorted(doing.values(), key=lambda each: (each[1] != choice, each[0].value(then.problem)))
    options = (*(option for _, option in ranked), *failing)
    return ServingWhatIf(goal=goal, choice=choice, options=options, text=_text(run, choice))


def _verified(run: SearchRun) -> Measurement | None:
    """What the verification measured that the choice passed, at the promised rate; None if none was passed."""
    final = run.final
    if final is None or not final.is_done or final.load is None or final.samples_per_second is None:
        return None
    tried = [trial for trial in with_replicas(run.problem, run.history).measured if trial.config == final.config]
    return replace(tried[-1], samples_per_second=final.samples_per_second, load=final.load) if tried else None


def _promised(form: Measurement, share: float) -> Measurement:
    return replace(form, samples_per_second=form.samples_per_second * share)


def _goal(goal: Goal, rate: float | None, limits: Mapping[str, float]) -> Goal:
    known = limits_of(goal)
    for name, seconds in limits.items():
        if name not in known:
            raise BadInput(f"limits: the run has no limit {name!r}; it has: {', '.join(known) or 'none'}")
        if not 0 < seconds < math.inf:
            raise BadInput(f"limits: {name} must be more than 0 s (got {seconds:g})")
    if rate is not None and not 0 < rate < math.inf:
        raise BadInput(f"rate: must be more than 0 requests/s (got {rate:g})")
    plain = None if goal.slo is None else limits.get(f"p{goal.slo.percentile}")
    return replace(
        goal,
        rate=rate,
        slo=None if goal.slo is None or plain is None else replace(goal.slo, seconds=plain),
        token_limits=tuple(
            replace(limit, seconds=limits[limit.name]) for limit in goal.token_limits if limit.name in limits
        ),
    )


def _forms(trial: Measurement, goal: Goal) -> Iterator[Measurement]:
    """What its load test measured; of a language model, at every other pace too.

    Of the requests at such a pace, as many count as are within every limit at least.
    """
    yield trial
    if trial.load is None or trial.load.tokens is None:
        return
    within = 1 - sum(1 - limit.percentile / 100 for limit in goal.token_limits)
    for point in trial.load.tokens.front:
        rate = point.requests_per_second * within
        if rate > 0 and point.ttft_p50 > 0 and point.e2e_p50 > 0:  # earlier versions did not store them
            yield replace(trial, samples_per_second=rate, load=_at_pace(trial.load, trial.load.tokens, point))


def _at_pace(load: Load, tokens: TokenLoad, point: TokenPoint) -> Load:
    p50, p95, p99 = point.e2e_p50, point.e2e_p95, point.e2e_p99
    paced = replace(
        tokens,
        concurrency=point.concurrency,
        requests_per_second=point.requests_per_second,
        output_tokens_per_second=point.output_tokens_per_second,
        ttft=(point.ttft_p50, point.ttft_p95, point.ttft_p99),
        tpot=(point.tpot_p50, point.tpot_p95, point.tpot_p99),
        e2e=(p50, p95, p99),
    )
    return replace(load, p50_seconds=p50, p95_seconds=p95, p99_seconds=p99, tokens=paced)


def _option(run: SearchRun, form: Measurement, limits: Sequence[Slo | ChatLimit], text: str = "") -> ServingOption:
    rate, price = form.samples_per_second, run.problem.price(form.config)
    return ServingOption(
        config=form.config,
        requests_per_second=rate,
        usd_per_hour=price,
        usd_per_million=price.for_seconds(REQUESTS_PER_MILLION / min(rate, run.problem.goal.rate or math.inf)),
        seconds=tuple(_seen(form, limit) for limit in limits),
        text=text,
    )


def _seen(trial: Measurement, limit: Slo | ChatLimit) -> float | None:
    load = trial.load
    if load is None:
        return None
    if isinstance(limit, Slo):
        return load.percentile(limit.percentile)
    return None if load.tokens is None else load.tokens.seen(limit)


def _text(run: SearchRun, choice: ServingOption | None) -> str:
    if choice is None:
        return "No configuration that was load-tested does"
    cost = f"{choice.usd_per_million} for a million requests, {speed_text(choice.requests_per_second)} requests/s"
    before = None if run.findings is None or run.findings.serve is None else run.findings.serve.choice
    if before is None:
        return f"{choice.config}: it would be chosen, {cost}"
    if before.config == choice.config:
        return f"{choice.config}: the same choice, {cost}"
    was = run.problem.price(before.config).dollars
    now = run.problem.price(choice.config).dollars
    apart = percent_text(abs(now / was - 1)) if was else ""
    dearer = f", {apart} {'more' if now > was else 'less'} an hour" if apart and now != was else ""
    return f"{choice.config} instead of {before.config}: {cost}{dearer}"
