"""`resources.infra`: one cloud, or a list of clouds and regions to choose from."""

from mlcd.plugins import is_object_name
from mlcd.spec.node import YamlNode

_FORM = "a cloud such as sim/aws, or a list such as [aws/us-east-1, gcp]"
_FOLDER = "replay/"


def infra(node: YamlNode) -> str:
    """A cloud; several, of a list or with commas between them, are joined by commas. Jobs check whether they exist."""
    found: list[str] = []
    items = node.items()
    for item in items:
        for name in infras_of(item.line_of_text(allowed=_FORM)):
            if not name:
                raise item.error("has an empty name", allowed=_FORM)
            if name in found:
                raise item.error(f"names {name} twice", allowed=_FORM)
            found.append(name)
    if not found:
        raise node.error("must not be empty", allowed=_FORM)
    if len(items) > 1 and (folder := next((item for item in items if str(item.value).startswith(_FOLDER)), None)):
        raise folder.error("measured tables cannot be one of several clouds", allowed=_FORM)
    return ",".join(found)


def one_infra(node: YamlNode) -> str:
    """A cloud of a job that has only one."""
    if isinstance(node.value, tuple) or len(infras_of(str(node.value))) > 1:
        raise node.error("takes one cloud: several in one job are for mlcd train", allowed="one of them")
    return node.line_of_text()


def infras_of(text: str) -> tuple[str, ...]:
    """The clouds that the text names. The folder of measured tables may have commas in its name, a class too."""
    if text.startswith(_FOLDER) or is_object_name(text):
        return (text,)
    return tuple(name.strip() for name in text.split(","))
