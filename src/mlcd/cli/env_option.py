"""`--env NAME=VALUE` of the commands that start or continue a training."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from mlcd.errors import BadInput


def env_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--env NAME=VALUE`, any number of times, as the argument `envs`: the values by name."""
    return click.option(
        "--env",
        "envs",
        metavar="NAME[=VALUE]",
        multiple=True,
        callback=lambda _ctx, _option, given: values(given),
        help="Environment variable of the job; NAME alone takes its value from your environment.",
    )(function)


def values(given: Sequence[str]) -> dict[str, str]:
    """The values by name. Raises BadInput; no message shows a value."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name:
            raise BadInput("--env: the name is missing; allowed: NAME=VALUE, or NAME")
        if not equals:
            if name not in os.environ:
                raise BadInput(f"--env: {name} is not in your environment; allowed: --env {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found
