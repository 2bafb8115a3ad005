"""The budget guarantee: any authorised trials, with any outcome within their limits, then any run."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.synthetic import Machine, make_problem

from mlcd.goal import Goal, Objective
from mlcd.ledger import Ledger
from mlcd.problem import Problem, TrialPolicy
from mlcd.run.authorisation import Authorisation, Refusal
from mlcd.space import Config
from mlcd.testing.made import with_settings
from mlcd.trial.plan import plans
from mlcd.trial.trial import Failure, FailureKind, History, Measurement, Trial
from mlcd.units import Usd

shares = st.floats(0, 1)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    machines = {
        f"m{i}": Machine(usd_per_hour=draw(st.integers(1, 40_000)) / 1000, speed=draw(st.floats(1, 200)))
        for i in range(draw(st.integers(1, 3)))
    }
    policy = TrialPolicy(
        seconds=draw(st.floats(1, 1200)),
        extra_seconds_per_3_nodes=draw(st.floats(0, 120)),
        extension=draw(st.floats(0, 1)),
        watchdog_seconds=draw(st.floats(0, 300)),
    )
    goal = Goal(
        minimize=draw(st.sampled_from(Objective)),
        budget=draw(st.none() | st.builds(Usd, st.integers(1, 200_000_000))),
        deadline_seconds=draw(st.none() | st.floats(1, 200_000)),
    )
    counts = draw(st.lists(st.integers(1, 60), min_size=1, max_size=4, unique=True))
    problem = make_problem(
        machines=machines,
        counts=sorted(counts),
        goal=goal,
        work_samples=draw(st.floats(1, 1e7)),
        trial=policy,
        assurance=draw(st.sampled_from([0.95, 0.999, 0.999999])),
        slowdown=draw(st.sampled_from([0.0, 0.1, 0.5])),
    )
    return with_settings(problem) if draw(st.booleans()) else problem


@dataclass
class Account:
    """The run so far, accounted independently of the ledger."""

    problem: Problem
    trials: tuple[Trial, ...] = ()
    elapsed: float = 0.0

    def ledger(self, opened: tuple[Authorisation, ...] = ()) -> Ledger:
        return Ledger(
            problem=self.problem,
            history=History(self.trials),
            spent=Usd(sum(t.usd.micros for t in self.trials)),
            elapsed_seconds=self.elapsed,
            open=opened,
        )


def outcome(draw: st.DrawFn, problem: Problem, authorised: Authorisation) -> Trial:
    seconds = authorised.seconds * draw(shares)
    price = problem.price(authorised.config)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(FailureKind))
        usd = price.for_seconds(seconds)
        return Failure(
            config=authorised.config, attempt=authorised.attempt, kind=kind, message="made", seconds=seconds, usd=usd
        )
    return Measurement(
        config=authorised.config,
        attempt=authorised.attempt,
        samples_per_second=draw(st.floats(0.01, 1e5)),
        relative_error=draw(st.floats(0, 0.2)),
        iterations=9,
        startup_seconds=seconds * draw(shares),
        seconds=seconds,
        usd=price.for_seconds(seconds),
    )


def check_agreement(ledger: Ledger) -> None:
    allowed = ledger.remaining().allowed
    for row, config in enumerate(ledger.problem.space):
        answer = ledger.authorise(config)
        assert isinstance(answer, Authorisation) == bool(allowed[row])
        if isinstance(answer, Refusal):
            assert answer.choice == config
            refused = ledger.problem.places[row] in ledger.history.refused_places
            assert ("refused to give nodes" if refused else "left") in answer.reason
        else:
            assert answer.usd.micros == ledger.problem.worst_trial_micros[row]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_sequence_of_authorised_trials_and_run_breaks_a_limit(data: st.DataObject) -> None:
    problem = data.draw(problems())
    goal = problem.goal
    account = Account(problem)
    had_incumbent = False
    for _ in range(data.draw(st.integers(0, 5))):
        opened: tuple[Authorisation, ...] = ()
        for config in data.draw(st.lists(st.sampled_from(problem.space.configs), max_size=4, unique=True)):
            ledger = account.ledger(opened)
            check_agreement(ledger)
            authorised = ledger.authorise(config)
            if isinstance(authorised, Authorisation):
                assert authorised.attempt == 1 + sum(t.config == config for t in account.trials)
                opened = (*opened, authorised)
        ended = tuple(data.draw(st.composite(lambda draw, a: outcome(draw, problem, a))(a)) for a in opened)
        account.trials += ended
        account.elapsed += max((t.seconds for t in ended), default=0.0)
        incumbent = account.ledger().incumbent()
        assert incumbent is not None or not had_incumbent, "a deployment that fitted was lost"
        had_incumbent = incumbent is not None
    spent = sum(t.usd.micros for t in account.trials)
    assert goal.budget is None or spent <= goal.budget.micros
    assert goal.deadline_seconds is None or account.elapsed <= goal.deadline_seconds
    plan = account.ledger().incumbent()
    if plan is None:
        for option in plans(problem, History(account.trials)):
            assert isinstance(account.ledger().authorise_run(option), Refusal)
        return
    authorised_run = account.ledger().authorise_run(plan)
    assert isinstance(authorised_run, Authorisation)
    seconds = plan.worst_seconds * data.draw(shares)
    assert goal.budget is None or spent + problem.price(plan.config).for_seconds(seconds).micros <= goal.budget.micros
    assert goal.deadline_seconds is None or account.elapsed + seconds <= goal.deadline_seconds


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_money_is_rounded_up_and_adds_up(parts: list[tuple[int, float]]) -> None:
    from decimal import Decimal

    for micros, seconds in parts:
        charged = Usd(micros).for_seconds(seconds)
        exact = Decimal(micros) * Decimal(seconds) / 3600
        assert charged.micros >= exact - Decimal("0.001") * micros / 3600
        assert charged.micros - exact <= Decimal(micros) / 3_600_000 + 1
    total = sum((Usd(m).for_seconds(s) for m, s in parts), Usd(0))
    assert total.micros == sum(Usd(m).for_seconds(s).micros for m, s in parts)


@given(problems(), st.data())
def test_a_longer_trial_never_costs_less(problem: Problem, data: st.DataObject) -> None:
    config: Config = data.draw(st.sampled_from(problem.space.configs))
    worst = problem.trial.worst_seconds(config.nodes)
    part = worst * data.draw(shares)
    assert problem.price(config).for_seconds(part) <= problem.price(config).for_seconds(worst)
