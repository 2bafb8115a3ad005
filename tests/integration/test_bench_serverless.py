"""`mlcd bench serverless`: small real runs, the documented JSON, and bad input."""

import json
from typing import Any

import pytest

from mlcd.bench.serverless.compare import ServerlessComparison, compare, smallest_budgets, summarise, versus
from mlcd.cli.main import run

SUMMARY_KEYS = ["scheduler", "budget_usd", "runs", "mean_seconds", "mean_usd", "violations", "infeasible"]


def mlcd(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["bench", "serverless", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_documented_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = mlcd(
        capsys, "--budgets", "50,300", "--seeds", "2", "--first-seed", "70", "--jobs", "1", "-o", "json"
    )
    assert code == 0
    told: dict[str, Any] = json.loads(out)
    assert told["simulated"] is True
    assert [list(line) for line in told["summary"]] == [SUMMARY_KEYS] * 12
    by = {(line["scheduler"], line["budget_usd"]): line for line in told["summary"]}
    for name in ("static-n", "static", "siren-untrained", "siren", "mpc", "informed"):
        assert by[name, 50.0]["infeasible"] == 2, "no scheduler trains for $50"
        assert by[name, 50.0]["mean_seconds"] is None
        assert by[name, 300.0]["infeasible"] == 0
        assert by[name, 300.0]["violations"] == by[name, 50.0]["violations"] == 0
    said = {row["scheduler"] for row in told["rows"] if row["smallest_budget_usd"] is not None}
    assert len(said) == 6, "each names a budget that would do"
    seconds = {name: by[name, 300.0]["mean_seconds"] for name, usd in by if usd == 300.0}
    assert seconds["siren"] < (1 - 0.36) * seconds["static-n"]
    assert seconds["informed"] <= 1.01 * seconds["mpc"]
    assert seconds["mpc"] < seconds["static"]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--budgets", "50,200", "--seeds", "1", "--schedulers", "static-n,mpc", "--jobs", "1")
    code, out, _ = mlcd(capsys, *words)
    assert code == 0
    assert "vs static-n" in out
    assert "Simulated." in out


def test_unseen_workloads_are_trained_without_prior_knowledge() -> None:
    rows = compare(
        ServerlessComparison(
            workloads=("unseen-0",), schedulers=("static", "mpc", "mpc-first", "mpc-again"), budgets=(200.0,), seeds=1
        )
    )
    by = {row.scheduler: row for row in rows}
    assert by["mpc"].seconds == by["mpc-first"].seconds, "no earlier training of it is known"
    assert by["mpc-again"].seconds < by["mpc-first"].seconds, "earlier trainings help"
    assert not any(row.violated for row in rows)
    assert summarise(rows)[0].runs == 1
    assert versus(rows)[0].against_static == 0.0
    assert smallest_budgets(rows) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budgets", "0"), "--budgets: must be more than 0"),
        (("--budgets", "much"), "--budgets: must be US dollars separated by commas"),
        (("--schedulers", "sirn"), "did you mean 'siren'"),
        (("--schedulers", ","), "name at least one"),
        (("--workloads", "papper"), "did you mean 'paper'"),
        (("--workloads", ","), "name at least one"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    code, _, err = mlcd(capsys, *words)
    assert code == 2
    assert message in err
