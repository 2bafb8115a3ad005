"""The job files that `mlcd init` writes: one file each in `templates/`, with names in capitals to be filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from mlcd.spec.node import YamlNode
from mlcd.spec.parse import job_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One kind of job file.

    command  the command that runs it
    name     the job's name where the user gives none
    what     in a few words, for the list
    fills    the names in capitals with the values they have where nothing better is known
    """

    command: str
    name: str
    what: str
    fills: Mapping[str, str] = field(default_factory=dict)


_SCRIPT = {
    "SCRIPT": "train.py",
    "SAMPLES": "50000",
    "EPOCHS": "10",
    "BATCH": "64",
    "NODES": "1",
    "CHECKPOINTS": "false",
    "OUTPUTS": "[]",
}
_SEVERAL = {**_SCRIPT, "NODES": "1..4"}

TEMPLATES: Mapping[str, Template] = {
    "simulated": Template(
        command="train", name="resnet-imagenet", what="a training on a simulated AWS: runs as it is and costs nothing"
    ),
    "pytorch": Template(command="train", name="my-training", what="your own PyTorch script", fills=_SCRIPT),
    "huggingface": Template(
        command="train", name="my-training", what="a script with Hugging Face's Trainer", fills=_SEVERAL
    ),
    "lightning": Template(command="train", name="my-training", what="a script with Lightning's Trainer", fills=_SCRIPT),
    "tensorflow": Template(
        command="train", name="my-training", what="your own TensorFlow or Keras script", fills=_SCRIPT
    ),
    "aws": Template(command="train", name="my-training", what="your script on AWS, through SkyPilot", fills=_SCRIPT),
    "slurm": Template(command="train", name="my-training", what="your script on a Slurm cluster", fills=_SCRIPT),
    "kubernetes": Template(
        command="train", name="my-training", what="your script on Kubernetes, through SkyPilot", fills=_SCRIPT
    ),
    "serve": Template(
        command="serve",
        name="my-model",
        what="how to serve an ONNX model on this machine",
        fills={"MODEL": "model.onnx"},
    ),
    "vllm": Template(command="serve", name="my-llm", what="a language model served by vLLM"),
    "sglang": Template(command="serve", name="my-llm", what="a language model served by SGLang"),
    "tgi": Template(command="serve", name="my-llm", what="a language model served by Text Generation Inference"),
    "llamacpp": Template(command="serve", name="my-llm", what="a language model served by llama.cpp"),
    "triton": Template(command="serve", name="my-llm", what="a language model served by Triton with its vLLM backend"),
    "transformers": Template(command="serve", name="my-llm", what="a language model served by transformers serve"),
    "serverless": Template(
        command="serverless", name="my-functions", what="a training on functions: simulated, runs as it is"
    ),
}
"""By name, in the order in which `mlcd init --list` shows them."""

MARK = re.compile(r"\.? CHANGE THIS")
"""Ends the comment of a value that only the user knows; removed where it was found."""


def marked(text: str) -> tuple[tuple[int, str], ...]:
    """(line, field) of each value of a job file that is still marked CHANGE THIS."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        code, _, comment = line.partition("#")
        if MARK.search(f" {comment}") and code.strip():
            found.append((number, code.partition(":")[0].strip()))
    return tuple(found)


def mark_notes(file: str, text: str) -> tuple[str, ...]:
    """A note for each value of a job file with this text that is still marked CHANGE THIS."""
    return tuple(f"{file}:{line}: {name} is still marked CHANGE THIS: check it" for line, name in marked(text))


def template(name: str | None = None, kind: str = "simulated", **found: str) -> str:
    """A commented job file of this kind for a job called `name`.

    found  values for the names in capitals (`SCRIPT="train.py"`) that the template has; others are ignored. "": the
           line of that name is not needed

    Raises SpecError if `name` is not a valid job name, KeyError for an unknown kind.
    """
    known = TEMPLATES[kind]
    name = known.name if name is None else name
    values = {**known.fills, "NAME": job_name(YamlNode(value=name, path="name", written=name))}
    values.update((key, value) for key, value in found.items() if key in known.fills)
    text = files("mlcd.spec").joinpath(f"templates/{kind}.yaml").read_text(encoding="utf-8")
    return "".join(_filled(line, values, found) for line in text.splitlines(keepends=True))


_INSTEAD = {"SAMPLES": "  # how much work there is, the script tells: mlcd.epochs(N) times the samples of its loader\n"}
"""What stands in place of a line that is not needed."""


def _filled(line: str, values: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The line with its values; its comment stays in its column where there is room."""
    if line.startswith("#"):
        return line
    code, mark, comment = line.partition("  #")
    names = re.findall(r"\b[A-Z]+\b", code)
    if any(values.get(each) == "" for each in names):
        return "".join(_INSTEAD.get(each, "") for each in names)
    code = re.sub(r"\b[A-Z]+\b", lambda match: values.get(match[0], match[0]), code)
    if mark and any(each in found for each in names):
        comment = MARK.sub("", comment)
    width = len(line.partition("  #")[0])
    return code.rstrip().ljust(width) + mark + comment if comment.strip() else f"{code.rstrip()}\n"
