"""Instance types of several clouds and regions in one space: each type's name says where it is.

`g6.xlarge (aws/us-east-1)` is the type g6.xlarge at the place `aws/us-east-1`. A job with one cloud has plain names.
"""

import re
from fnmatch import fnmatchcase

_PLACED = re.compile(r"(?P<name>.+) \((?P<place>[^()]+)\)")


def placed_name(name: str, place: str) -> str:
    """The name of a type at a place."""
    return f"{name} ({place})"


def plain_name(name: str) -> str:
    """The name of the type, without its place."""
    found = _PLACED.fullmatch(name)
    return found["name"] if found else name


def place_of(name: str) -> str:
    """Where the type is; "" in a job with one cloud."""
    found = _PLACED.fullmatch(name)
    return found["place"] if found else ""


def matches(name: str, glob: str) -> bool:
    """Whether a name or glob of a job file stands for the type `name`, with or without its place."""
    return name == glob or fnmatchcase(name, glob) or fnmatchcase(plain_name(name), glob)
