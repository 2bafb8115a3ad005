"""Generates parts of the docs from the product: `.venv/bin/python scripts/make_docs.py [--pictures]`.

docs/cli.md has the help texts; src/mlcd/report/*.schema.json are the JSON Schemas of the three results, made from their
types; the tables between the marks in docs/output.md are the fields of those. With --pictures, draws
docs/images/demo.svg from the demo run, as `mlcd demo`, then `mlcd report RUN --picture speed --out
docs/images/demo.svg` do. Tests compare the pages with what this script generates.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
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


def draw_demo(file: Path) -> None:
    """The demo's picture: speed over nodes, with the search path."""
    with tempfile.TemporaryDirectory() as home:
        mlcd.train(template(), home=home).plot("speed").save(file)


def main(arguments: list[str]) -> None:
    """Write the pages, and the picture with --pictures."""
    (DOCS / "cli.md").write_text(cli_page(), encoding="utf-8")
    for kind, name in SCHEMA_FILES.items():
        (REPORT / name).write_text(schema_text(kind), encoding="utf-8")
    output = DOCS / "output.md"
    output.write_text(output_page(output.read_text(encoding="utf-8")), encoding="utf-8")
    if "--pictures" in arguments:
        draw_demo(DOCS / "images" / "demo.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
