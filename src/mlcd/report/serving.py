"""A serving run as text: the choice, its verified rate, the receipt, and why each other one was rejected."""

from collections.abc import Iterable, Sequence

from mlcd.report.origin import ON_THIS_MACHINE, served_here_text
from mlcd.report.receipt_lines import receipt_rows, serving_lines
from mlcd.report.text import Item, Line, Rows, Style, paragraphs, rendered, texts
from mlcd.report.thinning import MOST_LINES, ends, left_out_text
from mlcd.report.wording import plural, sentence, speed_text
from mlcd.run.attempt import Attempt, Ending
from mlcd.run.findings import Change, DayPlan, RejectedConfig, ServingChoice
from mlcd.run.header import CHAT
from mlcd.run.run import SearchRun
from mlcd.trial.outcome import Status
from mlcd.units import format_seconds, latency_text


def serving_verdict(record: SearchRun, *, width: int | None = None, colour: bool = False) -> str:
    """The whole answer, without a newline at its end: about 100 columns, or as wide as the terminal."""
    choice = record.serve_findings.choice
    parts: list[Sequence[Item]] = [
        _answer(record),
        _paces(choice) if choice else [],
        _day(record),
        _known(record),
        _receipt(record),
        _others(record),
        _more(record),
    ]
    return rendered(paragraphs(parts), width=width, colour=colour)


def headline(record: SearchRun) -> list[str]:
    """The goal and the result; the second line is the answer itself."""
    return texts(_answer(record))


def _answer(record: SearchRun) -> list[Item]:
    asked = Line(f"{record.problem.name}: {goal_text(record)}")
    trials = plural(len(record.trials), "load test")
    if not record.status.is_final:
        state = "Interrupted" if record.status is Status.INTERRUPTED else "Not finished"
        return [asked, Line(f"{state} after {trials}. Continue with: mlcd resume {record.run_id}")]
    if record.status is Status.INFEASIBLE:
        return [asked, Line("Nothing fits these limits: no load test was started."), *_ways_out(record)]
    if record.status is Status.ALL_FAILED:
        return [asked, Line(f"Every load test failed ({len(record.trials)} of {len(record.trials)}).")]
    if record.status is Status.OVERRAN:
        why = next((a.message for a in record.attempts if a.ending is Ending.OVERRAN), "")
        text = why or f"load tests and verifications cost {record.total_usd} in all"
        return [asked, Line(f"The cloud took more than was authorised: {text}.")]
    found = record.serve_findings
    if found.choice is not None:
        return [asked, Line(f"Serve with: {found.choice.config}", Style.ANSWER), *_measured(record, found.choice)]
    text = f"None of the tried configurations ({len(record.trials)}) meets the goal."
    failed = [attempt for attempt in record.earlier if attempt.ending is Ending.MOVED]
    if failed:
        text = (
            f"Every configuration that met the goal in its load test failed its verification ({len(failed)} verified)."
        )
    miss = found.nearest_miss
    near = [Line(f"Nearest: {miss.subject}, {miss.text}")] if miss else []
    return [asked, Line(text), *near, *_ways_out(record)]


def goal_text(record: SearchRun) -> str:
    """`most requests per dollar with p99 within 50 ms`."""
    return record.problem.goal.serving_words(tokens=is_chat(record))


def _ways_out(record: SearchRun) -> list[Line]:
    return [Line(f"Nearest way out: {relaxation.text}", Style.HEADING) for relaxation in record.relaxations]


def _measured(record: SearchRun, choice: ServingChoice) -> list[Item]:
    load = choice.load
    times = ", ".join(map(latency_text, (load.p50_seconds, load.p95_seconds, load.p99_seconds)))
    rows = [
        ["requests/s", speed_text(choice.requests_per_second)],
        ["p50, p95, p99", times] if load.tokens is None else ["whole request", f"{times}   (p50, p95, p99)"],
        ["dollars per million requests", str(choice.usd_per_million)],
        *_token_rows(choice),
    ]
    if load.memory_gib is not None:
        rows.append(["memory" if choice.config.nodes == 1 else "memory a node", f"{load.memory_gib:.2f} GiB"])
    if load.gpu_memory_gib is not None:
        rows.append(["GPU memory", f"{load.gpu_memory_gib:.2f} GiB"])
    if load.generator_share is not None:
        own = ", on a node of its own" if record.serving is not None and record.serving.from_node else ""
        rows.append(["load generator", f"{load.generator_share:.0%} of a processor{own}"])
    if load.network_seconds is not None:
        far = latency_text(load.network_seconds)
        rows.append(["way to the node and back", f"{far}, part of every latency: the load comes from this machine"])
    how = f"in its load test {format_how(record, choice)}"
    if choice.verified_seconds is not None:
        seconds = format_seconds(choice.verified_seconds)
        how = f"verified under load for {seconds}: {load.requests:,} requests, {load.errors:,} errors"
        how += f"; {_FAILED_BEFORE}" if _failed_before(record) is not None else ""
        if kept := headroom_text(record):
            rows[0][1] += f"   ({kept})"
    doubt = [Line(f"  {text}") for text in _doubt(choice)]
    return [Rows(rows=rows, align="<<", indent=2, has_heads=False), Line(f"  {how}"), *doubt]


_FAILED_BEFORE = "a verification at a higher rate failed before"


def headroom_text(record: SearchRun) -> str:
    """How much of the rate that was measured is not promised; "" if none, or if a rate was asked for."""
    choice = record.serve_findings.choice
    if choice is None or choice.verified_seconds is None or record.problem.goal.rate is not None:
        return ""
    free = 1 - choice.requests_per_second / choice.measured_requests_per_second
    held = speed_text(choice.measured_requests_per_second)
    return f"{free:.0%} of the measured {held} is kept as headroom" if free > 0 else ""


def caveats(record: SearchRun) -> tuple[str, ...]:
    """What limits the answer, besides its headroom, in sentences: for a page, where the text says it between rows."""
    choice = record.serve_findings.choice
    told = [] if choice is None else _doubt(choice)
    if choice is not None and choice.verified_seconds is None:
        told.append("It was not verified.")
    elif (failed := _failed_before(record)) is not None:
        told.append(f"{sentence(_FAILED_BEFORE)}{f': {failed.message}' if failed.message else ''}.")
    return (*told, *_untried(record), *map(sentence, record.serving.notes if record.serving else ()))


def _doubt(choice: ServingChoice) -> list[str]:
    return [f"The true rate may be higher: {choice.load.saturated}."] if choice.load.saturated else []


def _failed_before(record: SearchRun) -> Attempt | None:
    """The last verification of the choice that failed; None if none did."""
    choice = record.serve_findings.choice
    moved = [each for each in record.earlier if each.ending is Ending.MOVED]
    return next((each for each in reversed(moved) if choice is not None and each.config == choice.config), None)


def _untried(record: SearchRun) -> list[str]:
    rest = record.serve_findings.untried
    return [f"{rest:,} of {len(record.problem.space):,} configurations were not tried."] if rest else []


def is_chat(record: SearchRun) -> bool:
    """Whether a language model is served, whose answers are counted in tokens."""
    return record.serving is not None and record.serving.scenario == CHAT


def _token_rows(choice: ServingChoice) -> list[list[str]]:
    """What is said of a language model's answers."""
    tokens = choice.load.tokens
    if tokens is None:
        return []
    in_flight = choice.most_in_flight or tokens.concurrency
    return [
        ["output tokens/s", speed_text(choice.requests_per_second * tokens.output_tokens)],
        ["  of", f"{tokens.output_tokens:.0f} tokens an answer, {tokens.input_tokens:.0f} a prompt"],
        ["time to first token", _times(tokens.ttft)],
        *([["  of it queueing", _times(choice.queueing_seconds)]] if choice.queueing_seconds else []),
        ["time per output token", _times(tokens.tpot)],
        *([["gaps between pieces", _times(tokens.gaps)]] if tokens.gaps else []),
        ["within the limits", f"{speed_text(tokens.good_per_second)} requests/s   (goodput)"],
        ["most in flight", f"{in_flight:.0f} requests: the concurrency to run at"],
        ["dollars per million output tokens", str(choice.usd_per_million_output_tokens)],
        *([["tokens counted", tokens.counted]] if tokens.counted else []),
    ]


def _times(seconds: Iterable[float]) -> str:
    return ", ".join(map(latency_text, seconds))


def _paces(choice: ServingChoice) -> list[Item]:
    """Tokens against times for the requests in flight that were tried."""
    if not choice.front:
        return []
    heads = ["  In flight", "output tokens/s", "ttft p95", "tpot p95", "limits"]
    rows = [
        [
            f"  {point.concurrency:.0f}",
            speed_text(point.output_tokens_per_second),
            latency_text(point.ttft_p95),
            latency_text(point.tpot_p95),
            "kept" if point.kept else "broken",
        ]
        for point in sorted(choice.front, key=lambda point: point.concurrency)
    ]
    return [Rows(rows=[heads, *rows], align=">>>><")]


def _day(record: SearchRun) -> list[Item]:
    """Replicas by the hour, and what they cost."""
    day = record.serve_findings.day
    if day is None:
        return []
    spans = _spans(day)
    rows = [["Replicas by the hour", "busiest requests/s", "replicas"]]
    rows += [
        [f"  {first} to {last}", speed_text(busiest), str(count)] for first, last, busiest, count in spans[:MOST_LINES]
    ]
    more = len(spans) - MOST_LINES
    items: list[Item] = [Rows(rows=rows, align="<>>")]
    items += [Line(f"  and {more} more spans: mlcd show {record.run_id} -o json has all")] if more > 0 else []
    return [*items, *(Line(f"  {line}", is_wrapped=True) for line in day_lines(day))]


def _spans(day: DayPlan) -> list[tuple[int, int, float, int]]:
    """(first hour, hour after the last, busiest rate, replicas) of hours with as many replicas."""
    found: list[tuple[int, int, float, int]] = []
    for hour, (rate, count) in enumerate(zip(day.rates, day.replicas, strict=True)):
        if found and found[-1][3] == count:
            first, _, busiest, _ = found[-1]
            found[-1] = (first, hour + 1, max(busiest, rate), count)
        else:
            found.append((hour, hour + 1, rate, count))
    return found


def day_lines(day: DayPlan) -> list[str]:
    """What replicas by the hour cost, and whether the limits hold when they change."""
    saved = 1 - day.usd.dollars / day.fixed_usd.dollars if day.fixed_usd.dollars > 0 else 0.0
    price = (
        f"{day.usd_per_day} a day, {saved:.0%} less than {plural(day.fixed_replicas, 'replica')} all the time"
        f" ({day.fixed_usd_per_day}). A replica is started {format_seconds(day.start_seconds)} before its hour, as long"
        " as a server took to become ready, and paid for from then."
    )
    lines = [price]
    count, broken, late = plural(len(day.changes), "change"), day.broken, day.late_broken
    if not day.changes:
        return lines
    held = "the limits hold" if not broken else f"a limit is broken at {plural(len(broken), 'change')}"
    hours = f" ({', '.join(_change_text(change) for change in broken[:3])})" if broken else ""
    lines.append(
        f"Replayed at {count} of traffic, computed with the measured rates and latencies of one replica: {held}{hours}."
    )
    words = f"they are broken at {plural(len(late), 'change')}" if late else "they hold"
    lines.append(
        f"With an autoscaler that only follows the traffic, {format_seconds(day.follow_seconds)} late, {words}."
    )
    return lines


def _change_text(change: Change) -> str:
    return f"hour {change.hour}: {', '.join(change.broken)}"


def format_how(record: SearchRun, choice: ServingChoice) -> str:
    """How an unverified rate was measured."""
    scenario = record.serving.scenario if record.serving else "server"
    return f"({scenario}; {choice.load.requests:,} requests); not verified"


_SURENESS = {"sure": "high", "likely": "medium", "a guess": "low"}


def _known(record: SearchRun) -> list[Item]:
    alike = record.serving.resemblance if record.serving else None
    if alike is None:
        return []
    nearest = ", ".join(f"{name} ({share:.0%})" for name, share in alike.nearest) or "none"
    lines = [f"Most similar known models: {nearest}; how sure their figures apply: {_SURENESS[alike.word]}."]
    lines.append(f"{alike.covered:.0%} of its time is in operators that were measured before ({alike.source}).")
    if alike.unseen:
        more = f" and {len(alike.unseen) - 8} more" if len(alike.unseen) > 8 else ""
        lines.append(
            f"Never measured before: {', '.join(alike.unseen[:8])}{more}; the search needs more load tests for that."
        )
    return [Line(text, is_wrapped=True) for text in lines]


def _receipt(record: SearchRun) -> list[Item]:
    if not record.trials:
        return []
    rows = receipt_rows(serving_lines(record))
    return [rows, Line(f"  {served_here_text(record.cloud)}")] if record.cloud in ON_THIS_MACHINE else [rows]


def _others(record: SearchRun) -> list[Item]:
    found = record.serve_findings.rejected
    items: list[Item] = []
    if found:
        shown = ends(found, MOST_LINES)
        heads = ["requests/s", "p99", "$ per million"]
        if is_chat(record):
            heads = ["requests/s", "tokens/s", "ttft p95", "tpot p95", "in flight", "$ per million"]
        numbers = _token_numbers if is_chat(record) else _numbers
        rows = [["Why not", *heads], *([f"  {x.subject}", *numbers(x)] for x in shown)]
        notes = ["", *(x.text for x in shown)]
        items.append(Rows(rows=rows, align="<" + ">" * len(heads), notes=notes, notes_indent=6, notes_beside=True))
        if text := left_out_text(len(found), MOST_LINES, "configurations", record.run_id):
            items.append(Line(f"  {text}", is_wrapped=True))
    if found:
        items.append(Line(f"  {price_basis(record)}", is_wrapped=True))
    items += [Line(text) for text in _untried(record)]
    return items


def price_basis(record: SearchRun) -> str:
    """What the rejected configurations' prices are for, and at which rate."""
    choice = record.serve_findings.choice
    is_free = choice is not None and record.problem.goal.rate is None
    share = choice.requests_per_second / choice.measured_requests_per_second if choice is not None and is_free else 1.0
    if share >= 1:
        return "Prices are for a million requests."
    promised = f"at {share:.0%} of the measured rate, as promised of the choice"
    return f"Rates and latencies as measured; prices for a million requests {promised}."


def _numbers(entry: RejectedConfig) -> list[str]:
    if entry.load is None or entry.samples_per_second is None:
        return ["-", "-", "-"]
    price = "-" if entry.usd_per_million is None else str(entry.usd_per_million)
    return [speed_text(entry.samples_per_second), latency_text(entry.load.p99_seconds), price]


def _token_numbers(entry: RejectedConfig) -> list[str]:
    """Of a language model: at the best pace of its load test."""
    rate, _, price = _numbers(entry)
    tokens = entry.load.tokens if entry.load is not None else None
    if tokens is None:
        return [rate, "-", "-", "-", "-", price]
    times = [latency_text(tokens.ttft[1]), latency_text(tokens.tpot[1])]
    return [rate, speed_text(tokens.output_tokens_per_second), *times, f"{tokens.concurrency:.0f}", price]


def _more(record: SearchRun) -> list[Item]:
    lines = [f"The search ended: {record.stopped}."] if record.stopped else []
    lines += [f"Note: {note}" for note in (record.serving.notes if record.serving else ())]
    if record.trials:
        lines.append(f"Show again: mlcd show {record.run_id}; as a page: mlcd report {record.run_id}")
    if record.log:
        lines.append(f"Log of the newest failure: {record.log}")
    return [Line(line) for line in lines]
