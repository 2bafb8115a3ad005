import io
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from tests.rendered import html_of, json_of, plot_of, serving_html_of, verdict_of
from tests.report_kind_samples import serving_run
from tests.report_samples import (
    SAMPLES,
    all_failed_run,
    both_limits_run,
    budget_run,
    interrupted_run,
    lost_run,
    no_limit_run,
    nothing_fits_run,
    overran_run,
    replayed_run,
    with_attempts,
    with_choice,
    with_trials,
)

from mlcd.events import RunProgress, SearchEnded, StepEnded, StepStarted
from mlcd.findings import shown
from mlcd.findings.rejected import listed
from mlcd.problem import Problem
from mlcd.report.as_json import schema
from mlcd.report.node_metrics import bytes_text
from mlcd.report.progress import ProgressLines
from mlcd.report.receipt_lines import train_lines
from mlcd.report.serving import serving_verdict
from mlcd.report.text import rendered
from mlcd.report.verdict import _failures
from mlcd.report.wording import assurance_text, percent_text, short_seconds, shortened, speed_text
from mlcd.report.worth import worth
from mlcd.run.findings import AccountStep
from mlcd.run.money import Money
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.run.verdict import Naive, Relaxation
from mlcd.space import Config
from mlcd.trial.node_metrics import NodeMetrics
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure, FailureKind, History, Measurement
from mlcd.units import ZERO, Usd, format_seconds


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,230"), (452.0, "452"), (45.64, "45.6"), (0.01234, "0.0123"), (999.9, "1,000")]
)
def test_speeds_have_three_digits(value: float, text: str) -> None:
    assert speed_text(value) == text


def test_small_words() -> None:
    assert [percent_text(f) for f in (0.124, 0.034, 0.0004, -0.5)] == ["12%", "3.4%", "under 0.1%", "50%"]
    assert [assurance_text(a) for a in (0.999999, 0.95)] == ["99.9999%", "95%"]
    assert [short_seconds(s) for s in (8.2, 725, 11520, 190800, -60)] == ["8.2s", "12m05s", "3h12m", "2d05h", "-1m00s"]
    assert [listed("abcdef"[:n], "type", width=7) for n in (1, 2, 4, 6)] == [
        "a",
        "a and b",
        "a, b, c and 1 more type",
        "a, b, c and 3 more types",
    ]
    assert shortened("50 x Standard_ND96amsr_A100_v4", 20) == "50 x Stand…r_A100_v4"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_verdict_is_never_wide_nor_empty(name: str) -> None:
    text = verdict_of(SAMPLES[name]())
    assert text
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "nan" not in text.lower().split()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_plain_verdict_is_ascii(name: str) -> None:
    assert verdict_of(SAMPLES[name](), plain=True).isascii()


def test_the_verdict_contains_the_numbers() -> None:
    run = budget_run()
    text = verdict_of(run)
    assert text.startswith("SIMULATED: ")
    for part in (
        "20 x p2.xlarge",
        "$50.53",
        "2 h 48 min",
        "$53.49",
        "$24.35",
        "$74.88",
        "$85.00",
        "$10.12",
        "99.9999%",
    ):
        assert part in text
    assert "most popular type" in text
    assert "most expensive type" in text
    assert "mlcd report resnet-cifar10-7f3a9c" in text
    assert "138 other node counts of c5.xlarge, c5n.4xlarge and p2.xlarge: not tried: " in text


def test_a_real_run_does_not_say_simulated() -> None:
    assert "SIMULATED" not in verdict_of(no_limit_run())


def test_a_real_training_without_outputs_says_that_nothing_was_brought_back() -> None:
    real = no_limit_run()
    assert "Outputs: none: `outputs` in the job file is empty" in verdict_of(real)
    assert "Outputs: none" not in verdict_of(budget_run())
    kept = verdict_of(replace(real, outputs="/home/outputs"))
    assert "Outputs: /home/outputs" in kept
    assert "Outputs: none" not in kept


def test_prices_of_served_models_say_of_what_they_are_and_at_which_rate() -> None:
    basis = "prices for a million requests at 83% of the measured rate, as promised of the choice"
    record = serving_run()
    assert basis in " ".join(serving_verdict(shown(record)).split())
    assert basis in serving_html_of(record)
    assert "$ per million requests" in serving_html_of(record)
    asked = replace(record.problem.goal, rate=100.0)
    text = serving_verdict(shown(serving_run(asked)))
    assert "of the measured rate, as promised" not in text
    assert "Prices are for a million requests." in text


def test_a_replayed_run_says_so_and_speaks_of_the_jobs_time() -> None:
    text = verdict_of(replayed_run())
    assert text.startswith("REPLAYED: times and prices are those of the measured table scout;")
    assert "SIMULATED" not in text
    assert "samples/s" not in text
    assert "Job time over nodes" in text
    assert "20 x p2.xlarge   2 h 46 min" in text
    assert "2 h 46 min, $49.78: measured without noise" in text


def test_a_choice_that_was_not_measured_has_no_bound() -> None:
    untried = SAMPLES["untried-choice"]()
    assert untried.choice
    exact = replace(untried.choice, worst_seconds=untried.choice.seconds, worst_usd=untried.choice.usd)
    assert "predicted, not measured" in verdict_of(with_choice(untried, exact))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("infeasible", "Nothing fits these limits; nothing was trained."),
        ("nothing-fits", "Nearest way out among measured deployments: needs $131, or 7 h 40 min"),
        ("infeasible", "Nearest way out: needs $24.03"),
        ("run-failed", "The training failed before its work was done (why); what it cost is on the receipt."),
        ("run-failed", "run (failed)"),
        ("run-failed", "chosen; its training failed"),
        ("lost", "  training died with mlcd            20 min    $4.20\n  run "),
        (
            "given-up",
            (
                "Nothing measured fits the remaining limits after 12 trials and 1 unfinished training;"
                " no training was finished."
            ),
        ),
        ("output-missing", "MISSING: model.pt, metrics.json: listed under outputs in the job file, and not there"),
        (
            "output-missing",
            "copy what you need from\n  /home/work/run/workdir\nBefore the next run, correct `outputs`",
        ),
        ("output-missing", "chosen; an output is missing"),
        ("all-failed", "Every trial failed (4 of 4)"),
        ("interrupted", "Continue with: mlcd resume resnet-cifar10-7f3a9c"),
        ("interrupted", "fits the limits so far"),
        ("overran", "Search and training together broke the limit: $90.94 over the budget."),
        ("both-limits", "fastest within 8 h for at most $85.00"),
    ],
)
def test_every_ending_has_its_text(name: str, words: str) -> None:
    assert words in verdict_of(SAMPLES[name]())


def test_money_so_far_is_what_was_paid_and_a_prediction_is_apart() -> None:
    done = budget_run()
    run = shown(replace(with_attempts(done), status=Status.INTERRUPTED, findings=None))
    paid = run.train_findings.receipt
    assert paid.run_is_predicted
    lines = {line.split("  ")[1]: line for line in verdict_of(run).splitlines() if line.startswith("  ")}
    assert str(run.spent) in lines["so far"]
    assert str(paid.total_usd) in lines["total (predicted)"]
    assert run.spent < paid.total_usd
    assert "left (predicted)" in lines
    assert [line.label for line in train_lines(paid, is_final=False)][1:4] == [
        "so far",
        "run (predicted)",
        "total (predicted)",
    ]


def test_a_warning_about_the_end_is_in_every_report() -> None:
    made = lost_run()
    warned = replace(made.attempts[-1], warning="the job exited successfully after 50% of the work")
    run = shown(replace(with_attempts(made, *made.earlier, warned), status=Status.DONE, findings=None))
    assert "WARNING: the job exited successfully after 50% of the work." in verdict_of(run)
    assert "WARNING: the job exited successfully after 50% of the work." in html_of(run)
    found: Any = json_of(run)
    assert found["training"]["warning"] == warned.warning


def test_an_interrupted_trial_did_not_fail() -> None:
    run = interrupted_run()
    last = run.trials[-1]
    stopped = Failure(
        config=last.config, attempt=1, kind=FailureKind.STOPPED, message="", seconds=30.0, usd=last.trial.usd
    )
    run = with_trials(run, [*run.trials[:-1], replace(last, outcome=stopped)])
    before = sum(isinstance(step.trial, Failure) for step in run.trials) - 1
    assert f"search (6 trials, {f'{before} failed, ' if before else ''}1 interrupted)" in verdict_of(run)
    assert [each.config for each in History((stopped,)).to_retry(0)] == [last.config]
    lost = replace(stopped, kind=FailureKind.LOST)
    assert History((lost,)).to_retry(0) == ()
    assert History((stopped, replace(lost, attempt=2))).to_retry(1) != ()


def test_a_faster_trial_that_does_not_fit_is_not_called_no_better() -> None:
    run = nothing_fits_run()
    measured = list(run.history.measured)
    fastest = max(measured, key=lambda trial: trial.samples_per_second)
    slowest = min(measured, key=lambda trial: trial.samples_per_second)
    fits = Plan.of(run.problem, slowest)
    other = Plan.of(run.problem, fastest)

    def said(budget: Usd) -> str:
        given = replace(run.problem, goal=replace(run.problem.goal, budget=budget, deadline_seconds=None))
        return worth(given, fastest, fits, fits, slowest, spent=run.spent, elapsed_seconds=run.search_seconds)

    assert said(other.usd).endswith(
        f"faster than {slowest.config}, but would cost {run.spent + other.usd} with the search: over the budget"
    )
    assert said(run.spent + other.usd).endswith(f"faster than {slowest.config}, but not certain to fit the limits")
    worse = worth(run.problem, slowest, other, other, fastest, spent=run.spent, elapsed_seconds=run.search_seconds)
    assert worse.endswith(f"no better than {fastest.config}")


def test_a_failed_training_saved_nothing() -> None:
    assert "Savings" not in verdict_of(SAMPLES["run-failed"]())


def test_nothing_is_saved_against_the_choice_itself() -> None:
    run = budget_run()
    assert run.verdict is not None
    assert run.choice is not None
    own = Naive(label="most popular type", plan=run.choice, measured=True)
    text = verdict_of(replace(run, verdict=replace(run.verdict, naive=(own, *run.naive))))
    config = run.choice.config
    paid = f"the search took {format_seconds(run.search_seconds)} and {run.search_usd}"
    assert f"  {config} (most popular type):\n      also what was chosen: nothing is saved, and {paid}\n" in text
    page = html_of(replace(run, verdict=replace(run.verdict, naive=(own,))))
    assert f"also what was chosen: nothing is saved, and {paid}" in page


def test_a_naive_choice_that_would_break_a_limit_is_marked() -> None:
    text = verdict_of(both_limits_run())
    assert "1 x c5.xlarge (most popular type): 8 d 13 h, $34.84\n" in text
    assert "; it would break the deadline\n" in text
    assert "would break" not in verdict_of(no_limit_run())


def test_an_unmeasured_naive_choice_is_marked_as_approximate() -> None:
    run = both_limits_run()
    naive = replace(run.naive[1], measured=False)
    untried = with_trials(run, [step for step in run.trials if step.trial.config != naive.plan.config])
    text = verdict_of(with_choice(untried, run.choice, (naive,)))
    assert "1 x p2.xlarge (most expensive type, predicted): ~24 h 5 min, ~$21.67\n" in text
    assert "\n      95%: 23 h 31 min .. 24 h 39 min, $21.17 .. $22.19\n" in text
    assert "; it would probably break the deadline" in text
    assert re.search(r"\n      ~19 h.* saved, ~\$\d+\.\d\d more;", text)
    bare = replace(naive, plan=replace(naive.plan, worst_seconds=naive.plan.seconds))
    assert "predicted): ~24 h 5 min, ~$21.67\n" in verdict_of(with_choice(untried, run.choice, (bare,)))


def test_the_overrun_is_the_difference() -> None:
    run = overran_run()
    assert str(run.total_usd - Usd.of(85)) == "$90.94"


def test_failures_are_grouped() -> None:
    text = verdict_of(all_failed_run())
    assert "2 x job-failed: it ended with exit code 1\n      1 x c5n.4xlarge, 1 x p2.xlarge" in text


def test_failed_configurations_with_knobs_are_told_apart() -> None:
    def failure(prefetch: int) -> Any:
        return SimpleNamespace(kind="job-failed", message="why", config=f"1 x a, precision=bf16, prefetch={prefetch}")

    record: Any = SimpleNamespace(run_id="r", history=SimpleNamespace(failures=[failure(1), failure(2)]))
    assert "prefetch=1; 1 x a, precision=bf16, prefetch=2" in rendered(_failures(record))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_plot_is_small(name: str) -> None:
    lines = plot_of(SAMPLES[name]())
    assert len(lines) <= 15
    assert all(len(line) <= 100 for line in lines)


def test_the_plot_marks_choice_and_failures() -> None:
    lines = plot_of(budget_run())
    assert sum(line.count("★") for line in lines) == 2  # in the plot and in its legend
    assert sum(line.count("✗") for line in lines) == 3


def paid_steps(run: SearchRun) -> list[tuple[Step, AccountStep]]:
    """Each trial with the account once it was paid."""
    return [*zip(run.trials, shown(run).train_findings.account, strict=True)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def played(
    run: SearchRun,
    stream: io.StringIO,
    *,
    color: bool = False,
    replayed: bool = False,
    since: int = 0,
    problem: Problem | None = None,
) -> str:
    """The run's events, as the engine would tell them; those `since` a resume."""
    observer, goal = ProgressLines(stream, color, replayed=replayed, problem=problem), run.problem.goal
    money = Money(
        spent=ZERO,
        reserved=ZERO,
        left=goal.budget,
        elapsed_seconds=0,
        reserved_seconds=0,
        seconds_left=goal.deadline_seconds,
    )
    for trial, step in paid_steps(run)[since:]:
        observer(StepStarted(step=replace(trial, outcome=None), money=money))
        money = Money(
            spent=step.spent,
            reserved=step.reserved,
            left=None if goal.budget is None else goal.budget - step.spent - step.reserved,
            elapsed_seconds=step.elapsed_seconds,
            reserved_seconds=step.reserved_seconds,
            seconds_left=goal.deadline_seconds and goal.deadline_seconds - step.elapsed_seconds - step.reserved_seconds,
        )
        observer(StepEnded(step=trial, incumbent=step.incumbent, money=money))
    observer(SearchEnded(stopped=run.stopped, choice=run.choice, money=money))
    if run.choice:
        for percent in range(0, 101, 2):
            observer(RunProgress(config=run.choice.config, fraction=percent / 100, money=money))
    return stream.getvalue()


def test_one_line_per_trial_with_speed_money_and_best() -> None:
    lines = played(budget_run(), io.StringIO()).splitlines()
    seventh = next(line for line in lines if line.startswith("  7 "))
    assert seventh.split() == [
        *("7", "20", "x", "p2.xlarge", "452", "±2.4%"),
        *("$10.02", "$53.49", "$21.49", "2h48m", "$50.53", "#7"),
    ]
    assert all(len(line) <= 100 for line in lines)
    assert sum(line.startswith("Training on") for line in lines) == 5


def test_each_trial_says_what_came_and_what_it_was_worth() -> None:
    run = budget_run()
    lines = played(run, io.StringIO(), problem=run.problem).splitlines()
    assert "the first that fits" in next(line for line in lines if "measured in" in line)
    seventh = next(at for at, line in enumerate(lines) if line.startswith("  7 "))
    step = next(step for step in run.trials if step.number == 7)
    before = next(paid.incumbent for trial, paid in paid_steps(run) if trial.number == 6)
    after = next(paid.incumbent for trial, paid in paid_steps(run) if trial.number == 7)
    assert before is not None
    assert after is not None
    saved = format_seconds(before.seconds - after.seconds)
    assert step.reason in lines[seventh + 1]
    told = f"measured in {format_seconds(step.trial.seconds)}: {format_seconds(after.seconds)} and {after.usd} to train"
    assert f"{told}; saves {saved} of the training" in lines[seventh + 1]
    worse = [line for line in lines if "no better than" in line]
    measured = sum("measured in" in line for line in lines)
    assert measured == len(run.history.measured)
    assert worse
    resumed = played(run, io.StringIO(), since=6, problem=run.problem).splitlines()
    assert "the best so far" in next(line for line in resumed if "measured in" in line)


def test_columns_of_trials_line_up() -> None:
    lines = [line for line in played(both_limits_run(), io.StringIO()).splitlines() if re.match(r" +\d+ ", line)]
    assert len({line.index("#") for line in lines[3:]}) == 1
    assert all(len(line) <= 100 for line in lines)


def test_free_is_explained_once_where_there_is_a_limit() -> None:
    text = played(both_limits_run(), io.StringIO())
    lines = text.splitlines()
    assert lines[0].startswith("free: neither spent, committed to running trials, nor reserved")
    assert lines[1].split()[-8:] == ["spent", "reserved", "free", "free", "time", "best", "so", "far"]
    assert text.count("free:") == 1
    assert not re.search(r"\bfree\b", played(no_limit_run(), io.StringIO()))
    assert all(" left, " in line for line in lines if line.startswith("Training on"))


def test_after_a_resume_the_best_is_named_and_columns_line_up() -> None:
    lines = played(budget_run(), io.StringIO(), since=8).splitlines()
    rows = [line for line in lines if re.match(r" +\d+ ", line)]
    assert rows[0].endswith(" 2h48m   $50.53 20 x p2.xlarge")
    assert len({line.index(" 2h48m") for line in rows}) == 1


def played_as(name: str, stream: io.StringIO) -> str:
    """The trials of `budget_run`, all of a type with this name."""
    run = budget_run()
    observer = ProgressLines(stream, False)
    for trial, step in paid_steps(run):
        money = Money(
            spent=step.spent,
            reserved=step.reserved,
            left=Usd.of(1),
            elapsed_seconds=1,
            reserved_seconds=1,
            seconds_left=None,
        )
        config = Config.deployment(name, trial.config.nodes)
        begun = replace(trial, authorisation=replace(trial.authorisation, choice=config), reason="r" * 99, outcome=None)
        observer(StepStarted(step=begun, money=money))
        observer(StepEnded(step=begun.ended(replace(trial.trial, config=config)), incumbent=None, money=money))
    return stream.getvalue()


def test_a_long_name_is_never_cut_and_keeps_the_columns() -> None:
    name = "Standard_ND96amsr_A100_v4"
    text = played_as(name, io.StringIO())
    assert f"  4 8 x {name}\n" in text
    assert len({line.index(" none fits yet") for line in text.splitlines() if "none fits" in line}) == 1
    assert all(len(line) <= 100 for line in text.splitlines())
    assert played_as(name, Terminal()).count(name) >= 2 * len(budget_run().trials)  # at its start and its end


def test_a_name_a_little_too_long_borrows_from_the_next_column() -> None:
    text = played_as("Standard_NC12s_v3x", io.StringIO())
    assert re.search(r"^  7 20 x Standard_NC12s_v3x +452 ±2.4% +\$10.02", text, re.M)
    assert len({line.index(" none fits yet") for line in text.splitlines() if "none fits" in line}) == 1


def test_a_replayed_job_shows_its_time_without_a_spread() -> None:
    text = played(replayed_run(), io.StringIO(), replayed=True)
    assert re.search(r"configuration +job time +spent", text)
    assert re.search(r"  7 20 x p2.xlarge +2h46m +\$10.02", text)
    assert "±" not in text
    assert "Chosen: 20 x p2.xlarge, 2 h 46 min and $49.78 expected\n" in text


def test_a_failure_shows_kind_and_message() -> None:
    text = played(budget_run(), io.StringIO())
    assert re.search(r"8 24 x c5.xlarge +out-of-memory", text)
    assert "needs 9.1 GiB a node, 8 GiB there" in text


def test_the_bar_of_a_finished_training_is_printed_once() -> None:
    """While its nodes are given back, the job says that it is done again and again."""
    run, stream = budget_run(), Terminal()
    money = Money(spent=ZERO, reserved=ZERO, left=None, elapsed_seconds=9.0, reserved_seconds=0, seconds_left=None)
    with ProgressLines(stream, problem=run.problem) as lines:
        for fraction in (0.0, 0.5, 1.0, 1.0, 1.0):
            lines(RunProgress(config=run.trials[0].config, fraction=fraction, money=money))
        assert stream.getvalue().count("100%") == 1
        for fraction in (0.5, 1.0):  # another attempt, from the checkpoint
            lines(RunProgress(config=run.trials[0].config, fraction=fraction, money=money))
    assert stream.getvalue().count("100%") == 2


def test_on_a_terminal_lines_are_overwritten() -> None:
    text = played(budget_run(), Terminal())
    assert re.search(r"\r(\x1b\[2K)?Training on 20 x p2.xlarge", text)
    assert "greatest expected gain" in text
    assert text.count("\n") - text.count("\x1b[1A") < 20  # lines that stay


def test_colour_only_on_request() -> None:
    assert "\x1b" not in played(budget_run(), io.StringIO())
    assert "\x1b[31m" in played(budget_run(), io.StringIO(), color=True)


def test_an_ascii_encoding_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    observer = ProgressLines(stream, False)
    run = budget_run()
    trial, step = paid_steps(run)[0]
    money = Money(
        spent=step.spent, reserved=step.reserved, left=None, elapsed_seconds=1, reserved_seconds=1, seconds_left=None
    )
    observer(StepEnded(step=trial, incumbent=step.incumbent, money=money))
    observer(RunProgress(config=trial.config, fraction=0.5, money=money))
    assert b"6.10 +-2.4%" in raw.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (1234, "1.2 kB"),
        (9.96e6, "10 MB"),
        (999.6e6, "1.0 GB"),
        (34.4e9, "34 GB"),
        (2e15, "2.0 PB"),
        (1e18, "1,000 PB"),
    ],
)
def test_bytes_have_a_unit(count: float, text: str) -> None:
    assert bytes_text(count) == text


def with_metrics(run: SearchRun) -> SearchRun:
    """The same run; monitoring has data of its second trial and of its training."""
    first, second, *others = run.trials
    of_trial = NodeMetrics(source="CloudWatch", nodes=2, cpu_percent=61.6, received_bytes=1.25e9, sent_bytes=3.4e10)
    assert isinstance(second.trial, Measurement)
    second = replace(second, outcome=replace(second.trial, node_metrics=of_trial))
    assert run.final is not None
    final = replace(run.final, node_metrics=NodeMetrics(source="CloudWatch", nodes=1, cpu_percent=97.2))
    return with_attempts(replace(run, steps=(first, second, *others)), final)


def test_what_the_clouds_monitoring_measured_is_shown_per_step() -> None:
    run = with_metrics(budget_run())
    config, trained = run.trials[1].trial.config, run.attempts[0].config
    text = verdict_of(run)
    start = text.index("Per node, by CloudWatch")
    rows = [line.split("   ") for line in text[start:].split("\n\n")[0].splitlines()]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["Per node, by CloudWatch", "CPU", "received", "sent"],
        [f"trial {run.trials[1].number}: {config}", "62%", "1.2 GB", "34 GB"],
        [f"training: {trained}", "97%", "-", "-"],
    ]
    page = html_of(run)
    assert "What the cloud measured on the nodes" in page
    for part in ("CloudWatch", "62%", "1.2 GB", "34 GB", "97%"):
        assert part in page
    result = json_of(run)
    trials: Any = result["trials"]
    training: Any = result["training"]
    assert trials[0]["measured"]["node_metrics"] is None
    assert trials[1]["measured"]["node_metrics"] == {
        "source": "CloudWatch",
        "nodes": 2,
        "cpu_percent": 61.6,
        "received_bytes": 1.25e9,
        "sent_bytes": 3.4e10,
        "gpu_percent": None,
        "gpu_memory_gib": None,
    }
    assert (training["node_metrics"]["cpu_percent"], training["node_metrics"]["sent_bytes"]) == (97.2, None)
    jsonschema.validate(result, schema(), cls=jsonschema.Draft202012Validator)


def test_without_metrics_nothing_is_shown() -> None:
    run = budget_run()
    assert "Per node" not in verdict_of(run)
    assert "What the cloud measured" not in html_of(run)


def test_the_way_out_says_which_flags_to_give() -> None:
    run = SAMPLES["nothing-fits"]()
    assert run.verdict is not None
    way = Relaxation(text="c5.xlarge would fit", budget=Usd.of("131.5"), deadline_seconds=4 * 3600 + 61.0)
    text = " ".join(verdict_of(replace(run, verdict=replace(run.verdict, relaxations=(way,)))).split())
    assert (
        "The same command with --budget 131.50 --deadline 4h2min --reuse starts from what these trials measured."
        in text
    )
