"""The script that a job's `run` names is looked for before any node is leased."""

import re
import shlex
from pathlib import Path, PurePosixPath

from mlcd.errors import nearest
from mlcd.scripts import read_saves
from mlcd.spec.train import TrainSpec

_PYTHON = re.compile(r"python[0-9.]*")
_LAUNCHERS = ("torchrun", "bash", "sh")
_PREFIXES = ("exec", "env", "time", "nohup")
_END_OF_COMMAND = re.compile(r"&&|\|\||[;|&\n]")
_SHELL = re.compile(r"[$*?~{}`<>()\[\]\\]")
"""Characters that the shell replaces: such a name is not known in advance."""
MOST_NAMED = 5
"""Files that a note names."""


def check_script(spec: TrainSpec, workdir: Path | None) -> None:
    """Raises SpecError if the first command of `run` starts a script that is not in `workdir`.

    Not where `setup` or `file_mounts` may bring it, and not for names that only the nodes know.
    """
    name = script_of(spec.run)
    if not name or spec.setup.strip() or spec.file_mounts:
        return
    if workdir is None:
        problem = f"is missing: `run` starts {name}, and only the files of this folder get to the nodes"
        raise spec.error("workdir", problem, allowed="such as workdir: . for the folder of the job file")
    if (workdir / name).exists():
        return
    here = [str(path.relative_to(workdir)) for path in sorted(workdir.glob(f"*{PurePosixPath(name).suffix}"))[:100]]
    near = nearest(name, here)
    hint = f"; did you mean {near}?" if near else ""
    raise spec.error("run", f"starts {name}, which is not in workdir ({workdir}){hint}", value=spec.run.strip()[:200])


def outputs_notes(spec: TrainSpec, workdir: Path | None) -> tuple[str, ...]:
    """A warning for a job without outputs, with what its script seems to save; () where it declares some."""
    if spec.outputs:
        return ()
    name = script_of(spec.run)
    is_here = workdir is not None and name.endswith(".py")
    saves = read_saves(workdir / name) if workdir is not None and is_here else ()
    inside = [save for save in saves if save.is_inside]
    if inside:
        files = ", ".join(save.path for save in inside[:MOST_NAMED])
        loss = f"{name}:{inside[0].line} saves {files}, which would be lost: write outputs: [{files}]"
        return (f"no outputs are declared, and {loss}",)
    unnamed = [save for save in saves if not save.path]
    if unnamed:
        return (f"no outputs are declared, and {name}:{unnamed[0].line} {unnamed[0]}, which would be lost",)
    return ("no outputs are declared: nothing is brought back from the training but its log",)


def script_of(run: str) -> str:
    """The relative path of the script that the first command starts; "" where there is none, or it is not plain."""
    first = _END_OF_COMMAND.split(run.strip().replace("\\\n", " "), maxsplit=1)[0]
    try:
        words = shlex.split(first, comments=True)
    except ValueError:
        return ""
    while words and (words[0] in _PREFIXES or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", words[0], re.DOTALL)):
        words = words[1:]
    name = _named_by(words)
    is_plain = name and not _SHELL.search(name) and not PurePosixPath(name).is_absolute()
    return name if is_plain and PurePosixPath(name).suffix in (".py", ".sh") else ""


def _named_by(words: list[str]) -> str:
    program = PurePosixPath(words[0]).name if words else ""
    if _PYTHON.fullmatch(program):
        rest = iter(words[1:])
        for word in rest:
            if word in ("-c", "-m"):
                return ""
            if word in ("-X", "-W"):
                next(rest, "")
            elif not word.startswith("-"):
                return word
        return ""
    if program in _LAUNCHERS:
        return "" if "-m" in words or "-c" in words else next((word for word in words[1:] if word.endswith(".py")), "")
    return words[0] if words and words[0].startswith("./") else ""
