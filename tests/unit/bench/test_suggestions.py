"""benchmarks/suggestions.py: its tables say what was measured and what auto is to reach."""

from suggestions import others_table, paired_table, tables

PAIRED = [
    {"strategy": "auto", "candidates": 3_100, "median_ms": 50.0, "p95_ms": 60.0, "sklearn_median_ms": 400.0},
    {"strategy": "heterbo:start=1", "candidates": 3_100, "median_ms": 25.0, "p95_ms": 30.0, "sklearn_median_ms": None},
    {"strategy": "auto", "candidates": 100_006, "median_ms": 1500.0, "p95_ms": 1600.0, "sklearn_median_ms": 3000.0},
]


def test_auto_is_compared_with_scikit_learn_of_the_same_run() -> None:
    few, other, many = paired_table({"paired": PAIRED}).splitlines()[2:]
    assert few == "| `auto` | 3,100 | 50 ms | 60 ms | 400 ms | 8.0 x | 6 x |"
    assert other == "| `heterbo:start=1` | 3,100 | 25 ms | 30 ms | not installed | - | - |"
    assert many == "| `auto` | 100,006 | 1500 ms | 1600 ms | 3000 ms | 2.0 x | 2 s |"


def test_the_other_libraries_follow_where_they_were_measured() -> None:
    engines = [
        {"engine": "mlcd, auto", "version": "1", "median_ms": 50.0, "p95_ms": 60.0, "problem": None},
        {"engine": "Ax", "version": None, "median_ms": None, "p95_ms": None, "problem": "not installed"},
    ]
    found = {"paired": PAIRED, "engines": engines, "candidates": 2_900}
    assert others_table(found).splitlines()[2:] == [
        "| mlcd, auto | 1 | 2,900 | 50.0 ms | 60.0 ms | 1.0 x |",
        "| Ax | - | 2,900 | not installed | - | - |",
    ]
    assert others_table(found) in tables(found)
    assert tables({"paired": PAIRED}) == paired_table({"paired": PAIRED})
