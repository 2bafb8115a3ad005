"""`mlcd.knob("precision", "fp32")`: what mlcd chose for a knob. `mlcd.describe(...)`: what the script trains."""

from typing import TypeVar

from mlcd.errors import BadInput
from mlcd.training.arguments import check_count, check_number
from mlcd.training.training_progress import current_progress

Default = TypeVar("Default")


def knob(name: str, default: Default) -> str | int | float | Default:
    """The chosen value of the job file's knob `name`: text, a number, or True or False, as the file has it.

    `default` without mlcd, for a knob that the job file does not have, and where its `when` does not hold. Warns if the
    name is nearly that of a knob.
    """
    if not isinstance(name, str) or not name:
        raise BadInput(f"mlcd.knob: name: must be text (got {name!r})")
    found = current_progress().knob(name)
    return default if found is None else found


def describe(*, parameters: float, layers: int, hidden: int, heads: int, sequence: int) -> None:
    """Tell mlcd the sizes of the transformer that is trained: what fits into memory and what is fast follows from them.

    parameters  of the whole model, such as sum(p.numel() for p in model.parameters())
    hidden      width of the residual stream
    sequence    tokens of one sample

    Call it before the loop. Without mlcd it does nothing; sizes in the job file take precedence.
    """
    check_number("describe", "parameters", parameters)
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "sequence": sequence}
    for name, value in sizes.items():
        check_count("describe", name, value)
        if value is None or value < 1:
            raise BadInput(f"mlcd.describe: {name}: must be at least 1 (got {value!r})")
    if not 1 <= float(parameters) <= MOST_PARAMETERS:
        raise BadInput(f"mlcd.describe: parameters: must be from 1 to {MOST_PARAMETERS:g} (got {parameters!r})")
    current_progress().describe({"parameters": float(parameters), **{name: int(v) for name, v in sizes.items()}})


MOST_PARAMETERS = 1e15
