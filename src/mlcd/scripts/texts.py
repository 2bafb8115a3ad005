"""The text that an expression of a script is, as far as the script says it."""

import ast
import re

from mlcd.scripts.reading import Source, keyword, last_name

UNKNOWN = "\0"
"""Stands in a text for a part that the script does not say."""
MOST_CHARACTERS = 1_000
"""A longer text is no path that somebody wrote."""
DEPTH = 8
"""Names, calls and operators that are followed from one expression."""
_HOLES = re.compile(r"%[-+ #0-9.]*[a-zA-Z]")
_FIELDS = re.compile(r"\{[^{}]*\}")
_SAME = ("str", "Path", "PurePath", "PosixPath", "fspath", "abspath", "expanduser", "resolve", "as_posix", "absolute")
"""Functions and methods that return the path that they get."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def text_of(source: Source, node: ast.expr | None, depth: int = DEPTH) -> str:
    """The text, with UNKNOWN for each part that is not plain; UNKNOWN alone if nothing is."""
    if node is None or depth <= 0:
        return UNKNOWN
    found = _text(source, node, depth - 1)
    return found if len(found) <= MOST_CHARACTERS else UNKNOWN


def _text(source: Source, node: ast.expr, depth: int) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else UNKNOWN
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text_of(source, part.value, depth) if isinstance(part, ast.FormattedValue) else text_of(source, part, depth)
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return _joined(source, node, depth)
    if isinstance(node, ast.Name):
        return _named(source, node, depth)
    if isinstance(node, ast.Attribute):
        return _attribute(source, node, depth)
    if isinstance(node, ast.Subscript):
        return _item(source, node, depth)
    return _call(source, node, depth) if isinstance(node, ast.Call) else UNKNOWN


def _joined(source: Source, node: ast.BinOp, depth: int) -> str:
    left = text_of(source, node.left, depth)
    if isinstance(node.op, ast.Mod):
        return _HOLES.sub(UNKNOWN, left)
    if isinstance(node.op, ast.Add | ast.Div):
        return left + ("/" if isinstance(node.op, ast.Div) else "") + text_of(source, node.right, depth)
    return UNKNOWN


def _call(source: Source, call: ast.Call, depth: int) -> str:
    name, args = last_name(call.func), call.args
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in ("join", "joinpath"):
        parts = [owner, *args] if name == "joinpath" else args
        return "/".join(text_of(source, part, depth) for part in parts)
    if name in ("Path", "PurePath") and len(args) > 1:
        return "/".join(text_of(source, part, depth) for part in args)
    if name in _SAME:
        return text_of(source, args[0] if args else owner, depth)
    if name == "format" and owner is not None:
        return _FIELDS.sub(UNKNOWN, text_of(source, owner, depth))
    if name in ("get", "getenv") and len(args) == 2:  # os.environ.get("OUT", "model.pt")
        return text_of(source, args[1], depth)
    if name == "open":
        is_function = isinstance(call.func, ast.Name)
        return text_of(source, (args[0] if args else keyword(call, "file")) if is_function else owner, depth)
    return UNKNOWN


def _named(source: Source, name: ast.Name, depth: int) -> str:
    """The only value that the name gets, first in its own function, then at the top of the script."""
    around = [node for node in source.around(name) if isinstance(node, _Function)]
    for home in (*around, None):
        values = source.values(name.id, home)
        if len(values) == 1:
            return text_of(source, values[0], depth)
        if values:
            return UNKNOWN
        if home is not None and name.id in _parameters(home):
            return _parameter(source, home, name.id, depth)
    return UNKNOWN


def _parameters(function: _Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _parameter(source: Source, function: _Function, name: str, depth: int) -> str:
    """What the function's only caller gives, else the default of its option (click, typer) or of the parameter."""
    place = _parameters(function).index(name)
    calls = [call for call in source.calls(function.name) if function not in source.around(call)]
    given = [keyword(call, name) or (call.args[place] if len(call.args) > place else None) for call in calls]
    given = [each for each in given if each is not None]
    if given:
        texts = {text_of(source, each, depth) for each in given}
        return texts.pop() if len(texts) == 1 else UNKNOWN
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and name in _option_names(decorator):
            return text_of(source, keyword(decorator, "default"), depth)
    default = _default(function, name)
    if isinstance(default, ast.Call) and last_name(default.func) in ("Option", "Argument"):
        default = default.args[0] if default.args else keyword(default, "default")
    return text_of(source, default, depth)


def _default(function: _Function, name: str) -> ast.expr | None:
    given = function.args
    plain = [each.arg for each in (*given.posonlyargs, *given.args)]
    first = len(plain) - len(given.defaults)
    if name in plain:
        return given.defaults[plain.index(name) - first] if plain.index(name) >= first else None
    return given.kw_defaults[[each.arg for each in given.kwonlyargs].index(name)]


def _option_names(call: ast.Call) -> set[str]:
    """The names under which an option of argparse or click is found later."""
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    own = keyword(call, "dest")
    if isinstance(own, ast.Constant) and isinstance(own.value, str):
        return {own.value}
    return {text.lstrip("-").replace("-", "_") for text in texts}


def _attribute(source: Source, node: ast.Attribute, depth: int) -> str:
    """`args.out`: the default of argparse's option, the field of a class, or the only value given to `....out`."""
    for call in source.calls("add_argument"):
        if node.attr in _option_names(call):
            return text_of(source, keyword(call, "default"), depth)
    values = source.attribute_values(node.attr)
    if len(values) != 1:
        return UNKNOWN
    value = values[0]
    if isinstance(value, ast.Call) and last_name(value.func) in ("field", "Field"):
        value = keyword(value, "default") or (value.args[0] if value.args else value)
    return text_of(source, value, depth)


def _item(source: Source, node: ast.Subscript, depth: int) -> str:
    """`config["out"]` of a dictionary in the text."""
    key = node.slice
    owner = source.assigned(node.value.id) if isinstance(node.value, ast.Name) else None
    if not isinstance(owner, ast.Dict) or not isinstance(key, ast.Constant):
        return UNKNOWN
    for name, value in zip(owner.keys, owner.values, strict=True):
        if isinstance(name, ast.Constant) and name.value == key.value:
            return text_of(source, value, depth)
    return UNKNOWN
