"""benchmarks/economics.py: what is drawn, what the best run is, and what the page says of it."""

from dataclasses import replace
from pathlib import Path

import economics
import pytest
from economics import (
    CHEAP,
    CHEAP_USD,
    CostJob,
    CostRow,
    best_run,
    drawn,
    example_jobs,
    examples_table,
    rows_of,
    run_job,
    samples_for,
    samples_of,
    summaries,
)

from mlcd.clouds.sim import SimCloud
from mlcd.units import HOUR

JOB = CostJob(
    number=0,
    offered="aws-gpu",
    model="resnet152",
    batch=256,
    topology="ring",
    most_nodes=2,
    noise=0.03,
    hours=5.0,
    seed=3,
)
ROW = CostRow(
    number=0, offered="aws-62", strategy="s", work="kept", hours=1.0, deployments=5, status="done", trials=2, failed=0,
    search_usd=1.0, total_usd=5.0, best="1 x a", best_usd=4.0, chosen="1 x a", one_trial=1.2, dearest=("1 x a", 1.0),
)  # fmt: skip


def test_jobs_depend_on_the_seed_and_span_what_the_page_says() -> None:
    found = list(drawn(8, 1))
    assert found[:1] == list(drawn(1, 1))
    assert found[:1] != list(drawn(1, 2))
    assert [job.offered for job in found[:4]] == ["aws-gpu", "aws-62", "aws", "aws-gpu"]
    assert min(job.hours for job in found) < 1 < 24 < max(job.hours for job in found)
    assert all(1 <= job.most_nodes <= 50 and 0.01 <= job.noise <= 0.1 for job in found)


def test_the_best_run_takes_the_hours_that_were_drawn_where_a_sample_is_cheapest() -> None:
    resolved = economics._resolved(JOB, samples_of(JOB), strategy="random", work="thrown")
    text, usd, one_trial = best_run(resolved)
    cloud = resolved.cloud
    assert isinstance(cloud, SimCloud)
    by_text = {str(config): config for config in resolved.problem.space}
    speed = cloud.true_samples_per_second(by_text[text])
    assert speed is not None
    seconds = cloud.startup_seconds(by_text[text]) + resolved.problem.work_samples / speed
    assert seconds == pytest.approx(JOB.hours * HOUR, rel=0.02)
    assert usd == pytest.approx(resolved.problem.price(by_text[text]).dollars * seconds / HOUR, abs=1e-5)
    assert one_trial == pytest.approx(1 + 600 / seconds)


def test_no_run_is_cheaper_than_the_best_and_search_is_paid_on_top() -> None:
    for text in ("random:steps=2", "cherrypick"):
        row, run = run_job(JOB, text, "thrown")
        assert row.total_usd is not None
        assert row.total_usd - row.search_usd >= row.best_usd - 1e-6
        assert row.search_usd == pytest.approx(sum(trial.usd.dollars for trial in run.history))
        assert row.ratio == row.total_usd / row.best_usd > 1


def test_rows_name_their_kind_of_work() -> None:
    rows = [CostRow(**row) for row in rows_of(replace(JOB, most_nodes=1), "random:steps=1", ("thrown", "kept"))]
    assert [row.work for row in rows] == ["thrown", "kept"]
    assert rows[1].total_usd is not None
    assert rows[0].total_usd is not None
    assert rows[1].total_usd < rows[0].total_usd, "a trial whose work is kept is not paid twice"


def test_the_first_example_costs_what_the_issue_says() -> None:
    jobs = [(job, samples) for name, job, samples in example_jobs() if name == CHEAP]
    assert len(jobs) == 5
    for job, samples in jobs:
        text, usd, _ = best_run(economics._resolved(job, samples, strategy="random", work="thrown"))
        assert usd == pytest.approx(CHEAP_USD, abs=1e-4)
        assert text.startswith("1 x ")
    resolved = economics._truth(jobs[0][0])[0]
    assert samples_for(resolved, 2.2) > samples_for(resolved, 1.1)


def test_a_run_without_a_training_counts_three() -> None:
    assert replace(ROW, total_usd=None).ratio == 3.0
    assert replace(ROW, total_usd=None, search_usd=20.0).ratio == 5.0


def test_the_summary_counts_the_share_within_the_goal() -> None:
    rows = [ROW, replace(ROW, total_usd=5.01), replace(ROW, total_usd=None, hours=30.0), replace(ROW, work="thrown")]
    found = {(each.work, each.jobs): each for each in summaries(rows)}
    assert found["kept", "all"].within == pytest.approx(1 / 3)
    assert found["kept", "all"].unfinished == 1
    assert found["kept", "all"].worst == 3.0
    assert found["kept", "over 24 h"].runs == 1
    assert found["kept", "aws-62"].runs == 3
    assert ("kept", "aws-gpu") not in found
    assert found["thrown", "all"].within == 1.0


def test_the_examples_count_against_their_goals() -> None:
    cheap = {"name": CHEAP, "strategy": "auto", "work": "kept", "total_usd": 1.59, "first_fit": 1}
    other = {"name": economics.MEMORY, "strategy": "auto", "work": "kept", "total_usd": 9.0, "first_fit": 6}
    text = examples_table([cheap, {**cheap, "total_usd": 1.61}, other, {**other, "first_fit": None}])
    assert "| 2 | under $1.60 in all | 1 | $1.61 |" in text
    assert "| 2 | one that fits within 6 trials | 1 | none measured |" in text


def test_the_record_is_kept_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(economics, "FOLDER", tmp_path)
    monkeypatch.setattr(economics, "example_jobs", lambda: [(CHEAP, replace(JOB, most_nodes=1), 1e5)])
    options = ["--count=2", "--seed=1", "--work=thrown", "--jobs=1", "--show", "--strategies=random:steps=1"]
    monkeypatch.setattr("sys.argv", ["economics.py", *options])
    economics.main()
    first = capsys.readouterr().out
    assert "| `random:steps=1` | thrown | all | 2 |" in first
    lines = (tmp_path / "economics.jsonl").read_text().splitlines()
    economics.main()
    assert capsys.readouterr().out == first
    kept = (tmp_path / "economics.jsonl").read_text().splitlines()
    assert [line for line in kept if line] == [line for line in lines if line], "nothing was run again"


def test_the_page_has_all_jobs_and_the_lengths_of_the_first_strategy() -> None:
    rows = [
        {"strategy": name, "jobs": jobs}
        for name in ("auto", "heterbo")
        for jobs in ("all", "aws-gpu", economics.LENGTHS[0][0])
    ]
    kept = [(s["strategy"], s["jobs"]) for s in economics.shown(rows)]
    assert kept == [("auto", "all"), ("auto", economics.LENGTHS[0][0]), ("heterbo", "all")]


def test_a_job_that_its_trials_finished_is_paid_for_and_done() -> None:
    job = next(job for job in economics.drawn(1, economics.RECORD_SEED))
    row, run = economics.run_job(job, "heterbo", "kept")
    assert run.final is None, "the trials did all of the work"
    assert row.total_usd == run.total_usd.dollars
    assert row.chosen is not None
