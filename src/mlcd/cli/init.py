import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcd.cli.complete import complete_templates
from mlcd.cli.examples import examples
from mlcd.cli.output import FilePath, output_option, print_json, print_text, table, writable, write_file
from mlcd.errors import BadInput, nearest
from mlcd.untrusted import printable

if TYPE_CHECKING:
    from mlcd.scripts import TrainingScript

DIFF_CHARACTERS = 100_000
OF_SCRIPTS = ("pytorch", "huggingface", "lightning", "tensorflow", "aws", "slurm", "kubernetes")
"""Templates of jobs that run a script of the user."""

MEANT_TEMPLATES = {
    "hf": "huggingface",
    "hugging-face": "huggingface",
    "trainer": "huggingface",
    "torch": "pytorch",
    "pl": "lightning",
    "tf": "tensorflow",
    "keras": "tensorflow",
    "k8s": "kubernetes",
    "gcp": "aws",
    "azure": "aws",
    "onnx": "serve",
    "llm": "vllm",
    "llama.cpp": "llamacpp",
    "lambda": "serverless",
    "sim": "simulated",
}
"""Other words for a template."""


@click.command(
    epilog=examples(
        "mlcd init",
        "mlcd init --list",
        "mlcd init -t pytorch",
        "mlcd init -t huggingface --edit",
        "mlcd init big.yaml -t aws --script train.py",
    )
)
@click.argument("file", type=FilePath(), default=Path("job.yaml"))
@click.option(
    "-t",
    "--template",
    "kind",
    metavar="NAME",
    shell_complete=complete_templates,
    help="Which template; --list shows them.",
)
@click.option(
    "--script", metavar="FILE.py", type=FilePath(), help="The script that trains; by default it is looked for."
)
@click.option("--edit", is_flag=True, help="Add mlcd's lines to the script; the old one is kept as FILE.py.orig.")
@click.option("--list", "show_list", is_flag=True, help="List the templates and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@output_option
def init(
    *,
    file: Path,
    kind: str | None,
    script: Path | None,
    edit: bool,
    show_list: bool,
    force: bool,
    output: str,
) -> None:
    """Write a commented job file to start from.

    FILE is job.yaml by default. Without a template, the job runs unchanged on a simulated cloud. Templates for your own
    script look for it in this folder, read batch, epochs and outputs from it, and show the lines to add.
    """
    from mlcd.spec import TEMPLATES, template

    if show_list:
        _list(output)
        return
    kind = _checked(kind, script=script, edit=edit)
    if file.suffix.lower() == ".py":
        raise BadInput(f"{file} is a script, and FILE is the job file to write: mlcd init -t pytorch --script {file}")
    kept = edit and not force and writable(file).exists()
    if writable(file).exists() and not force and not kept:
        raise BadInput(f"{file} already exists: give --force to overwrite it, or another name")
    others: tuple[TrainingScript, ...] = ()
    found: TrainingScript | None = None
    if kind in OF_SCRIPTS:
        found, others = _script(kind, script, file.absolute().parent)
    model = _model(kind, file.absolute().parent)
    values = _values(found, file.absolute().parent) if kind in OF_SCRIPTS else model
    name = _name(file, kind, found, model)
    original = _copy_of(found) if found is not None and edit and found.edits else None
    if not kept:
        write_file(file, template(name, kind, **values))
    if found is not None and original is not None:
        write_file(original, found.source)
        write_file(found.path, found.edited)
    command = f"mlcd {TEMPLATES[kind].command} {file}"
    if output == "json":
        print_json(_json(file, kind, command, found, edited=edit, kept=kept))
    else:
        _print(file, kind, command, found, others, edited=edit, kept=kept)


def _checked(kind: str | None, *, script: Path | None, edit: bool) -> str:
    """The template's name. Raises BadInput for an unknown one, or for options that it has no use for."""
    from mlcd.spec import TEMPLATES

    if kind is None and script is not None:
        from mlcd.scripts import read_script

        return read_script(script).framework.value
    kind = "simulated" if kind is None else kind
    if kind.lower() in TEMPLATES:
        kind = kind.lower()
    if kind not in TEMPLATES:
        near = MEANT_TEMPLATES.get(kind.lower()) or nearest(kind.lower(), tuple(TEMPLATES))
        hint = f"; did you mean {near!r}?" if near else ""
        raise BadInput(f"--template: unknown template (got {kind!r}); allowed: {', '.join(TEMPLATES)}{hint}")
    for option, is_given in (("--script", script is not None), ("--edit", edit)):
        if is_given and kind not in OF_SCRIPTS:
            raise BadInput(f"{option}: the template {kind} runs no script; it is for {', '.join(OF_SCRIPTS)}")
    return kind


def _script(kind: str, script: Path | None, folder: Path) -> "tuple[TrainingScript | None, tuple[TrainingScript, ...]]":
    """The script that trains, if one is found, and others that could be meant."""
    from mlcd.scripts import Framework, find_scripts, read_script

    if script is not None:
        found = read_script(script)
        frameworks = tuple(Framework)
        if kind in frameworks and found.framework != kind:
            raise BadInput(
                f"--script: {script} trains with {found.framework} (line {found.line}), not with {kind}; give"
                f" --template {found.framework}"
            )
        return found, ()
    scripts = find_scripts(folder)
    fitting = tuple(each for each in scripts if kind not in tuple(Framework) or each.framework == kind)
    return (fitting[0], fitting[1:]) if fitting else (None, scripts)


def _values(script: "TrainingScript | None", folder: Path) -> dict[str, str]:
    """What the template gets from the script."""
    if script is None:
        return {}
    path = script.path.absolute()
    found = {"SCRIPT": _word(str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path))}
    for name, value in (("BATCH", script.batch), ("EPOCHS", script.epochs), ("SAMPLES", script.samples)):
        if value is not None:
            found[name] = str(value)
    if script.several_nodes:
        found["NODES"] = "1..4"
    if script.keeps_work:
        found["CHECKPOINTS"] = "true"
    if script.outputs or not script.unnamed_saves:
        found["OUTPUTS"] = f"[{', '.join(_quoted(name) for name in script.outputs)}]"
    return found


USUAL_NAMES = ("", "job", "train", "training", "main", "run", "script", "model", "finetune", "fit", "serve", "serving")
"""Names of files that say nothing about the job."""


def _name(file: Path, kind: str, script: "TrainingScript | None", model: Mapping[str, str]) -> str | None:
    """The job's name: that of its file, its script, its model or its folder; None for the template's own."""
    candidates = [file.stem]
    if kind not in ("simulated", "serverless"):  # those run a job that the template describes
        candidates += [script.path.stem] if script is not None else []
        candidates += [Path(each.strip("'")).stem for each in model.values()]
        candidates.append(file.absolute().parent.name)
    slugs = (re.sub(r"[^A-Za-z0-9._-]+", "-", each).strip("-._")[:80] for each in candidates)
    return next((slug for slug in slugs if slug.lower() not in USUAL_NAMES), None)


def _copy_of(script: "TrainingScript") -> Path:
    """Where the old script is kept. Raises BadInput where something is there, which may be a link to elsewhere."""
    path = script.path.with_name(f"{script.path.name}.orig")
    if os.path.lexists(path):
        raise BadInput(f"{_shown(path)} already exists: --edit keeps the old script there; move it away")
    return path


def _word(path: str) -> str:
    """A path as a word of the command in `run`. Raises BadInput for one that a line of a job file cannot hold."""
    if not path.isprintable() or " #" in path or ": " in path:
        raise BadInput(f"--script: {path!r} cannot be written in a job file: rename it")
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", name) else f"'{name.replace(chr(39), 2 * chr(39))}'"


def _model(kind: str, folder: Path) -> dict[str, str]:
    """The only ONNX file of the folder, for the template `serve`."""
    models = sorted(folder.glob("*.onnx")) if kind == "serve" else []
    return {"MODEL": _quoted(models[0].name)} if len(models) == 1 else {}


def _list(output: str) -> None:
    from mlcd.spec import TEMPLATES

    if output == "json":
        print_json(
            {"templates": [{"name": name, "command": t.command, "what": t.what} for name, t in TEMPLATES.items()]}
        )
        return
    rows = [["template", "for", "what it is"]]
    rows += [[name, f"mlcd {each.command}", each.what] for name, each in TEMPLATES.items()]
    click.echo(table(rows, "<<<"))
    print_text("", "Write one with: mlcd init --template NAME")


def _print(
    file: Path,
    kind: str,
    command: str,
    script: "TrainingScript | None",
    others: "tuple[TrainingScript, ...]",
    *,
    edited: bool,
    kept: bool,
) -> None:
    from mlcd.scripts import find_scripts

    lines: list[str] = []
    if kind == "simulated":
        lines.append(f"Wrote {file}. It runs as it is, on a simulated cloud: {command}")
        if scripts := find_scripts(file.absolute().parent):
            first = scripts[0]
            name = _shown(first.path)
            lines.append(
                f"{name} trains with {first.framework}. For a job that runs it: mlcd init -t {first.framework}"
            )
        else:
            lines.append("For your own script: mlcd init --list")
        print_text(*lines)
        return
    lines.append(f"{file} is left as it is (--force overwrites it)." if kept else f"Wrote {file}.")
    if kind in OF_SCRIPTS and script is None:
        lines.append(_no_script(kind, others))
    if script is not None:
        lines += _about(script, others, edited=edited)
    print_text(*lines)
    if script is not None and script.edits and not edited:
        diff = replace(script, path=Path(_shown(script.path))).diff().rstrip("\n")
        click.echo(f"\n{printable(diff, most_characters=DIFF_CHARACTERS)}\n")
        print_text(f"To make these changes: mlcd init -t {kind} --edit, or your editor.")
    print_text(*_next_steps(file, kind, command, script, kept=kept))


def _no_script(kind: str, others: "tuple[TrainingScript, ...]") -> str:
    if others:
        first = others[0]
        return (
            f"No script here trains with {kind}; {_shown(first.path)} trains with {first.framework}: mlcd init -t"
            f" {first.framework}. `run` in the job file names train.py: change it."
        )
    return (
        "No script with a training loop was found here. `run` in the job file names train.py: change it, or give"
        " --script FILE.py."
    )


def _about(script: "TrainingScript", others: "tuple[TrainingScript, ...]", *, edited: bool) -> list[str]:
    where = f"{_shown(script.path)}:{script.line}"
    what = "Its training loop" if script.framework == "pytorch" else f"The training ({script.framework})"
    lines = [f"{what} is at {where}."]
    if others:
        lines.append(f"Others that train: {', '.join(_shown(each.path) for each in others[:5])} (--script FILE.py).")
    if script.is_ready:
        lines.append("It reports to mlcd already.")
    elif edited:
        lines.append(f"Added mlcd's lines; the old script is {_shown(script.path)}.orig. By hand it runs as before.")
    lines += [f"Note: {note}." for note in script.notes]
    lines += [f"Note: {_shown(script.path)}:{save.line} {save}." for save in script.unnamed_saves]
    if not script.saves:
        lines.append("Note: no line that saves a file was found: `outputs` is empty, so nothing is brought back.")
    if script.edits and not edited and not script.is_ready:
        lines.append("Lines to add (by hand, without mlcd, the script runs as before):")
    return lines


LIBRARIES = {
    "pytorch": ("torch",),
    "huggingface": ("transformers",),
    "lightning": ("lightning", "pytorch_lightning"),
    "tensorflow": ("tensorflow", "keras"),
}
"""Templates of jobs on this machine -> the package that their script needs, under any of its names."""


def _lacks(kind: str) -> list[str]:
    """What to do where the Python that would run the script has not its library."""
    if kind not in LIBRARIES or any(find_spec(name) for name in LIBRARIES[kind]):
        return []
    name = LIBRARIES[kind][0]
    here = f"{name} is not installed in the Python that mlcd runs with ({sys.executable})"
    return [f"{here}: install it there, or name the Python that has it in `run`, with its full path."]


def _next_steps(file: Path, kind: str, command: str, script: "TrainingScript | None", *, kept: bool) -> list[str]:
    steps = []
    unknown = ["job.samples (of one epoch)"] if script is None or script.samples is None else []
    unknown += ["job.epochs"] if script is None or script.epochs is None else []
    unknown = [] if kind in ("huggingface", "lightning") else unknown  # their Trainer tells how much there is
    unknown += ["job.batch"] if script is None or script.batch is None else []
    unknown += ["outputs"] if script is None or (script.unnamed_saves and not script.outputs) else []
    if kind in OF_SCRIPTS and not kept and unknown:
        steps.append(f"CHANGE THIS in {file}: {', '.join(unknown)}; the script does not say it plainly.")
    if kind == "slurm":
        steps.append(f"Write your partitions and their prices into {file}.")
    if kind == "serve":
        steps.append(f"Check `model` in {file}.")
    steps += _lacks(kind)
    return [*steps, f"Then look: {command} --dry-run", f"Then run:  {command}"]


def _shown(path: Path) -> str:
    """The path relative to the current folder, where it is in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _json(
    file: Path, kind: str, command: str, script: "TrainingScript | None", *, edited: bool, kept: bool
) -> dict[str, object]:
    made: dict[str, object] = {"file": str(file), "file_is_kept": kept, "template": kind, "command": command}
    if script is not None:
        made["script"] = {
            "file": _shown(script.path),
            "framework": script.framework.value,
            "line": script.line,
            "reports_already": script.is_ready,
            "edited": edited and bool(script.edits),
            "batch": script.batch,
            "epochs": script.epochs,
            "samples": script.samples,
            "outputs": list(script.outputs),
            "unnamed_saves": [save.line for save in script.unnamed_saves],
            "notes": list(script.notes),
            "edits": [
                {"line": e.line, "replaces_lines": e.last - e.line + 1, "new": list(e.new), "why": e.why}
                for e in script.edits
            ],
        }
    return made
