"""What a checkpoint of a PyTorch loop has to hold, and where all of it has been made."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mlcd.scripts.reading import Source, last_name

SCALERS = ("GradScaler", "ShardedGradScaler", "AveragedModel", "ExponentialMovingAverage")
"""Classes with a state_dict that a training continues from, besides schedulers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """What is saved besides model and optimizer.

    names      variables of schedulers, scalers and the like, in the order in which they are made
    last       the statement after which all of it exists
    uncertain  (line, variable) of those that are made only under a condition
    """

    names: tuple[str, ...]
    last: ast.stmt
    uncertain: tuple[tuple[int, str], ...]


def training_state(source: Source, loop: ast.For, *, model: str, optimizer: str, statement: ast.stmt) -> TrainingState:
    """The state around `statement`, which makes the optimizer, up to where the training begins."""
    block = _block(source, statement)
    end = next((n for n, each in enumerate(block) if n > block.index(statement) and _trains(source, each, loop)), None)
    before = block[:end]
    made = {name: each for each in before for name in _made_in(each, optimizer)}
    inside = {name for each in made.values() for name in _used(each)} & made.keys()
    names = [name for name in made if name not in (model, optimizer) and name not in inside]
    last = statement
    for each in before[block.index(statement) :]:
        if {model, optimizer, *names} & set(_assigned(each)):
            last = each
    sure = {*names, model, optimizer, *inside}
    uncertain = {
        name: node.lineno
        for each in before
        for node in ast.walk(each)
        if isinstance(node, ast.Assign)
        for name in _made_by(node, optimizer)
        if name not in sure
    }
    return TrainingState(
        names=tuple(names), last=last, uncertain=tuple((line, name) for name, line in uncertain.items())
    )


def _block(source: Source, statement: ast.stmt) -> list[ast.stmt]:
    """The statements that a statement is one of."""
    parent = source.parents[statement]
    for field in ("body", "orelse", "finalbody"):
        found = getattr(parent, field, [])
        if isinstance(found, list) and statement in found:
            return found
    return [statement]


def _trains(source: Source, statement: ast.stmt, loop: ast.For) -> bool:
    """Whether a statement is a loop, has the training's loop in it, or calls the function that has it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    functions = {node.name for node in source.around(loop) if isinstance(node, ast.FunctionDef)}
    inner = list(ast.walk(statement))
    calls = any(isinstance(node, ast.Call) and last_name(node.func) in functions for node in inner)
    return isinstance(statement, ast.For | ast.While) or loop in inner or calls


def _made_in(statement: ast.stmt, optimizer: str) -> list[str]:
    """Variables that get a scheduler or the like in this statement, whichever way it goes."""
    if isinstance(statement, ast.Assign):
        return list(_made_by(statement, optimizer))
    if isinstance(statement, ast.If) and statement.orelse:
        one, other = (
            [n for each in part for n in _made_in(each, optimizer)] for part in (statement.body, statement.orelse)
        )
        return [name for name in one if name in other]
    return []


def _made_by(statement: ast.Assign, optimizer: str) -> Iterator[str]:
    call = statement.value
    if not isinstance(call, ast.Call) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
        return
    name = last_name(call.func)
    given = [*call.args, *(each.value for each in call.keywords)]
    of_optimizer = any(isinstance(each, ast.Name) and each.id == optimizer for each in given)
    is_schedule = of_optimizer and (name.endswith("LR") or "schedule" in name.lower() or "LROn" in name)
    if is_schedule or name in SCALERS:
        yield statement.targets[0].id


def _used(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
