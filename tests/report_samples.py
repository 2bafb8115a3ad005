"""Hand-built runs for the reports' tests: a realistic search over three types, and every way it can end."""

from collections.abc import Sequence
from dataclasses import replace

from mlcd.goal import Goal, Objective
from mlcd.models.remaining import remaining_problem
from mlcd.problem import Batching, Problem, Target
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.authorisation import Authorisation
from mlcd.run.header import Header
from mlcd.run.kind import Kind
from mlcd.run.run import SearchRun
from mlcd.run.step import Role, Step
from mlcd.run.verdict import Naive, Relaxation, Verdict
from mlcd.space import Config, Knob, Space
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan, plans
from mlcd.trial.trial import Failure, FailureKind, History, Learned, Measurement, Trial
from mlcd.units import Usd

USD_PER_NODE_HOUR = {"c5.xlarge": Usd.of("0.17"), "c5n.4xlarge": Usd.of("0.864"), "p2.xlarge": Usd.of("0.90")}
NODES = tuple(range(1, 51))
WORK_SAMPLES = 4.5e6
STARTUP_SECONDS = 150.0

# (instance, nodes, samples/s or a failure, reason): what a search of twelve trials saw.
SEARCH: tuple[tuple[str, int, float | FailureKind, str], ...] = (
    ("c5.xlarge", 1, 6.1, "single node of every type"),
    ("c5n.4xlarge", 1, 24.3, "single node of every type"),
    ("p2.xlarge", 1, 52.0, "single node of every type"),
    ("p2.xlarge", 8, 301.0, "greatest expected gain for its price"),
    ("c5n.4xlarge", 16, 262.0, "greatest expected gain for its price"),
    ("p2.xlarge", 32, FailureKind.CAPACITY, "greatest expected gain for its price"),
    ("p2.xlarge", 20, 452.0, "greatest expected gain for its price"),
    ("c5.xlarge", 24, FailureKind.OUT_OF_MEMORY, "greatest expected gain for its price"),
    ("c5.xlarge", 12, 58.0, "greatest expected gain for its price"),
    ("p2.xlarge", 14, 411.0, "greatest expected gain for its price"),
    ("p2.xlarge", 26, 478.0, "greatest expected gain for its price"),
    ("p2.xlarge", 17, 446.0, "greatest expected gain for its price"),
)
MESSAGES = {
    FailureKind.CAPACITY: "no capacity for 32 x p2.xlarge in us-east-1",
    FailureKind.OUT_OF_MEMORY: "needs 9.1 GiB a node, 8 GiB there",
    FailureKind.LAUNCH: "node 3 of 4 did not answer",
}


def problem(
    goal: Goal, instances: tuple[str, ...] = tuple(USD_PER_NODE_HOUR), *, name: str = "resnet-cifar10"
) -> Problem:
    configs = tuple(Config.deployment(instance, n) for instance in instances for n in NODES)
    knobs = (
        Knob(name="instance", values=instances, features={i: (USD_PER_NODE_HOUR[i].dollars,) for i in instances}),
        Knob(name="nodes", values=NODES),
    )
    return Problem(
        name=name,
        work_samples=WORK_SAMPLES,
        space=Space(knobs, configs),
        goal=goal,
        usd_per_hour=tuple(USD_PER_NODE_HOUR[c.instance] * c.nodes for c in configs),
        noise=0.01,
    )


def measurement(asked: Problem, instance: str, nodes: int, speed: float, *, error: float = 0.012) -> Measurement:
    config = Config.deployment(instance, nodes)
    seconds = asked.trial.planned_seconds(nodes)
    return Measurement(
        config=config,
        attempt=1,
        samples_per_second=speed,
        relative_error=error,
        iterations=240,
        startup_seconds=STARTUP_SECONDS,
        seconds=seconds,
        usd=asked.price(config).for_seconds(seconds),
    )


def failure(asked: Problem, instance: str, nodes: int, kind: FailureKind, *, seconds: float = 95.0) -> Failure:
    config = Config.deployment(instance, nodes)
    usd = Usd(0) if kind is FailureKind.CAPACITY else asked.price(config).for_seconds(seconds)
    message = MESSAGES.get(kind, "it ended with exit code 1")
    return Failure(config=config, attempt=1, kind=kind, message=message, seconds=seconds, usd=usd)


def trial_step(asked: Problem, number: int, trial: Trial, reason: str, started_seconds: float, worst: float) -> Step:
    price = asked.price(trial.config)
    return Step(
        number=number,
        round=number,
        role=Role.TRIAL,
        authorisation=Authorisation(
            choice=trial.config, attempt=trial.attempt, usd=price.for_seconds(worst), seconds=worst
        ),
        reason=reason,
        usd_per_hour=price,
        started_seconds=started_seconds,
        started_at=started_seconds,
        outcome=trial,
    )


def trial_steps(
    asked: Problem, search: tuple[tuple[str, int, float | FailureKind, str], ...] = SEARCH
) -> tuple[Step, ...]:
    made: list[Step] = []
    clock = 0.0
    for number, (instance, nodes, outcome, reason) in enumerate(search, start=1):
        trial: Trial
        if isinstance(outcome, FailureKind):
            trial = failure(asked, instance, nodes, outcome)
        else:
            trial = measurement(asked, instance, nodes, outcome)
        made.append(trial_step(asked, number, trial, reason, clock, asked.trial.worst_seconds(nodes)))
        clock += trial.seconds
    return tuple(made)


def with_trials(run: SearchRun, trials: Sequence[Step]) -> SearchRun:
    """The same run with other trials, and the attempts that it had."""
    return with_attempts(replace(run, steps=tuple(trials)), *run.attempts)


def with_attempts(run: SearchRun, *attempts: Attempt) -> SearchRun:
    """The same run with other attempts at the training, or verifications."""
    steps = list(run.trials)
    for count, attempt in enumerate(attempts, start=1):
        number = max((step.number for step in steps), default=0) + 1
        clock = max((s.started_seconds + s.outcome.seconds for s in steps if s.outcome is not None), default=0.0)
        steps.append(
            Step(
                number=number,
                round=number,
                role=Role.VERIFICATION if run.kind is Kind.SERVE else Role.TRAINING,
                authorisation=Authorisation(
                    choice=attempt.config, attempt=count, usd=attempt.usd, seconds=attempt.seconds
                ),
                reason="",
                usd_per_hour=run.problem.price(attempt.config),
                started_seconds=clock,
                started_at=clock,
                outcome=attempt,
            )
        )
    return replace(run, steps=tuple(steps))


def with_choice(run: SearchRun, choice: Plan | None, naive: tuple[Naive, ...] | None = None) -> SearchRun:
    """The same run with another choice."""
    assert run.verdict is not None
    naive = run.verdict.naive if naive is None else naive
    return replace(run, verdict=replace(run.verdict, choice=choice, naive=naive))


def header(**changed: object) -> Header:
    usual = Header(
        run_id="resnet-cifar10-7f3a9c",
        created="2026-03-02T09:30:00Z",
        kind=Kind.TRAIN,
        cloud="sim/aws",
        simulated=True,
        strategy="heterbo",
        seed=7,
        version="0.1.0",
        catalog_date="2026-02-01",
    )
    return replace(usual, **changed)  # type: ignore[arg-type]


def record(
    goal: Goal,
    *,
    status: Status = Status.DONE,
    chosen: tuple[str, int] | None = None,
    search: tuple[tuple[str, int, float | FailureKind, str], ...] = SEARCH,
    simulated: bool = True,
    name: str = "resnet-cifar10",
    stopped: str = "no trial is expected to bring more than it costs",
    relaxations: tuple[Relaxation, ...] = (),
    overrun: float = 1.0,
) -> SearchRun:
    """A run of `search` under `goal`, trained on `chosen`; the training takes `overrun` x its prediction."""
    asked = problem(goal, name=name)
    made = trial_steps(asked, search)
    plans = {step.trial.config: Plan.of(asked, step.trial) for step in made if isinstance(step.trial, Measurement)}
    choice = plans[Config.deployment(*chosen)] if chosen else None
    single = {config.instance: plan for config, plan in plans.items() if config.nodes == 1}
    naive = tuple(
        Naive(label=label, plan=single[instance], measured=True)
        for label, instance in (("most popular type", "c5.xlarge"), ("most expensive type", "p2.xlarge"))
        if instance in single
    )
    search_seconds = made[-1].started_seconds + made[-1].trial.seconds if made else 0.0
    verdict = Verdict(
        stopped=stopped, search_seconds=search_seconds, choice=choice, naive=naive, relaxations=relaxations
    )
    run = SearchRun(
        header=header(cloud="sim/aws" if simulated else "aws", simulated=simulated),
        problem=asked,
        status=status,
        steps=made,
        verdict=verdict if stopped else None,
    )
    if choice is None or status not in (Status.DONE, Status.OVERRAN):
        return run
    seconds = choice.seconds * overrun
    usd = asked.price(choice.config).for_seconds(seconds)
    return with_attempts(run, Attempt(config=choice.config, seconds=seconds, usd=usd))


def choice_of(run: SearchRun) -> Plan:
    """Its choice, for a run that has one."""
    assert run.choice is not None
    return run.choice


BUDGET = Goal(minimize=Objective.TIME, budget=Usd.of(85))
DEADLINE = Goal(minimize=Objective.COST, deadline_seconds=8 * 3600.0)


def budget_run() -> SearchRun:
    """Fastest for at most $85: the fastest measured deployment does not fit, the next one does."""
    return record(BUDGET, chosen=("p2.xlarge", 20))


def no_limit_run() -> SearchRun:
    return record(Goal(minimize=Objective.TIME), chosen=("p2.xlarge", 26), simulated=False)


def deadline_run() -> SearchRun:
    return record(DEADLINE, chosen=("p2.xlarge", 8))


def both_limits_run() -> SearchRun:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(85), deadline_seconds=8 * 3600.0)
    return record(goal, chosen=("p2.xlarge", 20))


def knee_run() -> SearchRun:
    return record(Goal(minimize=Objective.KNEE), chosen=("p2.xlarge", 14))


def infeasible_run() -> SearchRun:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of("0.01"))
    relax = (Relaxation(text="needs $24.03 (8 x p2.xlarge)", budget=Usd.of("24.03")),)
    return record(goal, status=Status.INFEASIBLE, search=(), stopped="no trial fits the budget", relaxations=relax)


def nothing_fits_run() -> SearchRun:
    goal = Goal(minimize=Objective.TIME, budget=Usd.of(30), deadline_seconds=3 * 3600.0)
    relax = (
        Relaxation(text="needs $131", budget=Usd.of(131)),
        Relaxation(text="7 h 40 min", deadline_seconds=7 * 3600 + 40 * 60.0),
    )
    return record(
        goal, status=Status.NOTHING_FITS, search=SEARCH[:5], stopped="no further trial fits", relaxations=relax
    )


def all_failed_run() -> SearchRun:
    search = (
        ("c5.xlarge", 1, FailureKind.OUT_OF_MEMORY, "single node of every type"),
        ("c5n.4xlarge", 1, FailureKind.ERROR, "single node of every type"),
        ("p2.xlarge", 1, FailureKind.ERROR, "single node of every type"),
        ("p2.xlarge", 4, FailureKind.LAUNCH, "greatest expected gain for its price"),
    )
    return record(BUDGET, status=Status.ALL_FAILED, search=search, stopped="every type failed")


def interrupted_run() -> SearchRun:
    return record(BUDGET, status=Status.INTERRUPTED, search=SEARCH[:6], stopped="")


def overran_run() -> SearchRun:
    return record(BUDGET, status=Status.OVERRAN, chosen=("p2.xlarge", 20), overrun=3.0)


def run_failed_run() -> SearchRun:
    """A real training that died once with mlcd, and then failed for good."""
    made = record(BUDGET, chosen=("p2.xlarge", 14), simulated=False)
    config = choice_of(made).config
    price = made.problem.price(config)
    lost, failed = (
        Attempt(config=config, seconds=s, usd=price.for_seconds(s), ending=ending, message="why")
        for s, ending in ((1200.0, Ending.LOST), (4000.0, Ending.FAILED))
    )
    return replace(with_attempts(made, lost, failed), status=Status.RUN_FAILED)


def missing_output_run() -> SearchRun:
    """A real training that ended by itself without the model that its job file names."""
    made = lost_run()
    final = made.attempts[-1]
    bare = replace(final, missing_outputs=("model.pt", "metrics.json"), kept_folder="/home/work/run/workdir")
    return replace(with_attempts(made, *made.earlier, bare), status=Status.OUTPUT_MISSING)


def lost_run() -> SearchRun:
    """A real training that died with mlcd, and was done by a second one."""
    made = run_failed_run()
    choice = choice_of(made)
    done = Attempt(config=choice.config, seconds=choice.seconds, usd=choice.usd)
    return replace(with_attempts(made, *made.earlier, done), status=Status.DONE)


def given_up_run() -> SearchRun:
    """A real training that died with mlcd, after which there was not enough left for another."""
    made = run_failed_run()
    return replace(with_attempts(made, *made.earlier), status=Status.NOTHING_FITS)


def hostile_run() -> SearchRun:
    """User text that would break a page that does not escape it."""
    made = record(
        BUDGET, chosen=("p2.xlarge", 20), name="<script>alert(1)</script>&\"'", stopped='<b>bold</b> & "quoted"'
    )
    evil = tuple(replace(step, reason="<img src=x onerror=alert(1)>") for step in made.steps)
    return replace(made, steps=evil, header=header(run_id='x"><script>', strategy="heterbo:<i>", cloud="sim/<u>"))


def untried_choice_run() -> SearchRun:
    """An analytical strategy's answer: chosen without a trial, by a plan of its own."""
    made = record(Goal(minimize=Objective.TIME), search=(), status=Status.RUNNING)
    plan = Plan.of(made.problem, measurement(made.problem, "p2.xlarge", 16, 400.0))
    final = Attempt(config=plan.config, seconds=plan.seconds, usd=plan.usd)
    naive = (Naive(label="most popular type", plan=plan, measured=False),)
    chosen = with_choice(replace(made, status=Status.DONE, header=header(strategy="paleo")), plan, naive)
    return with_attempts(chosen, final)


def replayed_run() -> SearchRun:
    """The search of `budget_run` answered by a measured table: the job is one sample, and nothing is noisy."""
    made = budget_run()
    asked = replace(made.problem, work_samples=1.0)
    steps = tuple(
        step.ended(
            replace(
                step.trial,
                samples_per_second=step.trial.samples_per_second / WORK_SAMPLES,
                relative_error=0.0,
                startup_seconds=0.0,
            )
        )
        if isinstance(step.trial, Measurement)
        else step
        for step in made.trials
    )
    plans = {step.trial.config: Plan.of(asked, step.trial) for step in steps if isinstance(step.trial, Measurement)}
    choice = plans[choice_of(made).config]
    naive = tuple(replace(n, plan=plans[n.plan.config]) for n in made.naive)
    final = Attempt(config=choice.config, seconds=choice.seconds, usd=choice.usd)
    replayed = replace(made, header=header(cloud="replay/scout"), problem=asked, steps=steps)
    return with_attempts(with_choice(replayed, choice, naive), final)


def crowded_run() -> SearchRun:
    """Thirty trials of one type close to each other, and one type that failed: labels must fight for room."""
    search: list[tuple[str, int, float | FailureKind, str]] = [
        ("p2.xlarge", n, 50.0 * n**0.8, "close") for n in range(1, 30)
    ]
    search += [("c5.xlarge", n, FailureKind.OUT_OF_MEMORY, "close") for n in range(40, 46)]
    return record(Goal(minimize=Objective.TIME), chosen=("p2.xlarge", 29), search=tuple(search))


BATCHES = (64, 128, 256, 512)


def batches_run(
    *, noise_scale: float | None = 300.0, decay: float | None = 0.5, by_memory: bool = False, told: bool = True
) -> SearchRun:
    """A search over nodes and global batches: corners, centre and two more runs, to a target."""

    def config(nodes: int, batch: int) -> Config:
        return Config((("instance", "m.small"), ("nodes", nodes), ("batch", batch)))

    configs = tuple(config(nodes, batch) for nodes in range(1, 5) for batch in BATCHES)
    knobs = (
        Knob(name="instance", values=("m.small",), features={"m.small": (1.0,)}),
        Knob(name="nodes", values=(1, 2, 3, 4)),
        Knob(name="batch", values=BATCHES),
    )
    part = {c: (0.4 + 0.6 * -(-int(c["batch"]) // c.nodes) / 512) if by_memory else 1.0 for c in configs}
    asked = Problem(
        name="digits",
        work_samples=1.0,
        work_known=False,
        space=Space(knobs, configs),
        goal=Goal(minimize=Objective.KNEE),
        usd_per_hour=tuple(Usd.of(round(0.1 * c.nodes * part[c], 6)) for c in configs),
        noise=0.05,
        keeps_work=True,
        batching=Batching(reference=64, decay=decay),
        target=Target(metric="accuracy", value=0.97),
    )
    made, clock, reached = [], 0.0, 0.0
    for number, (nodes, batch) in enumerate(((1, 64), (1, 512), (4, 64), (4, 512), (2, 256), (3, 512)), start=1):
        step_seconds = 0.002 + 0.0004 * batch / nodes + 0.003 * (nodes > 1) + 0.001 * nodes
        points = [reached + 400.0 * step for step in range(1, 6)]
        learned = tuple(Learned(at, 1 - 1 / (at / 900 + 1.3)) for at in points) if told else ()
        reached += 2000.0
        price = asked.price(config(nodes, batch))
        trial = Measurement(
            config=config(nodes, batch),
            attempt=1,
            samples_per_second=batch / step_seconds,
            relative_error=0.03,
            iterations=60,
            startup_seconds=2.0,
            seconds=12.0,
            usd=price.for_seconds(12.0),
            reached_samples=reached,
            noise_scale=noise_scale,
            learned=learned,
        )
        reason = "one of the runs that scavenger-partial starts with"
        made.append(trial_step(asked, number, trial, reason, clock, 48.0))
        clock += 12.0
    history = History(tuple(step.trial for step in made))
    choice = next(plan for plan in plans(remaining_problem(asked, history), history) if plan.config == config(4, 512))
    run = SearchRun(
        header=header(
            run_id="digits-4d11aa",
            created="2026-11-15T12:00:00Z",
            cloud="minicloud",
            simulated=False,
            strategy="scavenger-partial",
            seed=0,
            catalog_date="2026-03-01",
        ),
        problem=asked,
        status=Status.DONE,
        steps=tuple(made),
        verdict=Verdict(
            stopped="the configuration predicted to be best was measured", search_seconds=clock, choice=choice
        ),
    )
    final = Attempt(config=choice.config, seconds=choice.seconds, usd=choice.usd, reached_samples=reached + 9000)
    return with_attempts(run, final)


def black_box_run() -> SearchRun:
    """The same, of a job that reports neither noise nor a metric, paid by memory."""
    return batches_run(noise_scale=None, by_memory=True, told=False)


SAMPLES = {
    "budget": budget_run,
    "no-limit": no_limit_run,
    "deadline": deadline_run,
    "both-limits": both_limits_run,
    "knee": knee_run,
    "infeasible": infeasible_run,
    "nothing-fits": nothing_fits_run,
    "all-failed": all_failed_run,
    "interrupted": interrupted_run,
    "overran": overran_run,
    "run-failed": run_failed_run,
    "output-missing": missing_output_run,
    "lost": lost_run,
    "given-up": given_up_run,
    "hostile": hostile_run,
    "untried-choice": untried_choice_run,
    "crowded": crowded_run,
    "replayed": replayed_run,
    "batches": batches_run,
    "black-box": black_box_run,
}
