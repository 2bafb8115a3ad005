"""Generates parts of the docs from the product: `.venv/bin/python scripts/make_docs.py [--pictures]`.

docs/cli.md has the help texts, docs/reference/api.md the docstrings; src/mlcd/report/*.schema.json are the JSON Schemas
of the three results, made from their types; the tables between the marks in docs/output.md are their fields. With
--pictures, draws docs/images/demo.svg and its neighbours from the demo run, as `mlcd demo`, then `mlcd report RUN
--picture speed --out docs/images/demo.svg` do. Tests compare the pages with what this script generates.
"""

import ast
import inspect
import json
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import mlcd
from mlcd.cli.main import cli
from mlcd.report.as_json import schema
from mlcd.report.serverless_json import serverless_schema
from mlcd.report.serving_json import serving_schema
from mlcd.spec import template

DOCS = Path(__file__).parents[1] / "docs"
REPORT = Path(__file__).parents[1] / "src" / "mlcd" / "report"
SCHEMA_FILES = {"train": "result.schema.json", "serve": "serving.schema.json", "serverless": "serverless.schema.json"}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "train": schema(),
    "serve": serving_schema(),
    "serverless": serverless_schema(),
}


def cli_page() -> str:
    """docs/cli.md: the help text of every command."""
    parts = [
        "# Command line",
        "The help texts, written here by `scripts/make_docs.py`.",
        "For programs: [what `-o json` prints](output.md), [exit codes](exit-codes.md).",
    ]
    for path, text in _helps(cli, "mlcd", None):
        parts += [f"## {path}", f"```text\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


def _helps(command: click.Command, path: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    settings = {**command.context_settings, "terminal_width": 100}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, **settings)
    yield path, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _helps(below, f"{path} {name}", context)


def output_table(whole: Mapping[str, Any]) -> str:
    """The fields of a result from its schema, one row each."""
    lines = ["| field | type | meaning |", "|---|---|---|", *_rows(whole, whole, "")]
    return "\n".join(lines)


def _rows(node: Mapping[str, Any], whole: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, raw in node.get("properties", {}).items():
        field = {**_resolved(raw, whole), **raw}
        yield f"| `{prefix}{name}` | {_type(field)} | {field.get('description', '')} |"
        yield from _rows(field, whole, f"{prefix}{name}.")
        if "items" in field and isinstance(field["items"], Mapping):
            yield from _rows(_resolved(field["items"], whole), whole, f"{prefix}{name}[].")


def _resolved(node: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    for either in node.get("anyOf", ()):  # a value of that kind, or null
        if "$ref" in either:
            found = _resolved(either, whole)
            return {**found, "type": [found.get("type", "object"), "null"]}
    if "$ref" not in node:
        return node
    target: Any = whole
    for part in node["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return _resolved(target, whole)


def _type(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


API: Mapping[str, str] = {
    "mlcd": "What `import mlcd` has.",
    "mlcd.torch": "For PyTorch scripts.",
    "mlcd.keras": "For Keras and TensorFlow scripts.",
    "mlcd.events": "What an `observer` is called with.",
    "mlcd.errors": "What goes wrong, by what you can do about it.",
}
"""The modules of docs/reference/api.md, with a sentence on each."""


def api_page() -> str:
    """docs/reference/api.md: every public name with its signature and its docstring."""
    parts = [
        "# Python API",
        "Written from the docstrings by `scripts/make_docs.py`. With examples: [From Python](../python.md).",
    ]
    for module_name, sentence in API.items():
        parts += [f"## {module_name}", sentence]
        for name, value in _public(module_name):
            parts += [f"### {module_name}.{name}", *_described(name, value)]
    return "\n\n".join(parts) + "\n"


def _public(module_name: str) -> Iterator[tuple[str, object]]:
    """The functions and classes that a module offers, in its own order."""
    source = Path(mlcd.__file__).parent.joinpath(*module_name.split(".")[1:])
    if module_name in ("mlcd.torch", "mlcd.keras"):  # read, not imported: neither framework need be there
        yield from _read_public(source / "__init__.py")
        return
    module = import_module(module_name)
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name
    ]
    for name in names:
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or (module is mlcd and inspect.isfunction(value))):
            yield name, value


def _read_public(file: Path) -> Iterator[tuple[str, object]]:
    """The functions and classes of a package that its `__init__` names, from their source text."""
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    listed = {alias.name for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}
    for source in sorted(file.parent.glob("*.py")):
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in listed and source != file:
                yield node.name, node


def _described(name: str, value: object) -> Iterator[str]:
    if isinstance(value, ast.FunctionDef | ast.ClassDef):
        if isinstance(value, ast.FunctionDef):
            returns = f" -> {ast.unparse(value.returns)}" if value.returns else ""
            yield f"```python\n{name}({ast.unparse(value.args)}){returns}\n```"
        yield from _paragraphs(ast.get_docstring(value) or "")
        return
    if inspect.isfunction(value):
        yield f"```python\n{_signature(name, value)}\n```"
    yield from _paragraphs(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, Exception):
        rows = [
            f"| `{member}` | {(inspect.getdoc(found) or '').splitlines()[0].replace('|', '/')} |"
            for owner in value.__mro__
            if owner.__module__.startswith("mlcd")
            for member, found in vars(owner).items()
            if not member.startswith("_")
            and (inspect.isfunction(found) or isinstance(found, property | classmethod))
            and inspect.getdoc(found)
        ]
        if rows:
            yield "\n".join(["| | |", "|---|---|", *rows])


def _signature(name: str, value: Callable[..., object]) -> str:
    """One argument a line, with annotations as they are written."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise SystemExit(f"{name} is not a plain function")
    returns = ast.unparse(tree.returns) if tree.returns else "None"
    arguments = tree.args
    plain = ast.arguments(
        posonlyargs=arguments.posonlyargs,
        args=arguments.args,
        vararg=arguments.vararg,
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=arguments.defaults,
    )
    lines = [ast.unparse(plain)] if ast.unparse(plain) else []
    if arguments.kwonlyargs:
        lines.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        lines.append(ast.unparse(argument) + (f" = {ast.unparse(default)}" if default is not None else ""))
    if arguments.kwarg:
        lines.append(f"**{ast.unparse(arguments.kwarg)}")
    whole = f"{name}({', '.join(lines)}) -> {returns}"
    return whole if len(whole) < 100 else f"{name}(\n    " + ",\n    ".join(lines) + f",\n) -> {returns}"


def _paragraphs(text: str) -> Iterator[str]:
    """A docstring as Markdown; an aligned list of names and meanings becomes a table."""
    for paragraph in text.split("\n\n"):
        rows: list[list[str]] = []
        for line in paragraph.splitlines():
            found = re.match(r"(\S+(?:, \S+| \S+)*?) {2,}(\S.*)$", line)
            if found:
                rows.append([found.group(1), found.group(2)])
            elif rows and line.startswith("  "):
                rows[-1][1] += " " + line.strip()
            else:
                rows = []
                break
        if rows:
            cells = (f"| `{name}` | {meaning.replace('|', '/')} |" for name, meaning in rows)
            yield "\n".join(["| | |", "|---|---|", *cells])
        elif any(line.startswith(" ") for line in paragraph.splitlines()):
            yield f"```text\n{paragraph}\n```"
        else:
            yield paragraph


def schema_text(kind: str) -> str:
    """The JSON Schema of a kind's result, as in its file."""
    return json.dumps(SCHEMAS[kind], indent=2, ensure_ascii=False) + "\n"


def output_page(page: str) -> str:
    """docs/output.md with updated tables."""
    for kind, whole in SCHEMAS.items():
        begin, end = f"<!-- begin: scripts/make_docs.py {kind} -->", f"<!-- end: scripts/make_docs.py {kind} -->"
        before, _, rest = page.partition(begin)
        if not rest:
            raise SystemExit(f"docs/output.md has no place for {kind}")
        page = f"{before}{begin}\n\n{output_table(whole)}\n\n{end}{rest.partition(end)[2]}"
    return page


def draw_demo(images: Path) -> None:
    """The demo's pictures: speed over nodes, for the README, and the others for docs/report.md."""
    with tempfile.TemporaryDirectory() as home:
        result = mlcd.train(template(), home=home)
    result.plot("speed").save(images / "demo.svg")
    for name in ("map", "tradeoff", "money", "timeline"):
        result.plot(name).save(images / f"demo-{name}.svg")


def main(arguments: list[str]) -> None:
    """Write the pages, and the demo's pictures with --pictures."""
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")
    (DOCS / "reference" / "api.md").write_text(api_page(), encoding="utf-8")
    for kind, name in SCHEMA_FILES.items():
        (REPORT / name).write_text(schema_text(kind), encoding="utf-8")
    output = DOCS / "output.md"
    output.write_text(output_page(output.read_text(encoding="utf-8")), encoding="utf-8")
    if "--pictures" in arguments:
        draw_demo(DOCS / "images")


if __name__ == "__main__":
    main(sys.argv[1:])
