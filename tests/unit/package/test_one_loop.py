"""There is one loop: benchmarks and the command line ask deciders, never a strategy, a scheduler or a ledger."""

import ast
from pathlib import Path

import pytest

import mlcd

ROOT = Path(mlcd.__file__).parent
DECIDES = {"suggest", "recommend", "decide", "authorise", "authorise_run"}
"""Methods of strategies, schedulers and ledgers that only mlcd.deciders may call."""


def forbidden_calls(source: str) -> list[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    methods = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    return [f"line {method.lineno}: .{method.attr}()" for method in methods if method.attr in DECIDES]


@pytest.mark.parametrize("room", ["bench", "cli", "api", "jobs", "report", "engine"])
def test_only_deciders_ask_strategies_schedulers_and_ledgers(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for path in sorted((ROOT / room).rglob("*.py"))
        if (calls := forbidden_calls(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_the_check_sees_a_call() -> None:
    assert forbidden_calls("ledger.left()\nchosen.suggest(problem, history, left, 1)") == ["line 2: .suggest()"]
