"""Choose the proxy of a request by `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, as Go's clients do.

`kubectl` and KubeRay are Go clients. Python's libraries ignore networks (`10.96.0.0/12`) in
`NO_PROXY`, and otherwise differ from each other.
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

_PORTS: Final = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address


class _Exception(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `NO_PROXY`: a network, an address or a domain.

    An address or a domain may be limited to one port.
    """

    network: IPv4Network | IPv6Network | None = None
    address: Address | None = None
    domain: str = ""
    """The end of a host name, with a leading dot; empty if the entry is a network or an address."""
    is_host: bool = False
    """Whether the domain itself matches as well, not only its subdomains."""
    port: str = ""

    def covers(self, host: str, port: str, address: Address | None) -> bool:
        if address is None:
            is_named = host.endswith(self.domain) or (self.is_host and host == self.domain[1:])
            return bool(self.domain) and is_named and self.port in {"", port}
        if self.network is not None:
            return address in self.network
        return address == self.address and self.port in {"", port}


class OutboundProxies(msgspec.Struct, frozen=True, kw_only=True):
    """The proxies and exceptions that the environment variables set."""

    http: str = ""
    https: str = ""
    is_off: bool = False
    """Whether `NO_PROXY` contains `*`, so that no proxy is used."""
    exceptions: tuple[_Exception, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "OutboundProxies":
        """Read the variables; a lower-case name takes precedence over the upper-case one."""
        http, https, exceptions = (
            environ.get(name) or environ.get(name.upper()) or ""
            for name in ("http_proxy", "https_proxy", "no_proxy")
        )
        entries = [entry.strip().lower() for entry in exceptions.split(",")]
        read = (_read_exception(entry) for entry in entries if entry)
        return cls(
            # REQUEST_METHOD means CGI: there, a client can set HTTP_PROXY by a `Proxy` header.
            http="" if environ.get("REQUEST_METHOD") else _with_scheme(http),
            https=_with_scheme(https),
            is_off="*" in entries,
            exceptions=tuple(entry for entry in read if entry is not None),
        )

    def find(self, url: str) -> str | None:
        """Return the URL of the proxy for a request to a URL; None to connect directly."""
        server = urlsplit(url)
        proxy = {"http": self.http, "https": self.https}.get(server.scheme, "")
        return proxy if proxy and not self._is_direct(server) else None

    def _is_direct(self, server: SplitResult) -> bool:
        host = _to_ascii(server.hostname or "")
        port = str(server.port or _PORTS[server.scheme])
        address = _read_address(host)
        if self.is_off or host == "localhost" or (address is not None and address.is_loopback):
            return True
        return any(entry.covers(host, port, address) for entry in self.exceptions)


def _read_exception(entry: str) -> _Exception | None:
    """Parse an entry of `NO_PROXY`; None if it matches nothing."""
    network, slash, length = entry.partition("/")
    if slash and length.isdecimal() and (address := _read_address(network)) is not None:
        is_mapped = ":" in network and isinstance(address, IPv4Address)
        with suppress(ValueError):
            bits = int(length) - (96 if is_mapped else 0)
            return _Exception(network=ip_network(f"{address}/{bits}", strict=False))
    host, port = entry, ""
    if entry.startswith("[") and "]:" in entry:
        host, _, port = entry[1:].partition("]:")
    elif entry.count(":") == 1:
        host, _, port = entry.partition(":")
    if (address := _read_address(host)) is not None:
        return _Exception(address=address, port=port)
    host = host.removeprefix("*") if host.startswith("*.") else host
    if not host:
        return None
    is_host = not host.startswith(".")
    domain = _to_ascii(f".{host}" if is_host else host)
    return _Exception(domain=domain, is_host=is_host, port=port)


def _read_address(text: str) -> Address | None:
    """Parse an address, without its zone; an IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _to_ascii(host: str) -> str:
    if host.isascii():
        return host
    with suppress(UnicodeError):
        return ".".join(label.encode("idna").decode() for label in host.split("."))
    return host


def _with_scheme(proxy: str) -> str:
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
