"""Identity of this raybus installation: the uid of its cluster, and its namespace.

The uid of namespace `kube-system` identifies the cluster. If raybus may read single namespaces only
(deploy/overlays/namespaced), the uid of raybus' own namespace takes its place. All services of an
installation have the same rights, so they derive the same identity.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.meta import Envelope
from common.kube.client import Kube
from common.kube.resources import NAMESPACE

log = structlog.get_logger()

CLUSTER: Final = "kube-system"
"""A namespace that exists as long as the cluster."""
RETRY_SECONDS: Final = 1.0


class Installation:
    """The identity of this installation, read at the first use."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.known = ""

    async def read_identity(self) -> str:
        """Return `<uid>/<namespace>`, waiting for the API server the first time.

        The result is empty, with a warning in the log, if both namespaces are forbidden.
        """
        reasons: list[str] = []
        sources = (CLUSTER, self._namespace)
        while not self.known and len(reasons) < len(sources):
            try:
                body = await self._kube.get(NAMESPACE, None, sources[len(reasons)])
                self.known = (
                    f"{msgspec.json.decode(body, type=Envelope).metadata.uid}/{self._namespace}"
                )
            except (errors.Terminal, errors.NotFound) as problem:
                reasons.append(str(problem))
            except errors.Retryable:
                await asyncio.sleep(RETRY_SECONDS)
        if not self.known:
            remedy, text = (
                f"allow: get namespace {CLUSTER}, or {self._namespace}",
                "; ".join(reasons),
            )
            log.warning(
                "cannot check which installation owns this NATS",
                why=text,
                remedy=remedy,
            )
        return self.known
