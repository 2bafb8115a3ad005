"""The script and the program that a command starts are looked for before any node is leased or server started."""

import re
import shlex
import shutil
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
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=.*", re.DOTALL)
_USUAL_PROGRAMS = ("python", "python3", "torchrun", "accelerate", "deepspeed", "mpirun", "uv", "bash", "vllm", "conda")
_BUILT_INS = frozenset(
    [
        ":",
        ".",
        "[",
        "[[",
        "{",
        "!",
        "alias",
        "bg",
        "break",
        "builtin",
        "case",
        "cd",
        "command",
        "continue",
        "declare",
        "dirs",
        "disown",
        "do",
        "echo",
        "enable",
        "eval",
        "exit",
        "export",
        "false",
        "fg",
        "for",
        "function",
        "getopts",
        "hash",
        "if",
        "jobs",
        "let",
        "local",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "test",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    ]
)
"""What shells do themselves: no program of that name has to be there."""
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


def missing_program(command: str, *, path: str) -> str:
    """That the first command starts a program that is not on `path`; "" if it is there or cannot be told in advance."""
    words = _first_words(command)
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.fullmatch(words[0])):
        if words[0].startswith("PATH="):
            return ""
        words = words[1:]
    name = words[0] if words else ""
    is_told = name and name not in _BUILT_INS and not name.startswith("-") and not _SHELL.search(name)
    if not is_told or ("/" in name and not name.startswith("/")) or shutil.which(name, path=path):
        return ""
    near = nearest(name, [each for each in _USUAL_PROGRAMS if shutil.which(each, path=path)])
    if name.endswith(".py"):
        near = f"python {name}"
    hint = f"; did you mean {near}?" if near else ""
    return f"starts {name}, which is not installed on this machine{'' if '/' in name else ' (not on PATH)'}{hint}"


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
    words = _first_words(run)
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.fullmatch(words[0])):
        words = words[1:]
    name = _named_by(words)
    is_plain = name and not _SHELL.search(name) and not PurePosixPath(name).is_absolute()
    return name if is_plain and PurePosixPath(name).suffix in (".py", ".sh") else ""


def _first_words(run: str) -> list[str]:
    """The words of the first command; [] if its quotes do not match."""
    first = _END_OF_COMMAND.split(run.strip().replace("\\\n", " "), maxsplit=1)[0]
    try:
        return shlex.split(first, comments=True)
    except ValueError:
        return []


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
