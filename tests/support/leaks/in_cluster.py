"""The whole check against raybus as installed in a cluster, with keys that an administrator
registers for the check, and NATS through kubectl's port-forward.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from common.kube.client import Kube
from common.settings import Settings
from localcluster.demo.cluster_state import Kubectl
from raybus_cli.events.connection import Forwarding
from raybus_cli.kubeconfig import KubeAccess
from support.leaks import check
from support.leaks.reading import As
from support.leaks.scan import Leak

NAMESPACE: Final = "raybus"
POD: Final = "nats-0"
"""Name of an existing pod: the keeper removes entries with the name of a pod that does not
exist."""
LIMIT_SECONDS: Final = 180.0


async def leaks(kube: Kube, kubectl: Kubectl, *, namespace: str = NAMESPACE) -> list[Leak]:
    """Return the secrets that the NATS of a cluster contains; raise `TimeoutError` after
    `LIMIT_SECONDS`.
    """
    async with asyncio.timeout(LIMIT_SECONDS), _users(kubectl, namespace) as user:
        return await check.leaks(kube, user)


@asynccontextmanager
async def _users(kubectl: Kubectl, namespace: str) -> AsyncGenerator[As]:
    """Yield a function that returns the connection settings of a user; each call makes a key and
    registers it, as a pod of a service does.
    """
    forwarding = Forwarding(KubeAccess(kubeconfig=kubectl.kubeconfig), namespace, kubectl.binary)
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(forwarding.keep())
        yield lambda user: Settings(
            service=user,
            nats_url=f"tls://127.0.0.1:{forwarding.port}",
            nats_register_key=True,
            kubeconfig=kubectl.kubeconfig,
            namespace=namespace,
            identity=POD,
        )
        keeping.cancel()
