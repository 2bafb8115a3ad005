"""The network of one lease: its own bridge, and for each node a namespace with an eth0 of limited bandwidth."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlcd.clouds.minicloud.record import LeaseRecord, lease_of_namespace, link_tag, namespace_name
from mlcd.clouds.nodes import PREFIX
from mlcd.errors import ProviderError

NAMESPACES = Path("/run/netns")
_LINKS = Path("/sys/class/net")
_ROUTES = Path("/proc/net/route")
_COMMAND_SECONDS = 30.0
_QUEUE_LATENCY = "50ms"


class CommandFailed(ProviderError):
    """A system command failed; the message contains its error output."""


def find_command(name: str) -> str | None:
    """The path of a system command, also where the user's PATH lacks /usr/sbin and /sbin; None where missing."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def run_command(*command: str, lines: Iterable[str] = ()) -> str:
    """What a system command prints; `lines` is its input. Raises CommandFailed."""
    path = find_command(command[0])
    if path is None:
        raise CommandFailed(f"the command {command[0]!r} was not found")
    try:
        done = subprocess.run(  # noqa: S603 - a system command by its full path, without a shell
            [path, *command[1:]],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"`{' '.join(command)}` did not end within {_COMMAND_SECONDS:g} s") from error
    except OSError as error:
        raise CommandFailed(f"`{' '.join(command)}` could not be started: {error.strerror or error}") from error
    if done.returncode != 0:
        raise CommandFailed(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def namespace_path(lease_id: str, rank: int) -> Path:
    """The path of a node's namespace, for `nsenter --net=`."""
    return NAMESPACES / namespace_name(lease_id, rank)


def make_network(record: LeaseRecord, mbit_per_second: float) -> None:
    """Create bridge, namespaces, links, addresses and limits. Raises CommandFailed; does not clean up then."""
    bridge = link_tag(record.lease_id)
    ranks = range(record.count)
    host = [
        f"link add {bridge} type bridge",
        f"link set {bridge} alias {record.lease_id}",
        f"addr add 10.77.{record.subnet}.1/24 dev {bridge}",
        f"link set {bridge} up",
    ]
    for rank in ranks:
        link, space = _link(record.lease_id, rank), namespace_name(record.lease_id, rank)
        host += [
            f"netns add {space}",
            f"link add {link} type veth peer name eth0 netns {space}",
            f"link set {link} alias {record.lease_id}",
            f"link set {link} master {bridge} up",
        ]
    run_command("ip", "-batch", "-", lines=host)
    for rank in ranks:
        inside = ["link set lo up", f"addr add {record.address(rank)}/24 dev eth0", "link set eth0 up"]
        space = namespace_name(record.lease_id, rank)
        run_command("ip", "-n", space, "-batch", "-", lines=inside)
        run_command("tc", "-n", space, *limit("eth0", mbit_per_second))
    run_command(
        "tc", "-batch", "-", lines=[" ".join(limit(_link(record.lease_id, rank), mbit_per_second)) for rank in ranks]
    )


def limit(link: str, mbit_per_second: float) -> Sequence[str]:
    """The arguments for `tc` that limit the outgoing bandwidth of a link.

    The bucket holds 4 ms and one largest packet: less would starve the link on kernels with a 250 Hz timer, more would
    let small messages pass unlimited.
    """
    bucket = round(mbit_per_second * 1e6 / 8 * 0.004) + 65536
    return (
        *("qdisc", "add", "dev", link, "root", "tbf"),
        *("rate", f"{mbit_per_second:g}mbit", "burst", str(bucket), "latency", _QUEUE_LATENCY),
    )


def network_is_gone(lease_id: str, rank: int) -> bool:
    """Whether a node's namespace or link is missing or down."""
    try:
        carrier = (_LINKS / _link(lease_id, rank) / "carrier").read_text()
    except OSError:  # no such link, or it was set down
        return True
    return carrier.strip() != "1" or not namespace_path(lease_id, rank).exists()


def links_of(lease_id: str) -> tuple[str, ...]:
    """A lease's links in this machine's own namespace."""
    return tuple(name for name, owner in _tagged_links().items() if owner == lease_id or _is_of(name, lease_id))


def namespaces_of(lease_id: str) -> tuple[str, ...]:
    """A lease's namespaces."""
    return tuple(name for name in _namespaces() if lease_of_namespace(name) == lease_id)


def leases_with_network() -> set[str]:
    """The leases that have a namespace or a link."""
    by_name = {lease_of_namespace(name) for name in _namespaces()}
    return {lease_id for lease_id in (*by_name, *_tagged_links().values()) if lease_id}


def processes_in(lease_id: str) -> set[int]:
    """All processes in a lease's namespaces, whoever started them."""
    spaces = set()
    for name in namespaces_of(lease_id):
        try:
            spaces.add((NAMESPACES / name).stat().st_ino)
        except FileNotFoundError:
            continue
    found = set()
    for entry in Path("/proc").iterdir() if spaces else ():
        if entry.name.isdigit():
            try:
                inode = (entry / "ns/net").stat().st_ino
            except OSError:  # it ended while we looked
                continue
            if inode in spaces:
                found.add(int(entry.name))
    return found


def remove_network(lease_id: str) -> None:
    """Remove all links and namespaces of a lease, if any exist. Raises CommandFailed."""
    for link in links_of(lease_id):
        _remove(("link", "del", link), _LINKS / link)
    for space in namespaces_of(lease_id):
        _remove(("netns", "del", space), NAMESPACES / space)


def free_subnet(taken: Iterable[int | None]) -> int:
    """The first x of 10.77.x.0/24 that neither a lease nor this machine's routes use. Raises ProviderError."""
    used = {*taken, *_routed_subnets()}
    for subnet in range(256):
        if subnet not in used:
            return subnet
    raise ProviderError("no network of 10.77.0.0/16 is free on this machine; end abandoned leases with `mlcd down`")


def _routed_subnets() -> set[int]:
    """Every x for which a route of this machine, except the default route, overlaps 10.77.x.0/24."""
    used = set()
    for line in _ROUTES.read_text().splitlines()[1:]:
        _, destination, _, _, _, _, _, mask, *_ = line.split()
        network, bits = (int.from_bytes(bytes.fromhex(word)[::-1]) for word in (destination, mask))
        if bits:
            used |= {x for x in range(256) if (_subnet(x) ^ network) & bits & 0xFFFFFF00 == 0}
    return used


def _subnet(x: int) -> int:
    return 10 << 24 | 77 << 16 | x << 8


def _remove(words: Sequence[str], path: Path) -> None:
    try:
        run_command("ip", *words)
    except CommandFailed:
        if path.exists():
            raise


def _link(lease_id: str, rank: int) -> str:
    return f"{link_tag(lease_id)}-{rank}"


def _is_of(link: str, lease_id: str) -> bool:
    tag = link_tag(lease_id)
    return link == tag or link.startswith(f"{tag}-")


def _tagged_links() -> dict[str, str]:
    """mlcd's links and the lease in each one's alias; "" where mlcd was killed before it set the alias."""
    found = {}
    for path in _LINKS.glob(f"{PREFIX}*"):
        try:
            found[path.name] = (path / "ifalias").read_text().strip()
        except OSError:  # removed while we looked
            continue
    return found


def _namespaces() -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}*"))
