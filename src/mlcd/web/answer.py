"""The answer of a run at a glance, in four tiles: what was chosen and why, what it takes, how much was tried."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

from mlcd.report.serverless import headline as epochs_headline
from mlcd.report.serving import headroom_text
from mlcd.report.wording import assurance_text, sentence, speed_text
from mlcd.run.kind import Kind
from mlcd.run.run import EpochRun, Run, SearchRun
from mlcd.trial.epoch import Epoch
from mlcd.trial.outcome import Status
from mlcd.units import format_seconds, latency_text
from mlcd.web.api_types import RunNowJson


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure with its name.

    small  what explains it
    live   the key of a `now` event that has the figure; "" if only a new page has it
    """

    what: str
    value: str
    small: str = ""
    live: str = ""


def tiles(run: Run[Any], now: RunNowJson, goal: str) -> tuple[Tile, ...]:
    """The tiles of a run with findings; the first is the answer."""
    if run.kind is Kind.SERVERLESS:
        return _of_functions(cast(EpochRun, run), now, goal)
    if run.kind is Kind.SERVE:
        return _of_server(cast(SearchRun, run), now, goal)
    return _of_training(cast(SearchRun, run), now, goal)


def _why(goal: str, run: Run[Any]) -> str:
    """The goal; where nothing was chosen, also why the search ended, which the decisions say of all runs."""
    is_answered = run.kind is Kind.SERVERLESS or cast(SearchRun, run).choice is not None
    ended = "" if is_answered or not run.stopped else f" The search ended: {run.stopped}."
    return f"{sentence(goal)}.{ended}"


def _of_training(run: SearchRun, now: RunNowJson, goal: str) -> tuple[Tile, ...]:
    paid = run.train_findings.receipt
    expected_time = "" if now.best_seconds is None else format_seconds(now.best_seconds)
    expected_cost = "" if now.best_usd is None else str(now.best_usd)
    most_time, most_cost = _at_most(run)
    time = Tile(what="Training time, expected", value=expected_time or "-", small=most_time)
    cost = Tile(what="Training cost, expected", value=expected_cost or "-", small=most_cost)
    if paid.run_seconds is not None and paid.run_usd is not None and not paid.run_is_predicted and run.status.is_final:
        failed = " until it failed" if paid.run_failed else ""
        took, was = format_seconds(paid.run_seconds), str(paid.run_usd)
        time = Tile(
            what="Time, search and training",
            value=format_seconds(paid.total_seconds),
            small=f"training {took}{failed}{_expected(expected_time, most_time)}, search"
            f" {format_seconds(paid.search_seconds)}",
        )
        cost = Tile(
            what="Cost, search and training",
            value=str(paid.total_usd),
            small=f"training {was}{failed}{_expected(expected_cost, most_cost)}, search {paid.search_usd}",
        )
    return (
        Tile(what=_chosen(run), value=now.best or _nothing(run), small=_why(goal, run), live="best"),
        time,
        cost,
        Tile(what="Trials", value=str(now.trials), small=", ".join(now.running), live="trials"),
    )


def _at_most(run: SearchRun) -> tuple[str, str]:
    """The upper bounds of the choice's time and cost, with how sure they are; "" where there is no spread."""
    known, choice = run.train_findings.choice_intervals, run.choice
    if known is None or known.is_exact or choice is None:
        return "", ""
    sure = f"({assurance_text(run.problem.assurance)} sure)"
    return f"at most {format_seconds(choice.worst_seconds)} {sure}", f"at most {choice.worst_usd} {sure}"


def _expected(text: str, most: str) -> str:
    return f" ({', '.join(filter(None, (f'{text} expected', most.partition(' (')[0])))})" if text else ""


def _of_server(run: SearchRun, now: RunNowJson, goal: str) -> tuple[Tile, ...]:
    choice = run.serve_findings.choice
    rate, price, latency, tokens, kept = "-", "-", "", "", ""
    found = run.serve_findings.receipt
    paid = f"search and verification cost {found.total_usd}" if run.status.is_final else ""
    if choice is not None:
        load = choice.load
        rate, price = speed_text(choice.requests_per_second), str(choice.usd_per_million)
        latency = f"p50 {latency_text(load.p50_seconds)}, p99 {latency_text(load.p99_seconds)}"
        kept = headroom_text(run)
        if load.tokens is not None:
            first, speed = load.tokens.ttft[2], load.tokens.output_tokens_per_second
            tokens = f"first token within {latency_text(first)} (p99), {speed_text(speed)} tokens/s"
    return (
        Tile(what=_chosen(run), value=now.best or _nothing(run), small=_why(goal, run), live="best"),
        Tile(what="Requests a second", value=rate, small="; ".join(filter(None, (tokens or latency, kept)))),
        Tile(
            what="A million requests cost",
            value=price,
            small="; ".join(filter(None, (latency if tokens else "", paid))),
        ),
        Tile(what="Load tests", value=str(now.trials), small=", ".join(now.running), live="trials"),
    )


def _of_functions(run: EpochRun, now: RunNowJson, goal: str) -> tuple[Tile, ...]:
    losses = [step.outcome.loss for step in run.epoch_steps if isinstance(step.outcome, Epoch)]
    loss = f"{losses[-1]:.4g}" if losses else "-"
    answer = epochs_headline(run) if run.status.is_final else "Training"
    return (
        Tile(
            what=f"Loss, of a target of {run.problem.target_loss:.4g}", value=loss, small=f"{answer} {_why(goal, run)}"
        ),
        Tile(what="Time so far" if not run.status.is_final else "Time", value=format_seconds(now.elapsed_seconds)),
        Tile(what="Cost so far" if not run.status.is_final else "Cost", value=str(now.spent_usd)),
        Tile(what="Epochs", value=str(now.trials), small=", ".join(now.running) or _fleets(run), live="trials"),
    )


def _fleets(run: EpochRun) -> str:
    """`11 of 13 on 64 x 3,008 MB`: the fleet that most epochs ran on."""
    used = Counter(f"{each.fleet.functions} x {each.fleet.memory_mb:,} MB" for each in run.epochs)
    return "".join(f"{count} of {len(run.epochs)} on {fleet}" for fleet, count in used.most_common(1))


def _chosen(run: SearchRun) -> str:
    return "Chosen" if run.choice else "Best so far"


def _nothing(run: SearchRun) -> str:
    if run.status in (Status.INFEASIBLE, Status.NOTHING_FITS):
        return "nothing fits"
    return "nothing" if run.status.is_final else "nothing yet"
