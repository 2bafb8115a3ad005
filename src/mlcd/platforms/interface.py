"""Which network interface has an address: libraries that choose one themselves often choose the wrong one."""

import socket
import struct
import sys

_SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface (netdevice(7))."""


def interface_of(address: str) -> str | None:
    """The name of this machine's interface that has `address`; None where it is unknown.

    Loopback addresses are found on every system, others on Linux only, and only by an interface's first IPv4 address.
    """
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError:
        return None
    if address.startswith("127."):
        return next((name for name in ("lo", "lo0") if name in names), None)
    if sys.platform != "linux":
        return None
    return next((name for name in names if _address_of(name) == address), None)


def _address_of(name: str) -> str | None:
    import fcntl  # noqa: PLC0415  not on every system

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:  # the interface has no IPv4 address
            return None
    return socket.inet_ntoa(answer[20:24])
