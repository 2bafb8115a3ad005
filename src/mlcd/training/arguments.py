"""Checks of a training script's arguments; each raises BadInput that names the call and the argument."""

from collections.abc import Iterable
from typing import SupportsIndex

from mlcd.errors import BadInput


def check_count(call: str, name: str, value: SupportsIndex | None) -> None:
    """Raises BadInput unless `value` is a whole number or None."""
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
        raise _wrong(call, name, "must be a whole number", value)


def check_epochs(call: str, value: int | range) -> None:
    """Raises BadInput unless `value` is a number of epochs or a range of them."""
    is_count = hasattr(value, "__index__") and not isinstance(value, bool)
    if not isinstance(value, range) and not (is_count and int(value) >= 0):
        raise _wrong(call, "epochs", "must be a whole number or a range", value)


def check_number(call: str, name: str, value: object) -> None:
    """Raises BadInput unless float() accepts `value`, as it does arrays and tensors with one element."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        float(value)  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError):
        raise _wrong(call, name, "must be a number", value) from None


def check_function(call: str, name: str, value: object) -> None:
    """Raises BadInput unless `value` can be called."""
    if not callable(value):
        raise _wrong(call, name, "must be a function", value)


def check_loader(call: str, value: Iterable[object]) -> None:
    """Raises BadInput unless `value` can be iterated over."""
    if not (hasattr(value, "__iter__") or hasattr(value, "__getitem__")):
        raise _wrong(call, "loader", "must be an iterable, such as a DataLoader", value)


def _wrong(call: str, name: str, problem: str, value: object) -> BadInput:
    return BadInput(f"mlcd.{call}: {name}: {problem} (got {value!r})")
