"""The files that a script saves."""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from mlcd.scripts.reading import Source, keyword, last_name
from mlcd.scripts.script import Save
from mlcd.scripts.texts import UNKNOWN, text_of
from mlcd.untrusted import printable

SAVING = (
    "save",
    "save_model",
    "save_pretrained",
    "save_weights",
    "save_checkpoint",
    "save_file",
    "save_state",
    "savez",
)
"""Functions that write a file, whatever its name is."""
PERHAPS_SAVING = ("dump", "export", "savez_compressed")
"""Functions of these names also do other things: they count where the name of a file is plain."""
PATH_KEYWORDS = ("f", "file", "filename", "filepath", "path", "save_directory", "output_dir", "folder", "fp")
MOST_SAVES = 100
SHOWN_CHARACTERS = 60
_IN_MEMORY = ("BytesIO", "StringIO", "SpooledTemporaryFile", "TemporaryFile", "NamedTemporaryFile")


def saves_of(source: Source) -> tuple[Save, ...]:
    """What the script saves, in the order of its lines, each path once."""
    found: dict[str, Save] = {}
    for save in sorted(_saves(source), key=lambda save: save.line)[:MOST_SAVES]:
        found.setdefault(save.path or f"line {save.line}", save)
    return tuple(found.values())


def _saves(source: Source) -> Iterator[Save]:
    for call in source.calls(*SAVING, *PERHAPS_SAVING):
        name = last_name(call.func)
        given = [keyword(call, each) for each in PATH_KEYWORDS]
        paths = [each for each in given if each is not None] or list(call.args)
        if not paths:
            paths = _folder_of_trainer(source) if name == "save_model" else []
        if not paths or any(_is_in_memory(source, path) for path in paths):
            continue
        texts = [text for path in paths if (text := _plain(text_of(source, path)))]
        if texts:
            yield Save(line=call.lineno, path=texts[-1] if name != "savez" else texts[0])
        elif name in SAVING and not _is_told_by_caller(source, call):
            yield Save(line=call.lineno, expression=_shown(source.segment(_likeliest(call, paths))))


def _shown(text: str) -> str:
    return printable(" ".join(text.split()), most_characters=SHOWN_CHARACTERS)


def _plain(text: str) -> str:
    """The path, or the folder that is known of it; "" where not even that is."""
    known, hole, _ = text.partition(UNKNOWN)
    path = PurePosixPath(known.rpartition("/")[0] if hole else known)
    is_path = str(path).isprintable() and (path.parts or path.is_absolute())
    return str(path) if is_path else ""


def _likeliest(call: ast.Call, paths: list[ast.expr]) -> ast.expr:
    """The argument that is the path: `torch.save(thing, path)`, but `numpy.save(path, thing)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_numpy = isinstance(owner, ast.Name) and owner.id in ("np", "numpy", "jnp")
    return paths[0] if is_numpy or len(paths) == 1 else paths[1]


def _is_in_memory(source: Source, node: ast.expr) -> bool:
    value = source.assigned(node.id) if isinstance(node, ast.Name) else node
    return isinstance(value, ast.Call) and last_name(value.func) in _IN_MEMORY


def _is_told_by_caller(source: Source, call: ast.Call) -> bool:
    """Whether the call is in a function that itself is called like one that saves."""
    around = (node for node in source.around(call) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(node.name in SAVING for node in around)


def _folder_of_trainer(source: Source) -> list[ast.expr]:
    """`trainer.save_model()` saves into the folder of its arguments."""
    for call in source.calls("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"):
        folder = keyword(call, "output_dir") or (call.args[0] if call.args else None)
        if folder is not None:
            return [folder]
    return []
