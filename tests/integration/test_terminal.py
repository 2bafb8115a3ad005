"""What commands write to a terminal: it fits, its colours can be chosen, and one line shows what runs now."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from mlcd.cli.main import run

MLCD = [sys.executable, "-c", "from mlcd.cli.main import main; main()"]
TRAIN = """\
name: small
resources: {infra: sim/aws, instance_type: [c5.xlarge, c5.4xlarge, p3.2xlarge]}
num_nodes: 1..8
job: {model: resnet152, samples: 50000, epochs: 10}
goal: {minimize: time, budget: 40 USD}
search: {max_trials: 6}
"""
SERVERLESS = """\
name: ctr
resources: {infra: sim/lambda}
workload: {model: logistic, target_loss: 0.40, max_epochs: 20}
functions: [20, 50, 100]
memory: [1024, 1769]
goal: {minimize: time, budget: 3 USD}
search: {strategy: "static:functions=50,memory=1769"}
"""
WIDTHS = (60, 80, 120)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    for name in ("MLCD_CATALOG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.yaml").write_text(TRAIN)
    (tmp_path / "serverless.yaml").write_text(SERVERLESS)
    return tmp_path


def on_a_terminal(*args: str, columns: int, code: int = 0, **env: str) -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(
        [*MLCD, *args], env={**os.environ, "TERM": "xterm", **env}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    text, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the terminal is closed when the last process that has it ends
            break
        if not chunk:
            break
        text += chunk
    assert child.wait(timeout=60) == code, text.decode()
    os.close(ours)
    return text.decode()


def drawn_lines(text: str) -> list[str]:
    """Every line that was on the terminal, those that were overwritten too, without their colours."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


LIVE = re.compile(r"  \d+:\d\d:\d\d  \$[\d.,]+( of \$[\d.]+)?(  [\d.,]+ \S+/\S)?  ~[\dhms.]+ to go$")
"""The clock, the money, perhaps the rate, and the time to go."""


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(("kind", "steps"), [("train", r" *\d+ \d x |Training on "), ("serverless", "Epoch ")])
def test_one_line_shows_what_runs_now(folder: Path, kind: str, steps: str, columns: int) -> None:
    text = on_a_terminal(kind, f"{kind}.yaml", columns=columns)
    lines = drawn_lines(text)
    assert max(map(len, lines)) <= columns
    live = [line for line in lines if LIVE.search(line)]
    assert len(live) >= 3
    assert all(re.match(steps, line) for line in live)
    assert any("/h" in line or "/s" in line for line in live) == (columns > 60)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert lines[-2].startswith(("Pictures, every trial", "Run ctr-", "  small-"))


def test_the_training_has_a_line_too(folder: Path) -> None:
    lines = drawn_lines(on_a_terminal("train", "train.yaml", columns=120))
    training = [line for line in lines if line.startswith("Training on ") and LIVE.search(line)]
    assert len(training) > 5
    assert all("█" in line or "░" in line for line in training)
    assert any(" samples/s " in line for line in training)
    assert sum("100%" in line for line in lines if line.startswith("Training on ")) == 1


@pytest.mark.parametrize("columns", WIDTHS)
def test_every_table_fits(folder: Path, columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "train.yaml"]) == 0
    assert run(["serverless", "serverless.yaml"]) == 0
    capsys.readouterr()
    wide: dict[str, str] = {}
    commands = ("runs", "show small", "show ctr", "check", "catalog", "train train.yaml --dry-run")
    with pytest.MonkeyPatch.context() as patch:
        for command in (*commands, "bench serverless --seeds 1 --budgets 100 --jobs 1"):
            assert run(command.split()) == 0
            wide[command] = capsys.readouterr().out
        patch.setenv("COLUMNS", str(columns))
        for command in commands:
            assert run(command.split()) == 0
            text = capsys.readouterr().out
            assert max(map(len, text.splitlines())) <= columns
            if command in ("runs", "catalog"):  # nothing is lost where it is narrow
                assert words(wide[command]) - words(text) <= {"run", "cloud", "type", "-"}
        assert run(["bench", "serverless", "--seeds", "1", "--budgets", "100", "--jobs", "1"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def words(text: str) -> set[str]:
    return {word.strip(":") for word in text.split()}


def test_an_error_is_broken_between_words(folder: Path) -> None:
    (folder / "bad.yaml").write_text(TRAIN.replace("c5.4xlarge", "c5.4xlrge"))
    lines = [line.rstrip() for line in drawn_lines(on_a_terminal("train", "bad.yaml", columns=60, code=2)) if line]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    said = " ".join(line.strip() for line in lines)
    assert said.startswith(
        "mlcd: bad.yaml:2: resources.instance_type[1]: unknown instance type of aws (got 'c5.4xlrge')"
    )
    assert said.endswith("did you mean 'c5.4xlarge'?")


def test_a_bar_too_short_to_read_is_left_out(folder: Path) -> None:
    for columns in range(60, 80, 5):
        text = "".join(drawn_lines(on_a_terminal("train", "train.yaml", columns=columns, TERM="dumb")))
        assert all(len(bar) >= 5 for bar in re.findall("[█░]+", text)), text


def test_colour_is_for_terminals_only(folder: Path) -> None:
    assert "\x1b[1m" in on_a_terminal("train", "train.yaml", columns=100)
    done = subprocess.run([*MLCD, "train", "train.yaml"], capture_output=True, text=True, check=True)
    assert "\x1b[" not in done.stdout + done.stderr


def test_no_color_leaves_only_what_moves_the_cursor(folder: Path) -> None:
    text = on_a_terminal("train", "train.yaml", columns=100, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", text)
    assert "\x1b[2K" in text


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("command", ["runs", "show small", "check", "catalog c5.*", "train train.yaml --dry-run"])
def test_colour_can_be_forced(
    folder: Path,
    command: str,
    env: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["train", "train.yaml"]) == 0
    capsys.readouterr()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert run(command.split()) == 0
    assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_a_dumb_terminal_gets_lines(folder: Path) -> None:
    text = on_a_terminal("train", "train.yaml", columns=100, TERM="dumb")
    assert "\x1b" not in text
    assert not any(LIVE.search(line) for line in drawn_lines(text))
    assert text.count("Training on") == 5


def test_a_list_of_runs_is_not_wide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it is piped: one with long goals and choices had 190 columns."""
    (folder / "long.yaml").write_text(TRAIN.replace("budget: 40 USD", "deadline: 20h, budget: 40 USD"))
    assert run(["train", "long.yaml"]) == 0
    capsys.readouterr()
    assert run(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "fastest within 20 h for at most $40.00: " in listed
    assert max(map(len, listed.splitlines())) <= 100
