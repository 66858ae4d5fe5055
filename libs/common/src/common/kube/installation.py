"""Identity of this installation of raybus: the uid of its cluster, which is that of `kube-system`, and its namespace.

Where the rights end at single namespaces (deploy/overlays/namespaced), the uid of raybus' own namespace identifies the cluster too; all
services of an installation have the same rights, so they agree.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.meta import ObjectMeta
from common.kube.client import Kube
from common.kube.resources import NAMESPACE

log = structlog.get_logger()

CLUSTER: Final = "kube-system"
"""The namespace that every cluster has from its beginning to its end."""
RETRY_SECONDS: Final = 1.0


class _Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class Installation:
    """The identity of this installation, learnt at the first use."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.known = ""

    async def learn(self) -> str:
        """Return it, waiting for the API server the first time."""
        if not self.known:
            self.known = await learn(self._kube, self._namespace)
        return self.known


async def learn(kube: Kube, namespace: str) -> str:
    """Return `<uid>/<namespace>`, waiting for the API server; empty, with a warning, where it refuses."""
    why: list[str] = []
    sources = [CLUSTER, namespace]
    while sources:
        try:
            body = await kube.get(NAMESPACE, None, sources[0])
            return f"{msgspec.json.decode(body, type=_Namespace).metadata.uid}/{namespace}"
        except (errors.Terminal, errors.NotFound) as problem:
            why.append(str(problem))
            del sources[0]
        except errors.Retryable:
            await asyncio.sleep(RETRY_SECONDS)
    remedy = f"allow: get namespace {CLUSTER}, or {namespace}"
    log.warning("the installation that this NATS belongs to cannot be checked", why="; ".join(why), remedy=remedy)
    return ""
