"""Renders the configuration file of the NATS server from a template and the users' permissions."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Final

import msgspec

from nats_admin import permissions, subscribers
from nats_admin.permissions import NatsUser
from nats_admin.subscribers import NamedSubscriber

INDENT: Final = " " * 6


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses, folders and options of a NATS server. Paths are those that the server sees."""

    folder: str
    """Folder with `tls.crt`, `tls.key` and `ca.crt`."""
    store: str
    host: str = "0.0.0.0"  # noqa: S104  (a pod's clients come from outside)
    """Listening address. 0.0.0.0 stands for all IPv4 and IPv6 addresses of the machine."""
    port: int = 4222
    monitoring_port: int | None = 8222
    name: str = '"nats"'
    """Name of the server: a string in quotes, or an environment variable (`$NAME`) without
    quotes."""
    pid_file: str | None = None
    """File for the process id of the server, to which the reload signal is sent."""
    max_store: str | None = None
    """Disk space for JetStream, such as `8GB` or `$NAME`; None to let the server decide."""
    sync_interval: str = "1s"
    """Interval between syncs to disk; `always` syncs at each write."""
    cluster: "ServerCluster | None" = None
    subscribers: tuple[NamedSubscriber, ...] = ()

    @property
    def users(self) -> tuple[NatsUser, ...]:
        return permissions.list_users(self.subscribers)


class ServerCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Several NATS servers that share the streams.

    Every server knows the addresses of all servers, including its own.
    """

    routes: tuple[str, ...]
    """`HOST:PORT` of every server, as the other servers reach it."""
    port: int = 6222


MAX_OUTSIDE_CONSUMERS: Final = 2 * subscribers.MAX_SUBSCRIBERS
"""Maximum consumers of the mirror: one per named subscriber, and as many for other users."""


def render(server: ServerConfig, public_keys: Mapping[str, Sequence[str]]) -> str:
    """Return the server's configuration file.

    `public_keys` maps user names to keys. A user without a key cannot connect.
    """
    template = Template(
        resources.files("nats_admin").joinpath("nats-server.conf.template").read_text()
    )
    optional = [
        f'http: "{_format_host(server.host)}:{server.monitoring_port}"'
        if server.monitoring_port is not None
        else "",
        f'pid_file: "{server.pid_file}"' if server.pid_file is not None else "",
    ]
    return template.substitute(
        server_name=server.name,
        host=_format_host(server.host),
        port=server.port,
        optional="\n".join(line for line in optional if line),
        cluster=_render_cluster(server),
        max_store=f"max_file_store: {server.max_store}" if server.max_store is not None else "",
        sync_interval=server.sync_interval,
        folder=server.folder,
        store=server.store,
        exports=_indent(permissions.EXPORTS),
        imports=_indent(permissions.IMPORTS),
        outside_consumers=MAX_OUTSIDE_CONSUMERS,
        ray_users=_indent(_render_users(server, permissions.RAY, public_keys)),
        outside_users=_indent(_render_users(server, permissions.OUTSIDE, public_keys)),
    )


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _render_cluster(server: ServerConfig) -> str:
    if server.cluster is None:
        return ""
    template = Template(
        resources.files("nats_admin").joinpath("nats-cluster.conf.template").read_text()
    )
    routes = "\n".join(f'    "tls://{route}"' for route in server.cluster.routes)
    return template.substitute(
        host=_format_host(server.host),
        port=server.cluster.port,
        folder=server.folder,
        routes=routes,
    )


def _render_users(
    server: ServerConfig, account: str, public_keys: Mapping[str, Sequence[str]]
) -> Iterable[str]:
    return (
        _render_user(user, key)
        for user in server.users
        if user.account == account
        for key in public_keys.get(user.name, ())
    )


def _render_user(user: NatsUser, public_key: str) -> str:
    allowed = {"publish": {"allow": user.publish}, "subscribe": {"allow": user.subscribe}}
    rights = msgspec.json.format(msgspec.json.encode(allowed), indent=0).decode()
    return f"# {user.name}\n{INDENT}{{nkey: {public_key}, permissions: {rights}}}"


def _indent(lines: Iterable[str]) -> str:
    return "\n".join(INDENT + line for line in lines)
