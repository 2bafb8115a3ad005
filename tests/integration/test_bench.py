"""`mlcd bench`: small real runs, the documented JSON, the definitions by hand, and bad input."""

import csv
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mlcd.bench.case import GoalKind, TrainRow, is_unseen
from mlcd.bench.protocol import TrainProtocol
from mlcd.bench.tasks import run_tasks
from mlcd.bench.train import summarise
from mlcd.bench.workloads import table_truth, table_workloads
from mlcd.cli.main import run

ROW_KEYS = [
    "workload",
    "unseen",
    "strategy",
    "goal",
    "hours",
    "seed",
    "status",
    "trials",
    "probe_seconds",
    "probe_usd",
    "train_seconds",
    "train_usd",
    "total_seconds",
    "total_usd",
    "limit_seconds",
    "limit_usd",
    "optimum",
    "ratio",
    "noise",
    "work",
    "restart_seconds",
    "budget_factor",
    "deadline_factor",
    "types",
    "deployments",
    "trial_seconds",
    "report_noise",
]
SUMMARY_KEYS = [
    "strategy",
    "goal",
    "hours",
    "runs",
    "mean_ratio",
    "mean_ratio_done",
    "median_ratio",
    "p95_ratio",
    "ratio_interval",
    "violations",
    "unfinished",
    "mean_trials",
    "probe_share",
]

PRICES = {"small": 0.10, "middle": 0.25, "large": 0.80}
SECONDS = {  # of the whole job on 1, 2, 4, 8 nodes
    "small": (3600.0, 2000.0, 1200.0, 900.0),
    "middle": (1800.0, 1000.0, 600.0, 500.0),
    "large": (600.0, 400.0, 300.0, 320.0),
}
NODES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Mlcd = Callable[..., Answer]


@pytest.fixture
def mlcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mlcd:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLCD_DEBUG", raising=False)

    def call(*args: str) -> Answer:
        capsys.readouterr()
        code = run(args)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """3 types x 4 counts, two workloads; the second twice as slow on every type but `large`."""
    folder = tmp_path / "tables"
    folder.mkdir()
    with (folder / "instances.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["instance", "vcpus", "memory_gib", "usd_per_hour"]]
            + [[name, 2 * at + 2, 4 * at + 4, price] for at, (name, price) in enumerate(PRICES.items())]
        )
    for workload, factor in (("alpha", 1.0), ("beta", 2.0)):
        with (folder / f"{workload}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [["instance", "nodes", "seconds", "status"]]
                + [
                    [name, n, s * (1.0 if name == "large" else factor), "ok"]
                    for name, curve in SECONDS.items()
                    for n, s in zip(NODES, curve, strict=True)
                ]
            )
    return folder


def train(mlcd: Mlcd, tables: Path, *more: str) -> Answer:
    return mlcd("bench", "train", "--tables", str(tables), "--hours", "2", "--seeds", "1", "--jobs", "1", *more)


# ---- bench train


def test_train_on_tables_gives_the_promised_json(mlcd: Mlcd, tables: Path) -> None:
    answer = train(mlcd, tables, "--strategies", "heterbo,convbo", "--goal", "cheapest", "-o", "json")
    assert answer.code == 0, answer.err
    assert {"rows", "summary"} <= set(answer.json)
    assert [list(row) for row in answer.json["rows"]] == [ROW_KEYS] * 4  # 2 strategies x 2 workloads
    assert [list(s) for s in answer.json["summary"]] == [SUMMARY_KEYS] * 2
    for row in answer.json["rows"]:
        assert row["status"] in ("done", "violated", "unfinished")
        assert row["limit_seconds"] == 2.5 * 2 * 3600
        assert row["limit_usd"] is None
        if row["status"] != "unfinished":
            assert row["total_seconds"] == pytest.approx(row["probe_seconds"] + row["train_seconds"])
            assert row["total_usd"] == pytest.approx(row["probe_usd"] + row["train_usd"])
            assert row["ratio"] == pytest.approx(row["total_usd"] / row["optimum"])


def test_a_run_is_reproducible(mlcd: Mlcd, tables: Path) -> None:
    more = ("--strategies", "heterbo", "--goal", "both", "-o", "json")
    assert train(mlcd, tables, *more).out == train(mlcd, tables, *more).out


def test_train_text_states_the_source_of_the_figures(mlcd: Mlcd, tables: Path) -> None:
    answer = train(mlcd, tables, "--strategies", "random:steps=2", "--goal", "fastest", "--workloads", "alpha")
    assert answer.code == 0
    assert "replayed from measured tables" in answer.out
    assert "random:steps=2" in answer.out


def test_semicolons_separate_strategies_with_several_options(mlcd: Mlcd, tables: Path) -> None:
    answer = train(
        mlcd, tables, "--strategies", "heterbo:start=1,prune=off; random:steps=2", "--goal", "fastest", "-o", "json"
    )
    assert [s["strategy"] for s in answer.json["summary"]] == ["heterbo:start=1,prune=off", "random:steps=2"]


def test_train_states_and_uses_its_protocol(mlcd: Mlcd, tables: Path) -> None:
    flags = {
        "--work": "kept",
        "--restart": "60s",
        "--budget-factor": "2",
        "--deadline-factor": "3",
        "--types": "2",
        "--noise": "0.05",
    }
    more = ("--strategies", "oracle,random:steps=3", "--goal", "both", "--seeds", "6", "-o", "json")
    plain = train(mlcd, tables, *more).json["rows"]
    rows = train(mlcd, tables, *more, *(part for flag in flags.items() for part in flag)).json["rows"]
    stated = ("work", "restart_seconds", "budget_factor", "deadline_factor", "types", "noise")
    assert {tuple(row[name] for name in stated) for row in rows} == {("kept", 60.0, 2.0, 3.0, 2, 0.05)}
    assert {tuple(row[name] for name in stated) for row in plain} == {("thrown", 0.0, 1.5, 2.5, None, 0.03)}
    assert {row["limit_seconds"] for row in rows} == {3 * 7200.0}
    assert len({row["limit_usd"] for row in rows if row["workload"] == "alpha"}) > 1, "seeds draw other types"


def test_a_move_has_a_price_unless_it_is_said_to_be_free(mlcd: Mlcd, tables: Path) -> None:
    def restart(*more: str) -> float:
        answer = train(mlcd, tables, "--strategies", "oracle", "--workloads", "alpha", "-o", "json", *more)
        found: float = answer.json["rows"][0]["restart_seconds"]
        return found

    assert restart() == 0.0
    assert restart("--work", "kept") == 120.0
    assert restart("--work", "kept", "--restart", "0s") == 0.0


def test_train_text_states_the_protocol(mlcd: Mlcd, tables: Path) -> None:
    more = ("--strategies", "oracle", "--work", "kept", "--types", "2", "--budget-factor", "2")
    out = train(mlcd, tables, *more).out
    assert "Work of trials: kept, 120 s a move; budget 2 and deadline 2.5 times the least; 2 types drawn" in out


def test_train_on_the_simulator(mlcd: Mlcd) -> None:
    answer = mlcd(
        "bench", "train", "--sim", "--workloads", "alexnet", "--strategies", "heterbo", "--goal", "budget",
        "--seeds", "1", "--jobs", "1", "-o", "json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    (row,) = answer.json["rows"]
    assert row["workload"] == "alexnet"
    assert row["status"] == "done"
    assert row["total_usd"] <= row["limit_usd"]


def test_unseen_workloads_are_summarised_separately(mlcd: Mlcd, tables: Path) -> None:
    kept = {}
    for which in ("only", "no"):
        answer = train(mlcd, tables, "--strategies", "random:steps=2", "--unseen", which, "-o", "json")
        rows = answer.json["rows"] if answer.code == 0 else []
        kept[which] = {row["workload"] for row in rows}
        assert all(row["unseen"] is (which == "only") for row in rows)
    assert kept["only"] | kept["no"] == {"alpha", "beta"}
    assert not kept["only"] & kept["no"]


# ---- the definitions, by hand


def test_unseen_is_an_even_sha256() -> None:
    for name in ("alpha", "beta", "kmeans_spark1.5_bigdata", "ä"):
        last_byte = hashlib.sha256(name.encode()).digest()[-1]
        assert is_unseen(name) is (last_byte % 2 == 0)


def test_limits_and_optimum(tables: Path) -> None:
    hours = 2.0
    protocol = TrainProtocol(hours=hours)
    truth = table_truth(table_workloads(tables)["alpha"], protocol)
    scale = hours * 3600 / 300.0  # the fastest: 4 large in 300 s
    assert min(seconds for seconds, _ in truth.outcomes()) == pytest.approx(7200.0)
    money = {
        (name, n): s * scale / 3600 * n * PRICES[name]
        for name, curve in SECONDS.items()
        for n, s in zip(NODES, curve, strict=True)
    }
    assert min(money, key=lambda key: money[key]) == ("small", 1)
    assert money["small", 1] == pytest.approx(2.40)

    fastest = truth.with_goal(GoalKind.FASTEST, protocol).goal
    assert (fastest.deadline_seconds, fastest.budget) == (None, None)
    assert truth.optimum(fastest) == pytest.approx(7200.0)

    cheapest = truth.with_goal(GoalKind.CHEAPEST, protocol).goal
    assert cheapest.deadline_seconds == 2.5 * 7200
    # Within 18,000 s = 750 s of the table: 4 middle (600 s, $4.00), 8 middle, all of large (1 large: 600 s, $3.20).
    assert truth.optimum(cheapest) == pytest.approx(money["large", 1], rel=1e-6)

    budget = truth.with_goal(GoalKind.BUDGET, protocol).goal
    assert budget.budget is not None
    assert budget.budget.dollars == pytest.approx(1.5 * 2.40, rel=1e-6)
    # For $3.60: 1 large in 600 s is the fastest ($3.20); 2 large cost $4.27.
    assert truth.optimum(budget) == pytest.approx(600 * scale)

    both = truth.with_goal(GoalKind.BOTH, protocol).goal
    assert (both.deadline_seconds, both.budget) == (cheapest.deadline_seconds, budget.budget)
    assert truth.optimum(both) == pytest.approx(600 * scale)


def row(**changes: Any) -> TrainRow:
    plain = TrainRow(
        workload="w", unseen=False, strategy="s", goal="budget", hours=6.0, seed=0, status="done", trials=4,
        probe_seconds=100.0, probe_usd=1.0, train_seconds=300.0, train_usd=4.0, total_seconds=400.0, total_usd=5.0,
        limit_seconds=None, limit_usd=9.0, optimum=250.0, ratio=1.6,
    )  # fmt: skip
    return replace(plain, **changes)


def test_the_counted_ratio() -> None:
    assert row().counted_ratio == 1.6
    assert row(ratio=4.5).counted_ratio == 4.5
    assert row(status="violated").counted_ratio == 3.0
    assert row(status="violated", ratio=3.7).counted_ratio == 3.7
    assert row(status="unfinished", ratio=None, total_seconds=None, total_usd=None).counted_ratio == 3.0


def test_the_share_of_the_search_is_in_the_goals_unit() -> None:
    assert row().probe_share == pytest.approx(100 / 400)
    assert row(goal="cheapest").probe_share == pytest.approx(1 / 5)
    assert row(total_seconds=None, total_usd=None).probe_share is None


def test_a_summary_by_hand() -> None:
    rows = [
        row(),
        row(workload="x", ratio=1.2, trials=6),
        row(workload="y", status="violated", ratio=1.1),
        row(workload="z", status="unfinished", ratio=None, total_seconds=None, total_usd=None),
    ]
    (summary,) = summarise(rows)
    assert summary.runs == 4
    assert summary.mean_ratio == pytest.approx((1.6 + 1.2 + 3.0 + 3.0) / 4)
    assert summary.mean_ratio_done == pytest.approx(1.4)
    assert summary.median_ratio == pytest.approx(2.3)
    assert (summary.violations, summary.unfinished) == (1, 1)
    assert summary.mean_trials == pytest.approx(4.5)
    low, high = summary.ratio_interval
    assert 1.2 <= low <= summary.mean_ratio <= high <= 3.0


# ---- processes


@pytest.fixture
def no_joblib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)


@pytest.mark.usefixtures("no_joblib")
def test_one_process_needs_no_joblib(mlcd: Mlcd, tables: Path) -> None:
    assert train(mlcd, tables, "--strategies", "random").code == 0
    words = (
        "--budgets",
        "300",
        "--schedulers",
        "static-n",
        "--workloads",
        "lenet-mnist",
        "--seeds",
        "1",
        "--jobs",
        "1",
    )
    answer = mlcd("bench", "serverless", *words)
    assert answer.code == 0, answer.err


@pytest.mark.usefixtures("no_joblib")
@pytest.mark.parametrize("jobs", ["-1", "2"])
def test_several_processes_without_joblib_name_the_extra(mlcd: Mlcd, tables: Path, jobs: str) -> None:
    answer = train(mlcd, tables, "--jobs", jobs)
    assert answer.code == 7
    assert f"--jobs {jobs} needs the extra 'bench'" in answer.err
    assert "pip install 'joblib" in answer.err


def test_zero_processes_are_refused(mlcd: Mlcd, tables: Path) -> None:
    assert "--jobs: must be" in train(mlcd, tables, "--jobs", "0").err


def test_tasks_give_the_same_in_the_same_order_in_several_processes() -> None:
    tasks = [(2, n) for n in range(8)]
    assert run_tasks(pow, tasks, jobs=2) == run_tasks(pow, tasks, jobs=1) == [2**n for n in range(8)]


# ---- bench suggest


def test_suggest(mlcd: Mlcd) -> None:
    small = ("--candidates", "124", "--observations", "5", "--repeats", "3")
    answer = mlcd("bench", "suggest", *small, "-o", "json")
    assert answer.code == 0, answer.err
    assert list(answer.json) == ["strategy", "candidates", "observations", "median_ms", "p95_ms", "sklearn_median_ms"]
    assert answer.json["strategy"] == "auto"
    assert (answer.json["candidates"], answer.json["observations"]) == (124, 5)
    assert 0 < answer.json["median_ms"] <= answer.json["p95_ms"]
    other = mlcd("bench", "suggest", *small, "--strategy", "heterbo:start=1").out
    assert "one suggestion of heterbo:start=1 over 124 candidates" in other


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train",), "either --tables DIR or --sim"),
        (("train", "--sim", "--tables", "."), "either --tables DIR or --sim"),
        (("train", "--tables", "nowhere"), "nowhere"),
        (("train", "--tables", "."), "instances.csv"),
        (("train", "--sim", "--workloads", "no-such-*"), "no simulated job matches"),
        (("train", "--sim", "--goal", "prettiest"), "prettiest"),
        (("train", "--sim", "--strategies", "heterbot"), "did you mean 'heterbo'"),
        (("train", "--sim", "--strategies", "heterbo:steps=3"), "no option"),
        (("train", "--sim", "--strategies", ";"), "name at least one"),
        (("train", "--sim", "--hours", "0"), "must be positive"),
        (("train", "--sim", "--hours", "2,six"), "numbers separated by commas"),
        (("train", "--sim", "--seeds", "0"), "--seeds"),
        (("train", "--sim", "--noise", "2"), "--noise"),
        (("train", "--sim", "--restart", "120"), "--restart: a duration needs a unit"),
        (("train", "--sim", "--work", "lost"), "--work"),
        (("train", "--sim", "--work", "kept", "--parallel", "2"), "--parallel"),
        (("train", "--sim", "--budget-factor", "0.5"), "--budget-factor"),
        (("train", "--sim", "--deadline-factor", "0.5"), "--deadline-factor"),
        (("train", "--sim", "--types", "0"), "--types"),
        (("suggest", "--candidates", "10"), "--candidates"),
        (("suggest", "--strategy", "heterbot"), "did you mean 'heterbo'"),
        (("suggest", "--candidates", "62", "--observations", "1000"), "--observations"),
    ],
)
def test_bad_input(mlcd: Mlcd, arguments: tuple[str, ...], message: str) -> None:
    answer = mlcd("bench", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
