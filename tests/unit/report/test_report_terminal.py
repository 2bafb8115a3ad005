"""Text for a width: nothing is longer, nothing is lost, and a style comes from what a line is."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.report_kind_samples import SERVERLESS, SERVING, fallen_run, serverless_run, serving_run
from tests.report_samples import SAMPLES, budget_run, with_attempts

from mlcd.events import RunProgress, SearchEnded, StepEnded, StepStarted
from mlcd.findings import shown
from mlcd.report.live import LiveLine, Pace, RunningStatus, clock_text
from mlcd.report.serverless import serverless_verdict
from mlcd.report.serverless_progress import EpochProgress
from mlcd.report.serving import serving_verdict
from mlcd.report.serving_progress import ServingProgress
from mlcd.report.terminal import columns, wants_colour
from mlcd.report.text import WIDTH, Line, Rows, rendered
from mlcd.report.verdict import verdict
from mlcd.run.money import Money
from mlcd.run.step import Role
from mlcd.units import ZERO, Usd

WIDTHS = (60, 80, 120)
VERDICTS: dict[str, tuple[Callable[[], Any], Callable[..., str]]] = {
    **{f"train-{name}": (make, verdict) for name, make in SAMPLES.items()},
    **{f"serve-{name}": (make, serving_verdict) for name, make in SERVING.items()},
    **{f"serverless-{name}": (make, serverless_verdict) for name, make in SERVERLESS.items()},
}


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def words(text: str) -> set[str]:
    return {word.strip(":") for word in text.split() if word.isascii()}


def test_remarks_are_all_beside_their_rows_or_all_below() -> None:
    table = Rows(
        rows=[["what", "n"], ["a", "1"], ["b", "2"]], align="<>", notes=["", "short", "longer " * 4], notes_beside=True
    )
    wide, narrow = (rendered([table], width=width).splitlines() for width in (60, 25))
    assert len(wide) == 3
    assert [line.strip() for line in narrow if "short" in line] == ["short"]


def test_a_number_stays_with_its_unit() -> None:
    text = "it takes 3 d 18 h and then 12 min 5 s on 4 x p4d.24xlarge, which is 3 of them"
    for width in range(20, 60):
        lines = rendered([Line(text, is_wrapped=True)], width=width).splitlines()
        assert [line for line in lines if re.search(r"[0-9]$", line)] == []
        assert " ".join(" ".join(lines).split()) == text
        if width >= 24:
            assert [line for line in lines if re.search(r"[0-9] (d|min)$", line)] == [], "a duration stays together"


@pytest.mark.parametrize("name", VERDICTS)
def test_an_answer_fits_every_terminal(name: str) -> None:
    make, said = VERDICTS[name]
    record = shown(make())
    whole = said(record)
    for width in WIDTHS:
        text = said(record, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert words(whole.partition(" over nodes")[0]) - words(text) <= {"-"}
        coloured = said(record, width=width, colour=True)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text


HEADS = ["strategy", "goal", "hours", "runs", "ratio", "95% interval", "if done", "median", "p95", "broken"]
WIDE = Rows(
    rows=[HEADS, *([f"heterbo-{n}", "budget", "6", "25", "1.234", "1.12..1.35", "-", "1.1", "1.9", "0"] for n in "ab")],
    align="<<>>>>>>>>",
)
WORDY = Rows(
    rows=[["Top 2", "time", "why not"], ["  4 x big", "3 h", "much slower " * 9], ["  2 x small", "12 h", "dear"]],
    align="<><",
)


def test_a_table_has_its_natural_width_without_a_limit() -> None:
    lines = rendered([WIDE]).split("\n")
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    assert rendered([Rows(rows=[], align="<<")]) == ""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("table", [WIDE, WORDY, replace(WIDE, notes=["", "a note " * 12, ""])])
def test_a_table_fits(table: Rows, width: int) -> None:
    text = rendered([table], width=width)
    assert max(map(len, text.splitlines())) <= width
    assert words(" ".join(" ".join(row) for row in table.rows[1:])) - words(text) <= {"-"}
    assert text.count("note") == 12 * bool(table.notes)


def test_columns_come_closer_then_text_wraps_then_rows_become_blocks() -> None:
    rows = [["name", "says", "n"], ["a", "five words in a cell", "12"]]
    table = Rows(rows=rows, align="<<>")
    assert rendered([table], width=32).split("\n")[1] == "a      five words in a cell   12"
    assert rendered([table], width=30).split("\n")[1] == "a     five words in a cell  12"
    assert rendered([table], width=24).split("\n")[1:] == ["a      five words     12", "       in a cell"]
    assert rendered([table], width=18).split("\n") == ["a", "  says: five words", "    in a cell", "  n 12"]
    blocks = rendered([WIDE], width=60).split("\n")
    assert blocks[0] == "heterbo-a"
    assert blocks[1] == "  goal: budget   hours 6   runs 25   ratio 1.234"


def test_columns_come_closer_before_names_are_wrapped() -> None:
    """A table of trials on 80 columns: `6 x p4d.24xlarge` stays on its line."""
    rows = [["Top 2", "samples/s", "time", "money", "why not"]]
    rows += [
        [f"  {n} x p4d.24xlarge", "9,140", "12 h 14 min", "$466.55", "takes 17% less time, but " * 3] for n in (6, 5)
    ]
    text = rendered([Rows(rows=rows, align="<>>><", is_wrapped=True)], width=80)
    assert "  6 x p4d.24xlarge" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_name_that_is_too_long_for_a_file_is_wrapped_in_its_column() -> None:
    """A table of configurations with knobs had 154 columns where it was piped."""
    name = "  1 x local.1, precision=fp32, micro_batch=1, recompute=false, prefetch_factor=1, attention=eager"
    rows = [["Top 1", "samples/s", "time", "why not"], [name, "908", "4.7 s", "chosen"]]
    lines = rendered([Rows(rows=rows, align="<>><", is_wrapped=True)]).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].split() == ["1", "x", "local.1,", *name.split()[3:6], "908", "4.7", "s", "chosen"]
    assert " ".join(" ".join(lines[2:]).split()) == " ".join(name.split()[6:])


def test_a_path_is_never_broken() -> None:
    """So that it can be copied: the terminal breaks it."""
    path = "/tmp/" + "a-long-name/" * 8 + "log.txt"
    shown = rendered([Line(f"Log of the newest failure: {path}")], width=60)
    assert path in shown.splitlines()[1]


def test_what_is_aligned_to_the_right_is_never_broken() -> None:
    for width in range(20, 90):
        assert rendered([WORDY], width=width).count("12 h") == 1


def test_nothing_in_a_text_can_move_the_cursor() -> None:
    evil = "a\x1b[31mb\rc\x07d\ne"
    text = rendered([Line(evil), Rows(rows=[[evil, evil]], align="<>", has_heads=False, notes=[evil])])
    assert not set(text) & set("\x1b\r\x07")
    assert text.count("\n") == 2


def test_style_comes_from_what_a_line_is_not_from_how_it_begins() -> None:
    run = budget_run()
    assert run.verdict
    titled = replace(run.problem, name="Receipt for SIMULATED: Chosen: x")
    named = replace(run, problem=titled, verdict=replace(run.verdict, stopped="Top of it"))
    text = verdict(shown(named), colour=True).split("\n")
    assert next(line for line in text if "Receipt for" in line).startswith("Receipt for SIMULATED: Chosen: x")
    assert next(line for line in text if "20 x p2.xlarge" in line).startswith("\x1b[1;32mChosen: ")
    assert any(line.startswith("\x1b[1mReceipt ") for line in text)
    assert text[0].startswith("\x1b[33mSIMULATED: ")


@pytest.mark.parametrize(
    ("env", "on_terminal", "elsewhere"),
    [
        ({}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_colour_is_decided_in_one_place(
    env: dict[str, str], on_terminal: bool, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert wants_colour(Terminal()) == on_terminal
    assert wants_colour(io.StringIO()) == elsewhere


def test_the_width_comes_from_a_terminal_or_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    assert columns(io.StringIO()) is None
    monkeypatch.setenv("COLUMNS", "72")
    assert columns(io.StringIO()) == columns(Terminal()) == 72


# ---- the line about what runs now

STATUS = RunningStatus(
    what="Training on 20 x p2.xlarge",
    at=100.0,
    elapsed_seconds=3600.0,
    spent=Usd.of("12.5"),
    budget=Usd.of(85),
    rate="452 samples/s",
    to_go_seconds=600.0,
    fraction=0.4,
)


def test_the_status_clock_runs_between_events() -> None:
    assert STATUS.text(100.0, 110, plain=True) == (
        "Training on 20 x p2.xlarge  ########............  40%  1:00:00  $12.50 of $85.00  452 samples/s  ~10m00s to go"
    )
    assert "  1:05:30  " in STATUS.text(430.0, 110)
    assert STATUS.text(430.0, 110).endswith("~4m30s to go")
    assert STATUS.text(9000.0, 110).endswith("~0.0s to go")


@pytest.mark.parametrize("width", [40, 59, 79, 99, 119])
@pytest.mark.parametrize("what", ["Epoch 1", "Training on 20 x Standard_ND96amsr_A100_v4, batch=1024"])
def test_a_status_fits_and_keeps_clock_money_and_time_to_go(what: str, width: int) -> None:
    text = replace(STATUS, what=what).text(160.0, width)
    assert len(text) <= width
    assert re.search(r"40%  1:01:00  \$12\.50.*  ~9m00s to go$", text)
    assert clock_text(97205.9) == "27:00:05"


def test_the_pace_does_not_count_the_start() -> None:
    pace = Pace()
    assert (pace.per_second, pace.text("trials")) == (None, "")
    for done, seconds in ((0.0, 10.0), (0.0, 100.0), (0.25, 200.0)):
        pace.tell(done, seconds)
    assert pace.per_second == 0.0025
    assert pace.seconds_for(0.75) == 300.0
    assert pace.text("trials") == "9 trials/h"
    quick = Pace()
    quick.tell(0.0, 0.0)
    quick.tell(1.0, 1.0)
    quick.tell(2.0, 2.0)
    assert quick.text("epochs") == "3,600 epochs/h"


def test_a_terminal_is_left_as_it_was_whatever_happens() -> None:
    stream = Terminal()

    def interrupted() -> None:
        with LiveLine(stream, colour=False) as live:
            live.show(STATUS)
            live.line("a line above it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = stream.getvalue()
    assert "a line above it" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def money(spent: str, seconds: float) -> Money:
    return Money(
        spent=Usd.of(spent), reserved=ZERO, left=None, elapsed_seconds=seconds, reserved_seconds=0, seconds_left=None
    )


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_serving_run_reports_its_load_tests_and_verification(stream: io.StringIO) -> None:
    run = serving_run()
    with ServingProgress(stream, run.problem.goal, False, problem=run.problem) as told:
        for step in run.trials:
            before = money("0.0001", 10.0 * (step.number - 1))
            told(StepStarted(step=step, money=before))
            told(StepEnded(step=step, incumbent=run.choice, money=money("0.0002", 10.0 * step.number)))
        told(SearchEnded(stopped=run.stopped, choice=run.choice, money=money("0.0004", 40.0)))
        assert run.final
        for fraction in (0.0, 0.5, 1.0):
            told(RunProgress(config=run.final.config, fraction=fraction, money=money("0.001", 40 + 100 * fraction)))
        told(StepEnded(step=run.steps[-1], incumbent=run.choice, money=money("0.001", 140)))
    text = stream.getvalue()
    assert "  2 batch=4, threads=2, replicas=1, precision=fp32\n" in text
    assert "      out-of-memory: the server was killed\n" in text
    assert "      done after 2 min 20 s in all\n" in text
    live = "Load test 3  0:00:20  $0.0001 of $1.00  360 tests/h  ~20s to go"
    for line in (live, "Verification  0:01:30  $0.0010 of $1.00  ~50s to go"):
        assert (line in text) == stream.isatty()


@pytest.mark.parametrize(("width", "tables"), [(60, 2), (80, 2), (120, 1)])
def test_the_table_of_epochs_keeps_its_rows_at_any_width(width: int, tables: int) -> None:
    """At 80 columns every epoch was a block of three lines."""
    text = serverless_verdict(shown(serverless_run()), width=width).partition("Epochs\n")[2].partition("Receipt")[0]
    lines = [each.split() for each in text.splitlines() if each.strip()]
    heads = [at for at, line in enumerate(lines) if line[0] == "epoch" and "failed:" not in line]
    assert len(heads) == tables
    epochs = len(serverless_run().epoch_steps)
    for head in heads:
        assert len(lines[head + 1 : head + 1 + epochs]) == epochs
        assert all(line[0].isdigit() for line in lines[head + 1 : head + 1 + epochs])


def verified(run: Any) -> list[str]:
    """The lines about verifications of a run."""
    stream = io.StringIO()
    with ServingProgress(stream, run.problem.goal, False, problem=run.problem) as told:
        for step in (each for each in run.steps if each.role is Role.VERIFICATION):
            for fraction in (0.0, 1.0):
                told(RunProgress(config=step.config, fraction=fraction, money=money("0.001", 140)))
            told(StepEnded(step=step, incumbent=run.choice, money=money("0.001", 140)))
    return stream.getvalue().splitlines()


def test_a_failed_verification_says_why_and_what_changes_next() -> None:
    assert verified(fallen_run()) == [
        "Verifying batch=1, threads=2, replicas=1, precision=fp32 under load ...",
        "      failed: p99 was 200 ms",
        "Verifying batch=4, threads=2, replicas=1, precision=fp32 instead under load ...",
        "      done after 2 min 20 s in all",
    ]


def test_the_same_configuration_is_not_verified_again_as_if_new() -> None:
    run = fallen_run()
    (first, last) = run.attempts
    again = with_attempts(run, replace(first, config=last.config), last)
    assert (
        "Verifying batch=4, threads=2, replicas=1, precision=fp32 again, at a lower rate, under load ..."
        in verified(again)
    )
    assert "a verification at a higher rate failed before" in serving_verdict(shown(again))
    assert "a verification at a higher rate failed before" not in serving_verdict(shown(run))


@pytest.mark.parametrize(("width", "names"), [("60", 5), ("80", 7), ("120", 8), ("", 8)])
def test_the_columns_of_epochs_fit(width: str, names: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    run, stream = serverless_run(), io.StringIO()
    told = EpochProgress(stream, run.problem.target_loss)
    for step in run.epoch_steps:
        done = step.epoch
        before = replace(money("0", 15.0 * (done.number - 1)), left=Usd.of(3))
        told(StepStarted(step=step, money=before))
        after = replace(money("0", 15.0 * done.number), spent=done.usd, left=Usd.of(2))
        told(StepEnded(step=step, incumbent=None, money=after))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= int(width or 103)
    assert len(lines[0].replace("to the target", "target").split()) == names
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" " * 6)] == ["1", "2", "3", "3", "4"]
