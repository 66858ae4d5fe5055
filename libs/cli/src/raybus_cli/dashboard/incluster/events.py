"""Upgrade events of all namespaces in a Pod, read once for all users; a page gets those of a RayService that its user may read.

With `RAYBUS_NATS_REGISTER_KEY`, as raybus's own services have it, the Pod makes a key for the NATS user `subscriber` and registers its
public part; else a folder holds the credentials.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from common.bus.access import MadeKey, Registration
from common.kube.client import KubeClient
from common.settings import Settings
from raybus_cli.access.kubeconfig import Where
from raybus_cli.access.session import USER_AGENT
from raybus_cli.dashboard.incluster.sessions import Sessions
from raybus_cli.dashboard.listening import Listener
from raybus_cli.events import connection
from raybus_cli.events.run import FORWARD_SECONDS, Read, Way

REGISTER: Final = "RAYBUS_NATS_REGISTER_KEY"


def way(nats: str | None, credentials: Path | None, environ: Mapping[str, str], place: Where) -> Way | None:
    """Return the way to NATS, None where none is named; raise `InvalidSpec` for a setting that is wrong."""
    if nats is None and credentials is None:
        return None
    if credentials is not None or not environ.get(REGISTER):
        return Way(connection.settings(nats, credentials))
    settings = Settings.from_environment(connection.USER, environ)
    connect = partial(KubeClient.connect, kubeconfig=place.kubeconfig, user_agent=USER_AGENT, context=place.context)
    registration = Registration(settings, connect)
    return Way(settings, FORWARD_SECONDS, MadeKey(settings, registration.announce, registration.close))


def listener(found: Way, sessions: Sessions) -> Listener:
    """Return what reads the events of all namespaces for all sessions."""

    async def through(read: Read) -> None:
        await read(found)

    return Listener(through, None, sessions, sessions.events)
