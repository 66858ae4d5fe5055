"""The configuration file of the NATS server: pure, from a template and the table of users."""

from collections.abc import Iterable, Mapping
from importlib import resources
from string import Template
from typing import Final

import msgspec

from common.bus import permissions
from common.bus.permissions import User

INDENT: Final = " " * 6


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens and keeps its files, as the server sees them."""

    folder: str
    """Holds `tls.crt`, `tls.key` and `ca.crt`."""
    store: str
    host: str = "0.0.0.0"  # noqa: S104  (a pod's clients come from outside)
    port: int = 4222
    monitoring_port: int | None = 8222
    name: str = "nats"


def render(server: Server, public_keys: Mapping[str, str]) -> str:
    """Return the file; `public_keys` has one entry per user of the table."""
    template = Template(resources.files("common.bus").joinpath("nats-server.conf.template").read_text())
    monitoring = "" if server.monitoring_port is None else f'http: "{server.host}:{server.monitoring_port}"'
    return template.substitute(
        server_name=server.name,
        host=server.host,
        port=server.port,
        monitoring=monitoring,
        folder=server.folder,
        store=server.store,
        exports=_lines(permissions.EXPORTS),
        imports=_lines(permissions.IMPORTS),
        ray_users=_lines(_users(permissions.RAY, public_keys)),
        outside_users=_lines(_users(permissions.OUTSIDE, public_keys)),
    )


def _users(account: str, public_keys: Mapping[str, str]) -> Iterable[str]:
    return (_user(user, public_keys[user.name]) for user in permissions.USERS if user.account == account)


def _user(user: User, public_key: str) -> str:
    allowed = {"publish": {"allow": user.publish}, "subscribe": {"allow": user.subscribe}}
    rights = msgspec.json.format(msgspec.json.encode(allowed), indent=0).decode()
    return f"# {user.name}\n{INDENT}{{nkey: {public_key}, permissions: {rights}}}"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(INDENT + line for line in lines)
