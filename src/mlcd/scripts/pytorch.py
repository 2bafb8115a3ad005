"""A script with its own PyTorch loop: the lines that report its steps, share it over nodes and keep its work."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mlcd.scripts.edits import import_edit, outside_notes, with_inserted
from mlcd.scripts.reading import Source, keyword, last_name
from mlcd.scripts.saves import saves_of
from mlcd.scripts.script import Edit, Framework, TrainingScript
from mlcd.scripts.training_state import training_state

WRAPPERS = ("enumerate", "tqdm", "track", "steps")
"""What loops put around their loader."""
DISTRIBUTED = ("DistributedDataParallel", "DDP", "init_process_group", "fully_shard", "FullyShardedDataParallel")
"""Calls of scripts that share their work over processes by themselves."""
_NOT_FOR_LOADER = ("dataset", "batch_size", "shuffle", "drop_last", "sampler", "batch_sampler")

_SHARE = "give each node its share of a batch: mlcd.torch.loader(dataset, batch_size=...)"


def pytorch_script(path: Path, source: Source) -> TrainingScript | None:
    """The script, if it has a loop with a backward pass."""
    loop = _loop(source)
    if loop is None:
        return None
    ready = any(source.calls("steps")) and "mlcd" in source.imported
    loader = _loader(source, loop)
    call = _loader_call(source, loader)
    batch = None if call is None else keyword(call, "batch_size") or (call.args[1] if len(call.args) > 1 else None)
    dataset = None if call is None else keyword(call, "dataset") or (call.args[0] if call.args else None)
    if call is None and (slices := _slices(loader)) is not None:
        dataset, batch = slices
    saves = saves_of(source)
    found = TrainingScript(
        path=path,
        source=source.text,
        framework=Framework.PYTORCH,
        line=loop.lineno,
        batch=source.number(batch),
        epochs=_epoch_count(source, _epochs(source, loop)),
        samples=source.size(dataset) or source.number(dataset),
        saves=saves,
        notes=tuple(outside_notes(saves)),
        is_ready=ready,
        keeps_work=ready and any(source.calls("checkpoint")),
        several_nodes=any(source.calls("parallel", *DISTRIBUTED)),
    )
    return found if ready else _with_edits(found, source, loop, call, batch)


def _with_edits(
    found: TrainingScript,
    source: Source,
    loop: ast.For,
    call: ast.Call | None,
    batch: ast.expr | None,
) -> TrainingScript:
    loader = _loader(source, loop)
    edits: list[Edit] = []
    notes = list(found.notes)
    own = found.several_nodes
    model, optimizer, statement = _optimizer(source)
    shared = "" if own or not model or call is None or batch is None else _shared_loader(source, call, batch)
    inner = shared if shared and loader is call else source.segment(loader)
    # The batch of a script that shares its work by itself is that of one process.
    size = f", batch_size={source.segment(batch)}" if batch and not own and source.sees(loop, batch) else ""
    wrapped = _replaced(source, loader, f"mlcd.steps({inner}{size})", "mlcd watches this loop")
    if wrapped is None:
        notes.append(f"line {loader.lineno}: write mlcd.steps(...) around what the loop goes over")
    else:
        edits.append(wrapped)
    if statement is None:
        notes.append("no optimizer of a model was found: docs/progress.md says how to save and restore")
    elif model:
        pad = source.indent(statement)
        if not own:
            new = f"{pad}{model} = mlcd.torch.parallel({model})"
            edits.append(Edit(line=statement.lineno, last=statement.lineno - 1, new=(new,), why="several nodes"))
        state = training_state(source, loop, model=model, optimizer=optimizer, statement=statement)
        things = "".join(f", {name}={name}" for name in state.names)
        new = f"{pad}mlcd.torch.checkpoint(model={model}, optimizer={optimizer}{things})"
        after = (state.last.end_lineno or state.last.lineno) + 1
        notes += [
            f"line {line}: {name} is made only under a condition: where it is made, add it to mlcd.torch.checkpoint, so"
            " that it is saved and restored"
            for line, name in state.uncertain
        ]
        edits.append(Edit(line=after, last=after - 1, new=(new,), why="keeps the work of trials"))
        numbered = _numbered(source, loop)
        edits += numbered[0]
        notes += numbered[1]
    if not own and model:
        divided = _replaced(source, call, shared) if shared and call is not None else None
        if divided is None:
            notes.append(_SHARE)
        else:
            edits += [divided] if loader is not call else []
            notes += _loader_notes(source, call) if call is not None else []
        edits += _saves(source, model)
    modules = ("mlcd", "mlcd.torch") if model else ("mlcd",)
    edits.append(import_edit(source, modules))
    return replace(
        found,
        edits=with_inserted(edits),
        notes=tuple(notes),
        keeps_work=bool(model),
        several_nodes=own or bool(model and _SHARE not in notes),
    )


def _loop(source: Source) -> ast.For | None:
    """The innermost `for` around the first backward pass."""
    for call in source.calls("backward"):
        for node in source.around(call):
            if isinstance(node, ast.For):
                return node
            if isinstance(node, ast.FunctionDef) and (caller := _called_in(source, node)) is not None:
                return caller
    return None


def _called_in(source: Source, function: ast.FunctionDef) -> ast.For | None:
    """The loop that calls a function which makes one step."""
    for call in source.calls(function.name):
        loop = next((node for node in source.around(call) if isinstance(node, ast.For)), None)
        if loop is not None:
            return loop
    return None


def _loader(source: Source, loop: ast.For) -> ast.expr:
    """What the loop goes over, without enumerate, tqdm and the like, also where those have a name of their own."""
    found = loop.iter
    while True:
        if isinstance(found, ast.Call) and last_name(found.func) in WRAPPERS and found.args:
            found = found.args[0]
            continue
        value = source.assigned(found.id) if isinstance(found, ast.Name) else None
        if isinstance(value, ast.Call) and last_name(value.func) in WRAPPERS and value.args:
            found = value.args[0]
            continue
        return found


def _loader_call(source: Source, loader: ast.expr) -> ast.Call | None:
    """The DataLoader that was made for this loop, also where its function gets it as an argument."""
    made = list(source.calls("DataLoader"))
    if isinstance(loader, ast.Call) and last_name(loader.func) in ("DataLoader", "loader"):
        return loader
    names = [last_name(loader)] if last_name(loader) else []
    for function in (node for node in source.around(loader) if isinstance(node, ast.FunctionDef)):
        parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if last_name(loader) in parameters:
            place = parameters.index(last_name(loader))
            for call in source.calls(function.name):
                given = keyword(call, last_name(loader)) or (call.args[place] if len(call.args) > place else None)
                names += [last_name(given)] if given is not None else []
    for name in reversed(names):
        value = source.assigned(name)
        if isinstance(value, ast.Call) and last_name(value.func) in ("DataLoader", "loader"):
            return value
    return made[0] if len(made) == 1 else None


def _slices(loader: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(samples, batch) of a loop over `range(0, SAMPLES, BATCH)`, which takes its batches by their places."""
    is_range = isinstance(loader, ast.Call) and last_name(loader.func) == "range" and len(loader.args) == 3
    return (loader.args[1], loader.args[2]) if isinstance(loader, ast.Call) and is_range else None


def _outer_loops(source: Source, loop: ast.For) -> Iterator[ast.For | ast.While]:
    """The loops around the loop, or around the call of its function, innermost first."""
    starts: list[ast.AST] = [loop]
    starts += [
        call for node in source.around(loop) if isinstance(node, ast.FunctionDef) for call in source.calls(node.name)
    ]
    for start in starts:
        for node in source.around(start):
            if isinstance(node, ast.For | ast.While):
                yield node


def _epochs(source: Source, loop: ast.For) -> ast.Call | None:
    """The `range(N)` or `mlcd.epochs(N)` of the loop around the loop, also inside tqdm and the like."""
    for outer in _outer_loops(source, loop):
        found = outer.iter if isinstance(outer, ast.For) else None
        while isinstance(found, ast.Call) and last_name(found.func) in WRAPPERS and found.args:
            found = found.args[0]
        if isinstance(found, ast.Call) and last_name(found.func) in ("range", "epochs"):
            return found
    return None


def _epoch_count(source: Source, call: ast.Call | None) -> int | None:
    """How many epochs `range(...)` or `mlcd.epochs(...)` gives, where the text says it."""
    if call is None:
        return None
    first = call.args[0] if call.args else None
    if last_name(call.func) == "epochs" and isinstance(first, ast.Call) and last_name(first.func) == "range":
        return _epoch_count(source, first)
    if len(call.args) == 1:
        return source.number(first)
    ends = [source.value(arg) for arg in call.args]
    if len(ends) != 2 or not isinstance(ends[0], int) or not isinstance(ends[1], int):
        return None
    return ends[1] - ends[0] if ends[1] > ends[0] else None


def _numbered(source: Source, loop: ast.For) -> tuple[list[Edit], list[str]]:
    """The edit that lets the epochs of an outer loop continue after a checkpoint, or a note that it is needed."""
    call, why = _epochs(source, loop), "epochs continue after a checkpoint"
    if call is not None and not call.keywords:
        plain = len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
        inner = source.segment(call.args[0]) if plain else source.segment(call)
        edit = _replaced(source, call, f"mlcd.epochs({inner})", why)
        if edit is not None:
            return [edit], []
    outer = next(_outer_loops(source, loop), None)
    if outer is None:
        return [], []
    again = f"line {outer.lineno}: this loop starts again after a checkpoint"
    return [], [f"{again}; write `for epoch in mlcd.epochs(N)`, which continues with the right epoch"]


def _optimizer(source: Source) -> tuple[str, str, ast.stmt | None]:
    """(model, optimizer, statement) of `optimizer = ...(model.parameters())`; "" for a model without a plain name."""
    for call in source.calls("parameters"):
        statement = source.statement(call)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        if not any(call in ast.walk(arg) for arg in statement.value.args) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            name = last_name(target) if isinstance(target, ast.Name) else ""
            return (call.func.value.id if name else ""), name, statement
    return "", "", None


def _shared_loader(source: Source, call: ast.Call, batch: ast.expr) -> str:
    if keyword(call, "sampler") is not None or keyword(call, "batch_sampler") is not None:
        return ""  # the user's own order of samples
    dataset = keyword(call, "dataset") or call.args[0]
    others = [f"{k.arg}={source.segment(k.value)}" for k in call.keywords if k.arg and k.arg not in _NOT_FOR_LOADER]
    parts = [source.segment(dataset), f"batch_size={source.segment(batch)}", *others]
    return f"mlcd.torch.loader({', '.join(parts)})"


def _loader_notes(source: Source, call: ast.Call) -> list[str]:
    """What mlcd.torch.loader does otherwise than the script's own DataLoader."""
    given = {
        "shuffle": keyword(call, "shuffle") or (call.args[2] if len(call.args) > 2 else None),
        "drop_last": keyword(call, "drop_last"),
    }
    done = {"shuffle": "shuffles every epoch", "drop_last": "drops an incomplete last batch"}
    differs = [
        f"{done[name]} (yours: {name}={'False' if value is None else source.segment(value)})"
        for name, value in given.items()
        if not _is_true(value)
    ]
    return [f"line {call.lineno}: mlcd.torch.loader {' and '.join(differs)}"] if differs else []


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _saves(source: Source, model: str) -> list[Edit]:
    """`torch.save(model.state_dict(), ...)` saves the model, not its wrapper."""
    found = []
    for call in source.calls("save"):
        for inner in ast.walk(call):
            if (
                isinstance(inner, ast.Call)
                and last_name(inner.func) == "state_dict"
                and isinstance(inner.func, ast.Attribute)
                and isinstance(inner.func.value, ast.Name)
                and inner.func.value.id == model
            ):
                edit = _replaced(source, inner.func.value, f"{model}.module", "without the wrapper for several nodes")
                found += [edit] if edit else []
    return found


def _replaced(source: Source, node: ast.expr, new: str, why: str = "each node its share of a batch") -> Edit | None:
    """The edit that replaces a node's text; None where it spans lines that hold something else in between."""
    first, last = node.lineno, node.end_lineno or node.lineno
    head = source.lines[first - 1].encode()[: node.col_offset].decode()
    tail = source.lines[last - 1].encode()[node.end_col_offset or 0 :].decode()
    if "#" in "".join(source.lines[first - 1 : last - 1]):
        return None
    return Edit(line=first, last=last, new=(f"{head}{new}{tail}",), why=why)
