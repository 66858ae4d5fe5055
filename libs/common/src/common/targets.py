"""Decide to which servers raybus may send requests on behalf of tenants.

The administrator lists origins: scheme, host and port, as in the same-origin rule of browsers. A
host name is compared with the list before it is resolved, so unlisted names are never resolved. The
resolved address is checked as well: loopback, link-local addresses (cloud metadata) and the API
server are always refused. The caller connects to the checked address.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult

import msgspec
import re2

Address = IPv4Address | IPv6Address
VARIABLE: Final = "RAYBUS_GATE_TARGETS"
NAMESPACE: Final = "{namespace}"
"""Placeholder in a host for the namespace of the RayService."""
FORM: Final = "https://HOST, https://*.DOMAIN, http://HOST:PORT or http://10.0.0.0/8:PORT"
PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re2.compile(
    r"(https?)://([^:/\[\]]+(?:/\d{1,3})?|\[[0-9a-fA-F:.]+\](?:/\d{1,3})?)(?::(\d{1,5}))?"
)
_NAME: Final = re2.compile(r"(?:\*\.)?[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NEVER: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "100.100.100.200/32",  # metadata of Alibaba Cloud
            "168.63.129.16/32",  # of Azure
            "192.0.0.192/32",  # of Oracle Cloud
            "fd00:ec2::/32",  # of AWS
            "fd20:ce::254/128",  # of Google Cloud
        ),
    )
)
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""NAT64 addresses, each of which embeds an IPv4 address."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Scheme, host and port of servers that raybus may call: an entry of the configured list."""

    scheme: str
    host: str
    """A host name, `*.` followed by a domain, or an IP network."""
    port: int


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """The servers to which requests may be sent; none by default."""

    origins: tuple[Origin, ...] = ()
    api_server: str = ""
    """Address of the API server, to which no request is sent even if an origin covers it."""

    @classmethod
    def from_url(cls, url: SplitResult) -> "Targets":
        """Return targets that contain only the server of a URL."""
        port = url.port or PORTS.get(url.scheme, 0)
        return cls(origins=(Origin(scheme=url.scheme, host=url.hostname or "", port=port),))

    def refusal(self, url: SplitResult, namespace: str) -> str | None:
        """Return why a server may not be sent requests for a RayService of this namespace.

        None if it may.
        """
        host, port = url.hostname or "", url.port or PORTS.get(url.scheme, 0)
        named = f"{url.scheme}://{host}:{port}"
        literal = as_address(host)
        if literal is not None and self.is_forbidden(literal):
            return f"{named} is an address that raybus never asks"
        if any(
            origin.scheme == url.scheme and origin.port == port and _holds(origin, host, namespace)
            for origin in self.origins
        ):
            return None
        return f"{named} is not a server that the administrator of raybus lists in {VARIABLE}"

    def is_forbidden(self, address: Address) -> bool:
        """Return whether an address is refused even if it is listed."""
        address = _plain(address)
        return (
            address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address.is_reserved
            or address == as_address(self.api_server)
            or any(address in network for network in _NEVER if network.version == address.version)
        )


def as_address(host: str) -> Address | None:
    """Return the IP address in `host`; None if it is a name."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def read(text: str) -> tuple[Origin, ...]:
    """Parse a list of origins separated by commas; raises `ValueError` for an illegal entry."""
    return tuple(_origin(entry) for entry in filter(None, map(str.strip, text.split(","))))


def _origin(text: str) -> Origin:
    match = _ENTRY.fullmatch(text)
    host = match[2].lower() if match is not None else ""
    if match is None or not (
        _is_network(host) or _NAME.fullmatch(host.replace(NAMESPACE, "namespace"))
    ):
        raise ValueError(f"{text!r} is not of the form {FORM}")
    port = int(match[3]) if match[3] else PORTS[match[1]]
    if not 0 < port < 2**16:
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return Origin(scheme=match[1], host=host.replace("[", "").replace("]", ""), port=port)


def _is_network(host: str) -> bool:
    try:
        ip_network(host.replace("[", "").replace("]", ""))
    except ValueError:
        return False
    return True


def _holds(origin: Origin, host: str, namespace: str) -> bool:
    literal = as_address(host)
    if as_address(origin.host.split("/", 1)[0]) is not None:
        return literal is not None and literal in ip_network(origin.host)
    listed = origin.host.replace(NAMESPACE, namespace)
    return (
        host.endswith(listed[1:]) and len(host) >= len(listed)
        if listed.startswith("*.")
        else host == listed
    )


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds; any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(address.packed[-4:])
    return (
        address.ipv4_mapped
        or address.sixtofour
        or (address.teredo[1] if address.teredo else address)
    )
