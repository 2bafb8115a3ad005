"""Scripts whose loop belongs to a library, which takes a callback: Hugging Face's Trainer, Lightning, Keras."""

import ast
from pathlib import Path

from mlcd.scripts.edits import import_edit, outside_notes, with_inserted
from mlcd.scripts.reading import Source, keyword, last_name
from mlcd.scripts.saves import saves_of
from mlcd.scripts.script import Edit, Framework, TrainingScript

ADDED = {
    Framework.HUGGING_FACE: ("mlcd.torch.TrainerProgress", "{trainer}.add_callback({callback}())"),
    Framework.LIGHTNING: ("mlcd.torch.LightningProgress", "{trainer}.callbacks.append({callback}())"),
}
"""The callback of each library, and the line that adds it to a trainer that was made."""


def library_script(path: Path, source: Source) -> TrainingScript | None:
    """The script, if one of the libraries trains in it."""
    trainers = [
        node for node in source.nodes if isinstance(node, ast.Call) and last_name(node.func).endswith("Trainer")
    ]
    if trainers and source.imported & {"transformers", "trl"}:
        return _with_trainer(path, source, trainers[0], Framework.HUGGING_FACE)
    if trainers and source.imported & {"lightning", "pytorch_lightning"}:
        return _with_trainer(path, source, trainers[0], Framework.LIGHTNING)
    fits = [call for call in source.calls("fit") if isinstance(call.func, ast.Attribute)]
    if fits and source.imported & {"tensorflow", "keras", "tf_keras"}:
        return _with_fit(path, source, fits[0])
    return None


def _with_trainer(path: Path, source: Source, call: ast.Call, framework: Framework) -> TrainingScript:
    callback, line = ADDED[framework]
    ready = any(source.calls(callback.rpartition(".")[2]))
    arguments = next(source.calls("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"), None)
    edits: list[Edit] = []
    saves = saves_of(source)
    notes = outside_notes(saves)
    if framework is Framework.HUGGING_FACE:
        share = None if arguments is None else keyword(arguments, "per_device_train_batch_size")
        batch = source.number(share)
        epochs = source.number(None if arguments is None else keyword(arguments, "num_train_epochs"))
        if not ready and share is not None and share.lineno == share.end_lineno and "share_of_batch" not in source.text:
            edits.append(_replaced(source, share, f"mlcd.share_of_batch({source.segment(share)})"))
    else:
        loader = next(source.calls("DataLoader"), None)
        batch = source.number(None if loader is None else keyword(loader, "batch_size"))
        epochs = source.number(keyword(call, "max_epochs"))
        if not ready and keyword(call, "num_nodes") is None:
            notes.append(
                'several nodes need Trainer(num_nodes=int(os.environ.get("MLCD_NUM_NODES", 1)), strategy="ddp")'
            )
    statement = source.statement(call)
    if not ready:
        name = _assigned_name(statement, call)
        if name:
            after = (statement.end_lineno or statement.lineno) + 1
            new = source.indent(statement) + line.format(trainer=name, callback=callback)
            edits.append(Edit(line=after, last=after - 1, new=(new,), why="mlcd counts the steps"))
        else:
            notes.append(f"line {call.lineno}: add callbacks=[{callback}()] to the Trainer")
        modules = ("mlcd", "mlcd.torch") if any("share_of_batch" in text for e in edits for text in e.new) else ()
        edits.append(import_edit(source, modules or ("mlcd.torch",)))
    return TrainingScript(
        path=path,
        source=source.text,
        framework=framework,
        line=call.lineno,
        edits=with_inserted(edits),
        notes=tuple(notes),
        batch=batch,
        epochs=epochs,
        saves=saves,
        is_ready=ready,
        keeps_work=True,
        several_nodes=framework is Framework.HUGGING_FACE or keyword(call, "num_nodes") is not None,
    )


def _with_fit(path: Path, source: Source, call: ast.Call) -> TrainingScript:
    ready = "mlcd" in source.imported and any(source.calls("Progress"))
    size = keyword(call, "batch_size")
    batch = source.number(size)
    edits: list[Edit] = []
    saves = saves_of(source)
    notes = outside_notes(saves)
    callback = f"mlcd.keras.Progress({'' if size is None else f'batch_size={source.segment(size)}'})"
    if not ready and keyword(call, "callbacks") is None:
        last = call.end_lineno or call.lineno
        text = source.lines[last - 1].encode()
        end = (call.end_col_offset or 0) - 1
        head, tail = text[:end].decode(), text[end:].decode()
        before = "\n".join([*source.lines[: last - 1], head]).rstrip()
        comma = "" if before.endswith((",", "(")) else ", "
        edits.append(
            Edit(line=last, last=last, new=(f"{head}{comma}callbacks=[{callback}]{tail}",), why="counts steps")
        )
        edits.append(import_edit(source, ("mlcd.keras",)))
    elif not ready:
        notes.append(f"line {call.lineno}: add {callback} to callbacks, and import mlcd.keras")
        edits.append(import_edit(source, ("mlcd.keras",)))
    return TrainingScript(
        path=path,
        source=source.text,
        framework=Framework.TENSORFLOW,
        line=call.lineno,
        edits=with_inserted(edits),
        notes=tuple(notes),
        batch=batch,
        epochs=source.number(keyword(call, "epochs")),
        saves=saves,
        is_ready=ready,
        keeps_work=True,
        several_nodes="distribute" in source.text,
    )


def _assigned_name(statement: ast.stmt, call: ast.Call) -> str:
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    return ""


def _replaced(source: Source, node: ast.expr, new: str) -> Edit:
    text = source.lines[node.lineno - 1].encode()
    line = text[: node.col_offset].decode() + new + text[node.end_col_offset or 0 :].decode()
    return Edit(line=node.lineno, last=node.lineno, new=(line,), why="each node its share of a batch")
