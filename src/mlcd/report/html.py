"""A run as one HTML file: the answer, the receipt, pictures, every trial, and how to repeat it. Works offline."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlcd.report.batches import work_text
from mlcd.report.decisions import decisions, decisions_note
from mlcd.report.node_metrics import metrics_table
from mlcd.report.origin import is_replayed, origin, origin_word, prices_text
from mlcd.report.page import Cell, Column, Page, PagePart, Table, TableRow, render
from mlcd.report.pictures import pictures_of
from mlcd.report.receipt_lines import receipt_table, train_lines
from mlcd.report.thinning import MOST_ROWS, ends, left_out_text
from mlcd.report.verdict import all_in_trials, end_warning, headline, is_given_up, outcome, rest_text, search_price
from mlcd.report.wording import assurance_text, plural, sentence, speed_text, watch_text
from mlcd.report.yardstick import yardstick
from mlcd.run.findings import Receipt, RejectedConfig, Saving
from mlcd.run.run import SearchRun
from mlcd.run.step import Step
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.trial import Failure
from mlcd.units import Usd, format_seconds


def html_report(record: SearchRun, *, whole: bool = True) -> str:
    """The page, or what is inside it (see `render`): no script, nothing loaded from elsewhere, every value escaped."""
    word, meaning = origin(record)
    lead = _lead(record)
    fits = None if record.status is Status.NOTHING_FITS or is_given_up(record) else record.choice
    paid = record.train_findings.receipt if record.trials or record.choice else None
    page = Page(
        name=record.problem.name,
        run_id=record.run_id,
        created=record.created,
        asked=headline(record)[0],
        answer=_answer(record),
        footer=f"mlcd {record.version}, {prices_text(record)}",
        origin_word=word,
        origin_text=sentence(meaning),
        leads=[lead] if lead else [],
        leads_are_bad=record.status.is_final and (record.status is not Status.DONE or bool(end_warning(record))),
    )
    return render(
        "train.html.j2",
        page,
        whole=whole,
        ways_out_title=f"Nearest way out{' among measured deployments' if record.history.measured else ''}:",
        ways_out=[relaxation.text for relaxation in record.relaxations],
        chosen=str(fits.config) if fits and page.answer != str(fits.config) else "",
        tiles=_tiles(record, fits) if fits and record.finished_trial is None else [],
        receipt=_receipt_table(record, paid) if paid else None,
        savings=_savings(record, paid) if paid and paid.savings else None,
        pictures=pictures_of(record) if record.steps else (),
        decisions=decisions(record),
        decisions_note=decisions_note(record),
        tables=_later_tables(record),
        command=f"mlcd {'show' if record.status.is_final else 'resume'} {record.run_id}",
        facts=_facts(record),
    )


def train_tables(record: SearchRun) -> list[Table]:
    """The tables of the page: receipt, what the search saved, why the others were rejected, trials, nodes' metrics."""
    paid = record.train_findings.receipt if record.trials or record.choice else None
    savings = [_savings(record, paid)] if paid and paid.savings else []
    return [*([_receipt_table(record, paid)] if paid else []), *savings, *_later_tables(record)]


def _later_tables(record: SearchRun) -> list[Table]:
    return [table for table in (_why_not(record), _trials(record), metrics_table(record)) if table.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    what: str
    value: str
    small: tuple[PagePart, ...]


def _answer(record: SearchRun) -> str:
    if record.status is Status.INFEASIBLE:
        return "Nothing fits"
    if record.status is Status.NOTHING_FITS:
        return "Nothing fits"
    if is_given_up(record):
        return "A limit was broken"
    if record.status is Status.ALL_FAILED:
        return "Every trial failed"
    if record.status is Status.REFUSED:
        return "Every cloud refused"
    if record.status is Status.RUN_FAILED:
        return "The training failed"
    if record.status is Status.OUTPUT_MISSING:
        return "An output is missing"
    if not record.status.is_final and record.status is not Status.SEARCHED:
        return "Not finished"
    return str(record.choice.config) if record.choice else "Nothing was chosen"


def _lead(record: SearchRun) -> str:
    """The sentence below the answer; may be empty."""
    lines = headline(record)
    if record.status is Status.OUTPUT_MISSING:
        return " ".join(outcome(record))
    if record.status in (Status.OVERRAN, Status.RUN_FAILED):
        return lines[-1]
    if record.finished_trial is not None:
        return all_in_trials(record)
    if warned := end_warning(record):
        return warned[0]
    return "" if record.choice and record.status is Status.DONE else lines[1]


def _tiles(record: SearchRun, choice: Plan) -> list[_Tile]:
    known, paid = record.train_findings.choice_intervals, record.train_findings.receipt
    sure = f"{assurance_text(record.problem.assurance)} sure"
    time: tuple[PagePart, ...] = (PagePart("not measured" if known is None else "measured without noise"),)
    money = time
    if known and not known.is_exact:
        time = _bounds([format_seconds(s) for s in (*known.seconds, choice.worst_seconds)], sure)
        money = _bounds([str(usd) for usd in (*known.usd, choice.worst_usd)], sure)
    watch = record.verdict.watch if record.verdict else None
    if watch is not None:
        time = (*time, PagePart(watch_text(watch), below=True))
    word = "predicted" if paid.run_is_predicted else "until it failed" if paid.run_failed else "measured"
    left: list[PagePart] = []
    if paid.left_usd is not None:
        left += _left(paid.left_usd.micros < 0, str(Usd(abs(paid.left_usd.micros))), str(paid.cap_usd))
    if paid.left_seconds is not None and paid.cap_seconds is not None:
        amount, cap = format_seconds(abs(paid.left_seconds)), format_seconds(paid.cap_seconds)
        left += _left(paid.left_seconds < 0, amount, cap, below=bool(left))
    if rest := rest_text(record):
        time, money = (*time, PagePart(rest, below=True)), (*money, PagePart(rest, below=True))
    return [
        _Tile(what="Training time, predicted", value=format_seconds(choice.seconds), small=time),
        _Tile(what="Training cost, predicted", value=str(choice.usd), small=money),
        _Tile(
            what=f"Search and training, {word}",
            value=f"{format_seconds(paid.total_seconds)}, {paid.total_usd}",
            small=tuple(left) or (PagePart("no limit was set"),),
        ),
    ]


def _bounds(amounts: list[str], sure: str) -> tuple[PagePart, ...]:
    low, high, worst = amounts
    return PagePart(f"95%: {low} to {high}"), PagePart(f"at most {worst}, {sure}", below=True)


def _left(broken: bool, amount: str, cap: str, *, below: bool = False) -> list[PagePart]:
    word, css = ("over", "over") if broken else ("left", "good")
    return [PagePart(f"{amount} {word}", css, below), PagePart(f" of {cap}")]


def _receipt_table(record: SearchRun, paid: Receipt) -> Table:
    note = "Includes every node-second of every trial"
    note += ", and of restarted trainings." if paid.earlier else "."
    return receipt_table(train_lines(paid, is_final=record.status.is_final), note)


def _savings(record: SearchRun, paid: Receipt) -> Table:
    return Table(
        title="Compared with not searching",
        note="Training without a search on a typical choice, and what this run saved, search included.",
        columns=(Column(""), Column("Time", True), Column("Money", True)),
        rows=[_saving_row(saving, search_price(record, saving)) for saving in paid.savings],
        stacks=True,
    )


def _saving_row(saving: Saving, searched: str) -> TableRow:
    """A naive choice: what it takes, its 95% interval if it was not measured, and what was saved.

    searched  what the search took, if the naive choice is the one that it found: then nothing is saved
    """
    naive, known, about = saving.naive, saving.intervals, "" if saving.naive.measured else "~"
    label = f"{naive.label}{'' if naive.measured else ', predicted'}{', with 95% intervals' if known else ''}"
    head = [PagePart(str(naive.plan.config)), PagePart(label, "dim", below=True)]
    if saving.warning:
        head.append(PagePart(saving.warning, "over", below=True))
    time, usd = [PagePart(f"{about}{format_seconds(naive.plan.seconds)}")], [PagePart(f"{about}{naive.plan.usd}")]
    if known:
        low, high = map(format_seconds, known.seconds)
        time += [PagePart(f"{low} to", "dim", below=True), PagePart(high, "dim", below=True)]
        usd += [PagePart(f"{known.usd[0]} to", "dim", below=True), PagePart(str(known.usd[1]), "dim", below=True)]
    if searched:
        head.append(PagePart(searched, "dim", below=True))
        return TableRow(cells=[Cell.head(*head), *_amounts(time, usd)])
    time.append(_saved(saving.seconds >= 0, f"{about}{format_seconds(abs(saving.seconds))}", "longer"))
    usd.append(_saved(saving.usd.micros >= 0, f"{about}{Usd(abs(saving.usd.micros))}", "more"))
    return TableRow(cells=[Cell.head(*head), *_amounts(time, usd)])


def _amounts(time: Sequence[PagePart], usd: Sequence[PagePart]) -> tuple[Cell, Cell]:
    return Cell(parts=tuple(time), css="n", label="Time"), Cell(parts=tuple(usd), css="n", label="Money")


def _saved(is_less: bool, amount: str, otherwise: str) -> PagePart:
    return PagePart(f"{amount} saved", "good", True) if is_less else PagePart(f"{amount} {otherwise}", "dim", True)


def _why_not(record: SearchRun) -> Table:
    front = {plan.config for plan in record.train_findings.pareto}
    entries, with_speed = record.train_findings.rejected, not is_replayed(record)
    speed = [Column("samples/s", True)] * with_speed
    return Table(
        title="Why the others were rejected",
        note="Best first by the goal; time and money are those of the whole training.",
        columns=[Column("Deployment"), *speed, Column("Time", True), Column("Money", True), Column("Why not")],
        rows=[
            _why_row(entry, with_speed=with_speed, on_front=entry.config in front) for entry in ends(entries, MOST_ROWS)
        ],
        stacks=True,
        after=_left_out(record, len(entries), "configurations"),
    )


def _why_row(entry: RejectedConfig, *, with_speed: bool, on_front: bool) -> TableRow:
    speed = speed_text(entry.samples_per_second) if entry.samples_per_second is not None else ""
    time, usd = (format_seconds(entry.plan.seconds), str(entry.plan.usd)) if entry.plan else ("", "")
    tail = (PagePart(" "), PagePart("(on the Pareto front)", "dim")) if on_front else ()
    return TableRow(
        cells=[
            Cell.head(PagePart(entry.subject)),
            *[Cell.of(speed, "n", "samples/s")] * with_speed,
            Cell.of(time, "n", "time"),
            Cell.of(usd, "n", "money"),
            Cell(parts=(PagePart(entry.text), *tail), css="why"),
        ]
    )


def _trials(record: SearchRun) -> Table:
    name = yardstick(record).name
    result = Column(f"{sentence(name) if is_replayed(record) else name} (95%)", True)
    ended = f" The search ended: {record.stopped}." if record.stopped else ""
    return Table(
        title="Every trial",
        note=f"In order, with the authorised cost of each.{ended}",
        columns=[
            Column("#", True),
            Column("Deployment"),
            result,
            Column("Took", True),
            Column("Cost", True),
            Column("Authorised", True),
            Column("Why it was tried"),
        ],
        rows=[_trial_row(record, row) for row in ends(record.trials, MOST_ROWS)],
        stacks=True,
        after=_left_out(record, len(record.trials), "trials"),
    )


def _left_out(record: SearchRun, count: int, noun: str) -> list[str]:
    text = left_out_text(count, MOST_ROWS, noun, record.run_id)
    return [text] if text else []


def _trial_row(record: SearchRun, row: Step) -> TableRow:
    trial, css = row.trial, ""
    config = [PagePart(str(trial.config))]
    if trial.attempt > 1:
        config += [PagePart(" "), PagePart(f"attempt {trial.attempt}", "dim")]
    if isinstance(trial, Failure):
        css = "failed"
        result = Cell.of(f"{trial.kind}: {trial.message}" if trial.message else str(trial.kind), "what")
    else:
        shown = yardstick(record)
        spread = shown.spread(trial)
        dim = (PagePart(" "), PagePart(f"({spread})", "dim")) if spread else ()
        result = Cell(parts=(PagePart(shown.text(shown.value(trial))), *dim), css="n", label=shown.name)
        if record.choice and trial.config == record.choice.config:
            css = "chosen"
            config += [PagePart(" "), PagePart("chosen", "tag")]
    return TableRow(
        css=css,
        cells=[
            Cell.of(str(row.number), "n"),
            Cell(parts=tuple(config), css="c"),
            result,
            Cell.of(format_seconds(trial.seconds), "n", "took"),
            Cell.of(str(trial.usd), "n", "cost"),
            Cell.of(str(row.authorised_usd), "n", "authorised"),
            Cell.of(row.reason, "why"),
        ],
    )


def _facts(record: SearchRun) -> dict[str, str]:
    problem, policy = record.problem, record.problem.trial
    types: dict[str, list[int]] = {}
    for config in problem.space:
        types.setdefault(config.instance, []).append(config.nodes)
    shown = ", ".join(f"{name} ({min(nodes)} to {max(nodes)} nodes)" for name, nodes in list(types.items())[:12])
    more = f" and {len(types) - 12} more types" if len(types) > 12 else ""
    return {
        "Strategy": record.strategy,
        "Seed": str(record.seed),
        "Parallel trials": str(record.parallel),
        "Version": f"mlcd {record.version}",
        "Catalog": prices_text(record),
        "Cloud": record.cloud + (f" ({origin_word(record).lower()})" if origin_word(record) else ""),
        "Goal": str(problem.goal),
        "Work": "the whole job" if is_replayed(record) else work_text(problem),
        "Space": f"{plural(len(problem.space), 'configuration')}: {shown}{more}",
        "Most trials": str(problem.max_trials),
        "Assurance": assurance_text(problem.assurance),
        "Noise": f"{problem.noise:.1%} between two runs",
        "Slowdown": f"limits allow for a training that is {problem.slowdown:.0%} slower than its trials",
        "A trial": f"{format_seconds(policy.seconds)}, {format_seconds(policy.extra_seconds_per_3_nodes)} more for "
        f"every 3 nodes, extended by at most {policy.extension:.0%}, ended by the watchdog after "
        f"{format_seconds(policy.watchdog_seconds)} more",
    }
