"""A run as one HTML file: the answer, the receipt, pictures, every trial, and how to repeat it. Works offline."""

from html import escape

from mlcd.report.batches import batch_notes, work_text
from mlcd.report.explain import WhyNot, why_not
from mlcd.report.origin import is_replayed, origin_text, origin_word, prices_text
from mlcd.report.pareto import pareto
from mlcd.report.pictures import NARROW, WIDE, PictureKind, kinds_of, picture
from mlcd.report.receipt import Receipt, Saving, intervals, receipt
from mlcd.report.stylesheet import CSS
from mlcd.report.verdict import headline
from mlcd.report.wording import assurance_text, begun_again, plural, speed_text
from mlcd.report.yardstick import yardstick
from mlcd.trial.outcome import Status
from mlcd.trial.plan import Plan
from mlcd.trial.record import RunRecord, TrialRow
from mlcd.trial.trial import Failure
from mlcd.units import Usd, format_seconds

_TITLES = {
    PictureKind.SPEED: "The search",
    PictureKind.MONEY: "The money",
    PictureKind.TRADEOFF: "Time against cost",
    PictureKind.BATCHES: "Nodes and batches",
    PictureKind.REPRICED: "The same under other prices",
}
_CAPTIONS = {
    PictureKind.SPEED: """Measured {shown} over nodes, a curve a type. Numbers and the dotted path are the order of the
trials; the bars are 95% intervals; crosses failed.""",
    PictureKind.MONEY: """After each trial: what was spent, and what was kept back so that the training could still be
finished.""",
    PictureKind.TRADEOFF: """What the whole training takes on each measured deployment. On the front nothing else is
both faster and cheaper; each whisker reaches to the assured upper bound.""",
    PictureKind.BATCHES: """What the whole training takes on K nodes with a global batch B: lines and hollow marks as
predicted, full marks as measured. The ring is the choice.{notes}""",
    PictureKind.REPRICED: """Were a node paid by the memory that its share of the batch needs, in place of a fixed
price, or the other way round. The ring is the knee.""",
}


def html_report(record: RunRecord) -> str:
    """The page, whole: no script, nothing loaded from elsewhere, every word from outside escaped."""
    name = escape(record.problem.name)
    body = [_hero(record), _receipt_section(record)]
    body += [_figure(record, kind) for kind in kinds_of(record) if record.rows]
    body += [_why_not(record), _trials(record), _repeat(record)]
    word, meaning = origin_word(record), escape(_sentence(origin_text(record)))
    banner = f'<p class="banner" role="note"><b>{word}</b> {meaning}</p>' if word else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}: {escape(_answer(record))} - mlcd</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<header class="top"><b>mlcd</b><span>{escape(record.created)}</span>'
        f"<span>{escape(record.run_id)}</span></header>\n"
        f"<main>\n{banner}\n" + "\n".join(part for part in body if part) + "\n</main>\n"
        f"<footer>mlcd {escape(record.version)}, {escape(prices_text(record))}</footer>\n</body>\n</html>\n"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _answer(record: RunRecord) -> str:
    if record.status is Status.INFEASIBLE:
        return "Nothing can fit"
    if record.status is Status.NOTHING_FITS:
        return "Nothing fits"
    if record.status is Status.ALL_FAILED:
        return "Every trial failed"
    if record.status is Status.RUN_FAILED:
        return "The training failed"
    if not record.status.is_final:
        return "Not finished"
    return str(record.choice.config) if record.choice else "Nothing was chosen"


def _hero(record: RunRecord) -> str:
    lines = headline(record)
    lead = "" if record.choice and record.status is Status.DONE else lines[1]
    if record.status in (Status.OVERRAN, Status.RUN_FAILED):
        lead = lines[-1]
    parts = [
        f'<p class="asked">{escape(lines[0])}</p><h1>{escape(_answer(record))}</h1>',
        f'<p class="lead{" bad" if record.status.is_final else ""}">{escape(lead)}</p>' if lead else "",
    ]
    if record.relaxations:
        items = "".join(f"<li>{escape(relaxation.text)}</li>" for relaxation in record.relaxations)
        where = " among measured deployments" if record.history.measured else ""
        parts.append(f"<p class='lead'>Nearest way out{where}:</p><ul>{items}</ul>")
    if record.choice and record.status is not Status.NOTHING_FITS:
        if _answer(record) != str(record.choice.config):
            parts.append(f'<p class="lead">Chosen: <b>{escape(str(record.choice.config))}</b></p>')
        parts.append(_tiles(record, record.choice))
    return f'<section class="card hero">{"".join(parts)}</section>'


def _tiles(record: RunRecord, choice: Plan) -> str:
    known, paid = intervals(record, choice), receipt(record)
    sure = f"{assurance_text(record.problem.assurance)} sure"
    time = f"at most {format_seconds(choice.worst_seconds)}, {sure}"
    money = f"at most {choice.worst_usd}, {sure}"
    if known and known.is_exact:
        time = money = "measured without noise"
    elif known is None:
        time = money = "not measured"
    else:
        time = f"95%: {format_seconds(known.seconds[0])} to {format_seconds(known.seconds[1])}<br>{time}"
        money = f"95%: {known.usd[0]} to {known.usd[1]}<br>{money}"
    tiles = [
        _tile("Training time, predicted", format_seconds(choice.seconds), time),
        _tile("Training cost, predicted", str(choice.usd), money),
    ]
    word = "predicted" if paid.run_is_predicted else "until it failed" if paid.run_failed else "as it went"
    left = []
    if paid.left_usd is not None:
        left.append(_left(paid.left_usd.micros < 0, str(Usd(abs(paid.left_usd.micros))), f"of {paid.cap_usd}"))
    if paid.left_seconds is not None and paid.cap_seconds is not None:
        amount = format_seconds(abs(paid.left_seconds))
        left.append(_left(paid.left_seconds < 0, amount, f"of {format_seconds(paid.cap_seconds)}"))
    total = f"{format_seconds(paid.total_seconds)}, {paid.total_usd}"
    tiles.append(_tile(f"Search and training, {word}", total, "<br>".join(left) or "no limit was set"))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(what: str, value: str, small: str) -> str:
    parts = (("what", what), ("value", value), ("small", small))
    inner = "".join(f'<div class="{css}">{text}</div>' for css, text in parts)
    return f'<div class="tile">{inner}</div>'


def _left(broken: bool, amount: str, cap: str) -> str:
    return f'<span class="{"over" if broken else "good"}">{amount} {"over" if broken else "left"}</span> {cap}'


def _receipt_section(record: RunRecord) -> str:
    if not record.rows and not record.choice:
        return ""
    paid = receipt(record)
    failed = f", {paid.failed} failed" if paid.failed else ""
    rows = [_money_row(f"Search: {plural(paid.trials, 'trial')}{failed}", paid.search_seconds, paid.search_usd)]
    rows += [_money_row(f"Training {begun_again(run)}", run.seconds, run.usd) for run in paid.earlier]
    if paid.run_seconds is not None:
        word = " (predicted)" if paid.run_is_predicted else " (failed)" if paid.run_failed else ""
        rows.append(_money_row(f"Training{word}", paid.run_seconds, paid.run_usd))
    rows.append(_money_row("Total", paid.total_seconds, paid.total_usd, css="sum"))
    if paid.cap_seconds is not None or paid.cap_usd is not None:
        rows.append(_money_row("Cap", paid.cap_seconds, paid.cap_usd))
        rows.append(_money_row("Left", paid.left_seconds, paid.left_usd, css="sum"))
    table = _table(["", "n:Time", "n:Money"], rows)
    note = "Every node-second of every trial is in it"
    note += ", and of trainings that were begun again." if paid.earlier else "."
    first = f'<section class="card"><h2>Receipt</h2><p class="sub">{note}</p>{table}</section>'
    second = _savings(paid)
    return f'<div class="pair">{first}{second}</div>' if second else first


def _savings(paid: Receipt) -> str:
    if not paid.savings:
        return ""
    rows = [_saving_row(saving) for saving in paid.savings]
    return (
        '<section class="card"><h2>Against not searching</h2><p class="sub">Training alone on a usual choice, and what '
        f"this run saved, its search included.</p>{_table(['', 'n:Time', 'n:Money'], rows)}</section>"
    )


def _saving_row(saving: Saving) -> str:
    """A naive choice: what it takes, its 95% interval where it was not measured, and what was saved."""
    naive, known, about = saving.naive, saving.intervals, "" if saving.naive.measured else "~"
    time = usd = ""
    if known:
        low, high = known.seconds
        time = f'<br><span class="dim">{format_seconds(low)} to<br>{format_seconds(high)}</span>'
        usd = f'<br><span class="dim">{known.usd[0]} to<br>{known.usd[1]}</span>'
    warning = f'<br><span class="over">{saving.warning}</span>' if saving.warning else ""
    return (
        f'<tr><th scope="row">{escape(str(naive.plan.config))}<br><span class="dim">{escape(naive.label)}'
        f"{'' if naive.measured else ', predicted'}{', with 95% intervals' if known else ''}</span>{warning}</th>"
        f'<td class="n">{about}{format_seconds(naive.plan.seconds)}{time}<br>{_saved_time(saving, about)}</td>'
        f'<td class="n">{about}{naive.plan.usd}{usd}<br>{_saved_usd(saving, about)}</td></tr>'
    )


def _saved_time(saving: Saving, about: str) -> str:
    if saving.seconds >= 0:
        return f'<span class="good">{about}{format_seconds(saving.seconds)} saved</span>'
    return f'<span class="dim">{about}{format_seconds(-saving.seconds)} longer</span>'


def _saved_usd(saving: Saving, about: str) -> str:
    if saving.usd.micros >= 0:
        return f'<span class="good">{about}{saving.usd} saved</span>'
    return f'<span class="dim">{about}{Usd(-saving.usd.micros)} more</span>'


def _figure(record: RunRecord, kind: PictureKind) -> str:
    title, caption = (
        _TITLES[kind],
        _CAPTIONS[kind].format(
            shown=yardstick(record).title, notes="".join(f" {escape(note)}" for note in batch_notes(record))
        ),
    )
    return (
        f'<section class="card"><figure><figcaption><h2>{title}</h2><p class="sub">{caption}</p></figcaption>'
        f'<div class="wide">{picture(record, kind, width=WIDE)}</div>'
        f'<div class="narrow">{picture(record, kind, width=NARROW)}</div></figure></section>'
    )


def _why_not(record: RunRecord) -> str:
    entries = why_not(record)
    if not entries:
        return ""
    front = {plan.config for plan in pareto(record)}
    with_speed = not is_replayed(record)
    rows = [_why_row(entry, with_speed=with_speed, on_front=entry.config in front) for entry in entries]
    heads = ["Deployment", *["n:samples/s"] * with_speed, "n:Time", "n:Money", "Why not"]
    note = "Best first in the goal&#8217;s own unit; time and money are the whole training&#8217;s."
    table = _table(heads, rows, css="stack")
    return f'<section class="card"><h2>Why not the others</h2><p class="sub">{note}</p>{table}</section>'


def _why_row(entry: WhyNot, *, with_speed: bool, on_front: bool) -> str:
    speed = speed_text(entry.samples_per_second) if entry.samples_per_second is not None else ""
    cells = _cell("samples/s", speed) if with_speed else ""
    time, usd = (format_seconds(entry.plan.seconds), str(entry.plan.usd)) if entry.plan else ("", "")
    tail = ' <span class="dim">(on the Pareto front)</span>' if on_front else ""
    return (
        f'<tr><th scope="row">{escape(entry.subject)}</th>{cells}{_cell("time", time)}'
        f'{_cell("money", usd)}<td class="why">{escape(entry.text)}{tail}</td></tr>'
    )


def _cell(label: str, text: str) -> str:
    return f'<td class="n" data-l="{label}">{text}</td>'


def _trials(record: RunRecord) -> str:
    if not record.rows:
        return ""
    rows = [_trial_row(record, row) for row in record.rows]
    name = yardstick(record).name
    heads = [
        "n:#",
        "Deployment",
        f"n:{_sentence(name) if is_replayed(record) else name} (95%)",
        "n:Took",
        "n:Cost",
        "n:Could have cost",
        "Why it was tried",
    ]
    ended = f" The search ended: {escape(record.stopped)}." if record.stopped else ""
    return (
        f'<section class="card"><h2>Every trial</h2><p class="sub">In order, with what each was allowed to cost '
        f"before it began.{ended}</p>{_table(heads, rows, css='stack')}</section>"
    )


def _trial_row(record: RunRecord, row: TrialRow) -> str:
    trial = row.trial
    css = ""
    if isinstance(trial, Failure):
        css = "failed"
        what = escape(f"{trial.kind}: {trial.message}" if trial.message else str(trial.kind))
        result = f'<td class="what">{what}</td>'
    else:
        shown = yardstick(record)
        spread = shown.spread(trial)
        dim = f' <span class="dim">({spread})</span>' if spread else ""
        result = f'<td class="n" data-l="{shown.name}">{shown.text(shown.value(trial))}{dim}</td>'
    tag = ""
    if record.choice and trial.config == record.choice.config and not isinstance(trial, Failure):
        css, tag = "chosen", ' <span class="tag">chosen</span>'
    attempt = f' <span class="dim">attempt {trial.attempt}</span>' if trial.attempt > 1 else ""
    return (
        f'<tr class="{css}"><td class="n">{row.number}</td>'
        f'<td class="c">{escape(str(trial.config))}{attempt}{tag}</td>{result}'
        f"{_cell('took', format_seconds(trial.seconds))}{_cell('cost', str(trial.usd))}"
        f'{_cell("could have cost", str(row.authorised_usd))}<td class="why">{escape(row.reason)}</td></tr>'
    )


def _repeat(record: RunRecord) -> str:
    problem, policy = record.problem, record.problem.trial
    types: dict[str, list[int]] = {}
    for config in problem.space:
        types.setdefault(config.instance, []).append(config.nodes)
    shown = ", ".join(f"{name} ({min(nodes)} to {max(nodes)} nodes)" for name, nodes in list(types.items())[:12])
    more = f" and {len(types) - 12} more types" if len(types) > 12 else ""
    facts = {
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
        "A trial": f"{format_seconds(policy.seconds)}, {format_seconds(policy.extra_seconds_per_3_nodes)} more for "
        f"every 3 nodes, stretched by at most {policy.extension:.0%}, ended by the watchdog after "
        f"{format_seconds(policy.watchdog_seconds)} more",
    }
    items = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    command = f"mlcd resume {record.run_id}" if not record.status.is_final else f"mlcd show {record.run_id}"
    return (
        f'<section class="card"><h2>How to repeat it</h2><p class="sub">The same settings and seed give the same '
        f"decisions for the same measurements. <code>{escape(command)}</code></p><dl>{items}</dl></section>"
    )


def _money_row(name: str, seconds: float | None, usd: Usd | None, css: str = "") -> str:
    time = "" if seconds is None else format_seconds(seconds)
    return (
        f'<tr class="{css}"><th scope="row">{escape(name)}</th><td class="n">{time}</td>'
        f'<td class="n">{"" if usd is None else usd}</td></tr>'
    )


def _table(heads: list[str], rows: list[str], css: str = "") -> str:
    """A table that scrolls by itself where it is too wide; a head that starts with `n:` stands over numbers."""
    cells = "".join(
        f'<th class="n">{escape(head[2:])}</th>' if head.startswith("n:") else f"<th>{escape(head)}</th>"
        for head in heads
    )
    body = "".join(rows)
    return (
        f'<div class="scroll"><table class="{css}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'
    )
