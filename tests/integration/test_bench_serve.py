"""`mlcd bench serve`: what it prints, and that searches are scored against the truth."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.llm_tables import write_tables
from tests.serving_world import world

from mlcd.bench.serve import beds as bed_room
from mlcd.bench.serve.case import Bed, Case, Walk, searcher, walk
from mlcd.bench.serve.score import ServeComparison, ServeRow, compare, summarise
from mlcd.cli.main import cli
from mlcd.trial.trial import Failure, FailureKind, Measurement

FIELDS = {
    "strategy", "slo_ms", "trials", "runs", "mean_accuracy", "interval", "deviation",
    "least_accuracy", "least_target", "mean_trials_to_95", "mean_trials_to_99",
    "search_usd", "median_accuracy", "median_regret",
}  # fmt: skip


def made_up(*, operators: bool = True) -> Bed:
    known = world()
    if not operators:
        known = replace(known, curves=())
    return Bed(name="made up", known=known, targets=("residual-50", "bert-base", "lstm", "mobile-1"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed_room, "beds", lambda **_: (made_up(),))


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, ["bench", "serve", "--jobs", "1", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("measured")
def test_the_summary_is_as_documented() -> None:
    words = [
        "--strategies",
        "falcon,random",
        "--trials",
        "6,1",
        "--slo",
        "p99=3ms,p99=0.01s",
        "--seeds",
        "2",
        "-o",
        "json",
    ]
    found = json.loads(run(*words))
    assert [tuple(sorted(line)) for line in found["summary"]] == [tuple(sorted(FIELDS))] * 8
    assert [line["trials"] for line in found["summary"]] == [1, 6] * 4
    assert {line["runs"] for line in found["summary"]} == {8}
    falcon, random = ([s for s in found["summary"] if s["strategy"] == name] for name in ("falcon", "random"))
    for ours, theirs in zip(falcon, random, strict=True):
        assert 0 <= theirs["mean_accuracy"] < ours["mean_accuracy"] <= 1
        assert ours["interval"][0] <= ours["mean_accuracy"] <= ours["interval"][1]
        assert ours["mean_trials_to_95"] <= ours["mean_trials_to_99"]
    assert len(found["rows"]) == 4 * 2 * 2 * 2
    held_out = {row["target"] for row in found["rows"] if row["unseen"]}
    assert sum(s["runs"] for s in found["summary_unseen"] if s["trials"] == 1) == len(held_out) * 8
    assert run(*words) == json.dumps(found, indent=2) + "\n", "the same question, the same answer"


@pytest.mark.usefixtures("measured")
def test_the_table_says_what_was_compared() -> None:
    text = run("--strategies", "falcon:explore=0.2,least=2; random", "--trials", "3", "--slo", "3", "--seeds", "1")
    assert "falcon:explore=0.2,least=2" in text
    assert "made up for tests; simulated; noise 0.01." in text
    assert "sha256(name) is even" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sim", "--tables", "x"], "give only one of --tables DIR, --sim and --cpu"),
        (["--slo", "fast"], "--slo: must be numbers separated by commas, such as p99=20ms,p99=50ms or 20,50"),
        (["--slo", "p50=20ms"], "--slo: must be numbers separated by commas"),
        (["--slo", "0"], "--slo: must be positive"),
        (["--trials", "1.5"], "--trials: must be numbers separated by commas"),
        (["--strategies", ","], "--strategies: name at least one"),
        (["--strategies", "falkon"], "unknown strategy 'falkon'.*did you mean 'falcon'"),
        (["--strategies", "falcon:explor=1"], "falcon has no option 'explor=1'.*did you mean 'explore'"),
        (["--targets", "zzz"], "--targets: none matches 'zzz'"),
        (["--slo", "0.0001"], "--slo: no configuration of any model keeps these limits"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_bad_options_get_a_one_line_message(words: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["bench", "serve", "--jobs", "1", "--seeds", "1", *words])
    assert done.exit_code != 0
    assert re.search(message, str(done.exception) + done.output)


def test_strategies_that_need_operators_are_skipped_on_tables_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed_room, "beds", lambda **_: (made_up(operators=False),))
    words = ["bench", "serve", "--jobs", "1", "--seeds", "1", "--slo", "3", "--trials", "3"]
    done = CliRunner().invoke(cli, [*words, "--strategies", "falcon,random", "-o", "json"])
    assert done.exit_code == 0
    assert "falcon is excluded: it needs operators, and these tables have none" in done.stderr
    assert {row["strategy"] for row in json.loads(done.stdout)["rows"]} == {"random"}


def test_tables_of_language_models_have_their_own_rivals(tmp_path: Path) -> None:
    folder = str(write_tables(tmp_path / "t"))
    words = ["bench", "serve", "--tables", folder, "--jobs", "1", "--seeds", "1", "--slo", "800", "--trials", "1,3"]
    done = CliRunner().invoke(cli, [*words, "--targets", "llama-7b", "-o", "json"])
    rows = json.loads(done.stdout)["rows"]
    assert [row["strategy"] for row in rows] == ["auto", "falcon-transfer", "roofline", "source-mean", "random"]
    assert all(set(row["accuracy"]) == {"1", "3"} for row in rows)


def test_where_no_strategy_applies_the_strategies_are_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed_room, "beds", lambda **_: (made_up(operators=False),))
    done = CliRunner().invoke(cli, ["bench", "serve", "--jobs", "1", "--seeds", "1", "--strategies", "falcon"])
    assert "--strategies: none of these applies to the tables" in str(done.exception)


def test_a_target_is_not_among_its_sources() -> None:
    bed = made_up()
    assert "bert-base" not in {model.name for model in bed.sources("bert-base").models}
    assert len(bed.sources("bert-base").models) == len(bed.known.models) - 1
    kin = {model.name for model in bed.sources("bert-base", "family").models}
    assert not kin & {"bert-base", "bert-large", "roberta"}
    fixed = Bed(name="fixed", known=bed.known, targets=bed.targets, fixed=True)
    assert not {model.name for model in fixed.sources("lstm").models} & set(bed.targets)


def test_trials_are_read_from_the_table() -> None:
    case = Case.of(made_up(), "residual-50", 0.003, noise=0.0, max_trials=5)
    assert case is not None
    seconds = case.target.latency_seconds
    kept = case.problem.space.configs[int(case.values.argmax())]
    trial = case.trial(kept, 0)
    assert isinstance(trial, Measurement)
    assert trial.meets(case.problem.goal)
    assert case.accuracy(kept) == 1
    slow = case.problem.space.configs[int((seconds > 0.003).argmax())]
    broken = case.trial(slow, 0)
    assert isinstance(broken, Measurement)
    assert not broken.meets(case.problem.goal)
    assert broken.load is not None
    assert broken.load.p50_seconds == pytest.approx(seconds[case.problem.space.index[slow]])
    assert case.accuracy(slow) == case.accuracy(None) == 0
    full = case.problem.space.configs[int((seconds == float("inf")).argmax())]
    failure = case.trial(full, 0)
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert Case.of(made_up(), "residual-50", 1e-6, noise=0.0, max_trials=5) is None


def test_noise_is_on_trials_by_seed_and_the_choice_is_judged_without_it() -> None:
    case = Case.of(made_up(), "lstm", 0.01, noise=0.1, max_trials=5)
    assert case is not None
    config = case.problem.space.configs[int(case.values.argmax())]

    def rate(seed: int) -> float:
        trial = case.trial(config, seed)
        assert isinstance(trial, Measurement)
        return trial.samples_per_second

    assert rate(1) == rate(1) != rate(2)
    assert case.accuracy(config) == 1


def test_unmeasured_configurations_are_excluded() -> None:
    bed = made_up()
    hidden = bed.model("lstm").latency_seconds.copy()
    hidden[::2] = np.nan
    models = tuple(replace(m, latency_seconds=hidden) if m.name == "lstm" else m for m in bed.known.models)
    case = Case.of(replace(bed, known=replace(bed.known, models=models)), "lstm", 0.01, noise=0.01, max_trials=12)
    assert case is not None
    assert case.problem.space.configs == bed.known.configs[1::2]
    whole = Case.of(bed, "lstm", 0.01, noise=0.01, max_trials=12)
    assert whole is not None
    assert [case.trial(c, 3) for c in case.problem.space] == [whole.trial(c, 3) for c in case.problem.space]
    for text in ("falcon", "falcon-transfer", "heterbo", "morphling", "vesta", "ernest", "source-mean"):
        made = walk(case, searcher(text, case, case.bed.sources("lstm"), seed=0), seed=0)
        assert made.configs
        assert set(made.configs) <= set(case.problem.space.configs)
        assert made.accuracies[-1] > 0.5, text


def test_an_exhaustive_walk_ends_at_the_optimum() -> None:
    case = Case.of(made_up(), "mobile-1", 0.003, noise=0.0, max_trials=96)
    assert case is not None
    made = walk(case, searcher("exhaustive", case, case.bed.sources("mobile-1"), seed=0), seed=0)
    assert made.accuracies[-1] == 1
    assert made.accuracy_after(1000) == 1
    assert made.trials_to(0.99) == made.accuracies.index(1.0) + 1
    assert made.usd_after(2) == pytest.approx(sum(made.usd[:2]))


def test_a_search_that_never_reached_the_accuracy_counts_one_more_than_the_maximum() -> None:
    nothing = Walk(accuracies=(), usd=(), configs=())
    assert nothing.accuracy_after(3) == 0
    assert nothing.trials_to(0.95) is None
    row = ServeRow(
        bed="b", target="t", unseen=False, strategy="s", slo_ms=1.0, seed=0, made=0, accuracy={3: 0.0, 9: 0.0},
        search_usd={3: 0.0, 9: 0.0}, search_seconds=0.0, trials_to_95=None, trials_to_99=None,
    )  # fmt: skip
    assert [s.mean_trials_to_95 for s in summarise([row])] == [10, 10]


def test_the_least_is_of_the_target_with_the_lowest_mean_over_its_seeds() -> None:
    def row(target: str, accuracy: float) -> ServeRow:
        return ServeRow(
            bed="b", target=target, unseen=False, strategy="s", slo_ms=1.0, seed=0, made=0, accuracy={3: accuracy},
            search_usd={3: 0.0}, search_seconds=0.0, trials_to_95=None, trials_to_99=None,
        )  # fmt: skip

    (found,) = summarise([row("lucky", 0.2), row("lucky", 1.0), row("poor", 0.5), row("poor", 0.3)])
    assert found.least_target == "poor"
    assert found.least_accuracy == pytest.approx(0.4)
    assert found.deviation == pytest.approx(np.std([0.2, 1.0, 0.5, 0.3]))


def test_a_bed_has_its_own_limits_and_noise() -> None:
    bed = replace(made_up(), slo_ms=(3.0,), noise=0.2, targets=("lstm",))
    comparison = ServeComparison(strategies=("random",), trials=(3,), seeds=1)
    own = compare(comparison, [bed])
    assert [row.slo_ms for row in own] == [3.0]
    assert own == compare(replace(comparison, slo_ms=(3.0,), noise=0.2), [bed])
    shipped = bed_room.beds(cpu=True)[0]
    assert shipped.name == "cpu"
    assert shipped.noise == pytest.approx(0.0331)


def test_processes_do_not_change_the_rows() -> None:
    comparison = ServeComparison(strategies=("falcon-transfer",), slo_ms=(3.0,), seeds=1, trials=(3,))
    bed = made_up()
    alone = compare(comparison, [bed])
    assert compare(replace(comparison, jobs=2), [bed]) == alone


def test_every_field_of_the_summary_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "benchmarks" / "notes" / "falcon.md").read_text(encoding="utf-8")
    for field in FIELDS:
        assert f"`{field}`" in page
