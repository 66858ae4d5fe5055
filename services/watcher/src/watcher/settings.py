"""What the watcher reads from its environment beyond `common.runtime.settings`, which holds all variables."""

import os
import socket
from typing import Final

from common.runtime.settings import Settings

SERVICE: Final = "watcher"
USER_AGENT: Final = "raybus-watcher"


def identity(settings: Settings) -> str:
    """Return our name on the Lease.

    A container that restarts in its pod is the same holder and goes on at once; outside a cluster, where many processes
    share a machine, each one is a holder of its own.
    """
    host = socket.gethostname()
    return host if settings.kubeconfig is None else f"{host}-{os.getpid()}"
