"""What the shell is offered after TAB is put on the command line as it is: only names that mean nothing to it."""

from pathlib import Path

import click
import pytest
from tests.unit.store.test_store import add

from mlcd.cli.complete import complete_jobs, complete_runs
from mlcd.store.store import Store

HOSTILE = ("$(touch pwned)", "`id`", "a;b", "a b", "a\nplain,b", "a|b", "\x1b]52;c;x\x07", "a&b", "*", "'a", "a>b")


def context(command: str) -> tuple[click.Context, click.Parameter]:
    return click.Context(click.Command(command), info_name=command), click.Argument(["run"])


def test_names_that_a_shell_obeys_are_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / ".home"))
    for name in (*HOSTILE, "jöb-1.2"):
        (tmp_path / f"{name}.yaml").touch()
        (tmp_path / name).mkdir()
    with Store(tmp_path / ".home") as store:
        for name in (*HOSTILE, "tiny-1"):
            add(store, name)
    assert [item.value for item in complete_jobs(*context("train"), "")] == ["jöb-1.2/", "jöb-1.2.yaml", "tiny-1"]
    assert [item.value for item in complete_runs(*context("show"), "")] == ["tiny-1"]
