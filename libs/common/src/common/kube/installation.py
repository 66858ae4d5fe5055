"""Which raybus this is: the uid of its cluster, which is that of `kube-system`, and its namespace."""

import asyncio
from typing import Final

import msgspec
import structlog

from common import errors
from common.kube.client import Kube
from common.kube.resources import NAMESPACE

log = structlog.get_logger()

CLUSTER: Final = "kube-system"
"""The namespace that every cluster has from its beginning to its end."""
RETRY_SECONDS: Final = 1.0


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Meta


class Installation:
    """Which raybus this is, learnt when it is asked for."""

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
    """Return `<uid>/<namespace>`, waiting for the API server; empty, with a warning, where it does not tell."""
    while True:
        try:
            answer = await kube.get(NAMESPACE, None, CLUSTER)
        except (errors.Terminal, errors.NotFound) as problem:
            log.warning(
                "whose NATS this is cannot be checked", why=str(problem), remedy=f"allow: get namespace {CLUSTER}"
            )
            return ""
        except errors.Retryable:
            await asyncio.sleep(RETRY_SECONDS)
            continue
        return f"{msgspec.json.decode(answer, type=_Namespace).metadata.uid}/{namespace}"
