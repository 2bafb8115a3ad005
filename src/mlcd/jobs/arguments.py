"""Checks of the Python arguments besides the job itself; each raises BadInput naming the argument."""

import os
from collections.abc import Mapping
from pathlib import Path

from mlcd.errors import SpecError
from mlcd.untrusted import Malformed, expanded


def check_flag(name: str, value: bool) -> bool:
    """True or False, and no other value that counts as true: `yes="no"` gives no permission."""
    if not isinstance(value, bool):
        raise SpecError("must be True or False", field=name, value=value)
    return value


def check_text(name: str, value: str, *, allowed: str) -> str:
    """Text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError("must be text that is not blank", field=name, value=value, allowed=allowed)
    return value


def check_path(name: str, value: str | os.PathLike[str]) -> str:
    """A path as text."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise SpecError("must be a path", field=name, value=value, allowed="text, or a pathlib.Path")
    return path


def check_envs(value: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Values of environment variables by name. No message shows a value: it may be a key."""
    allowed = 'such as {"HF_TOKEN": os.environ["HF_TOKEN"]}'
    if value is not None and not isinstance(value, Mapping):
        raise SpecError("must be a mapping", field="envs", allowed=allowed)
    for name, text in (value or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise SpecError("must be text", field=f"envs[{name!r}]", allowed=allowed)
    return value


def check_folder(name: str, value: str | os.PathLike[str]) -> Path:
    """A path with `~` replaced."""
    text = check_path(name, value)
    try:
        return expanded(text)
    except Malformed as error:
        raise SpecError(error.problem, field=name, value=text[:200]) from error
