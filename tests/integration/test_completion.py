"""Completion, in the real shells: what TAB offers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mlcd as package
from mlcd.cli.main import run

pytestmark = pytest.mark.together("the shells' place")

SHELLS = ("bash", "zsh", "fish")

ASK = {
    # COMP_WORDS as readline sets it; the function that `complete` registered is called as readline calls it.
    "bash": """
eval "$(mlcd completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
[[ "{line}" == *" " ]] && {{ COMP_WORDS+=(""); COMP_CWORD=$((COMP_CWORD + 1)); }}
"$(complete -p mlcd | sed -E 's/.* -F ([^ ]+) .*/\\1/')" mlcd
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    # compadd and _describe are zsh's way to offer words; outside a line editor they are replaced by printing.
    "zsh": """
compdef() {{ : }}
eval "$(mlcd completion zsh)"
_describe() {{ print -l -- ${{(P)3}} ; }}
compadd() {{ local i; for i in "$@"; do [[ $i == -* ]] || print -l -- ${{(P)i}}; done }}
words=({words}); [[ "{line}" == *" " ]] && words+=("")
CURRENT=${{#words}}
_mlcd_completion
""",
    "fish": 'mlcd completion fish | source\ncomplete -C "{line}"\n',
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run, a folder with a job, and `mlcd` on PATH."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "bin").mkdir()
    program = folder / "bin" / "mlcd"
    program.write_text(f"#!{sys.executable}\nfrom mlcd.cli.main import main\nmain()\n")
    program.chmod(0o755)
    (folder / "jobs.yaml").write_text(
        "name: seen\nresources: {instance_type: c5.xlarge}\nnum_nodes: 1..2\n"
        "job: {model: alexnet, samples: 1000}\ngoal: {minimize: time}\n"
    )
    done = offered(folder, "mlcd train jobs.yaml -o json", shell=None)
    assert '"status": "done"' in done
    return folder


def offered(place: Path, text: str, *, shell: str | None) -> str:
    """What a shell prints for a script, or with None what a command prints."""
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("COV_")},
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "MLCD_HOME": str(place / "home"),
        "HOME": str(place),
        "PYTHONPATH": str(Path(package.__file__).parents[1]),
    }
    command = text.split() if shell is None else [shell, *(["-f"] if shell == "zsh" else []), "-c", text]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + (done.stderr if shell is None else "")


def after_tab(place: Path, shell: str, line: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    text = ASK[shell].format(line=line, words=line)
    return [word.strip().split("\t")[0].split(":")[0] for word in offered(place, text, shell=shell).splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_and_runs(place: Path, shell: str) -> None:
    assert {"train", "serve", "runs", "logs"} <= set(after_tab(place, shell, "mlcd "))
    (name,) = [word for word in after_tab(place, shell, "mlcd show s") if word]
    assert name.startswith("seen-")


LINES = {
    "mlcd train --strategy het": {"heterbo"},
    "mlcd serverless --strategy stat": {"static", "static-n"},
    "mlcd train --on sim/": {"sim/aws", "sim/azure", "sim/gcp"},
    "mlcd train j": {"jobs.yaml"},
    "mlcd catalog p5": {"p5.4xlarge", "p5.48xlarge", "p5en.48xlarge"},
    "mlcd catalog H2": {"H200"},
    "mlcd catalog aws-c": {"aws-cpu"},
    "mlcd init -t light": {"lightning"},
}


@pytest.mark.parametrize("line", LINES)
def test_bash_completes_strategies_clouds_types_and_files(place: Path, line: str) -> None:
    assert set(after_tab(place, "bash", line)) == LINES[line]


def test_a_home_that_cannot_be_read_offers_nothing(place: Path) -> None:
    broken = place / "broken"
    (broken / "home").mkdir(parents=True)
    (broken / "home" / "mlcd.sqlite3").write_text("no database")
    (broken / "bin").symlink_to(place / "bin")
    assert "".join(after_tab(broken, "bash", "mlcd show s")) == ""


def test_the_script_of_each_shell_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "completion.md").read_text(encoding="utf-8")
    for shell in SHELLS:
        assert f"mlcd completion {shell}" in page
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
