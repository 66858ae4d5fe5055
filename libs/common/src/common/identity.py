"""The identity of a process among the replicas of its service, which is the name on its Lease."""

import os
import socket

from common.settings import Settings


def of(settings: Settings) -> str:
    """Return the name that we were given, or else one of our own.

    A container that restarts in its pod is the same replica and goes on at once; outside a cluster, where many processes share a
    machine, each one is a replica of its own.
    """
    host = socket.gethostname()
    return settings.identity or (host if settings.kubeconfig is None else f"{host}-{os.getpid()}")
