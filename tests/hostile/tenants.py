"""The hostile tenants: each has a namespace, and the rights in it to write Ray objects, Services and routes, and no others."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from bench.heads import Heads
from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, Patch
from common.kube.resources import (
    HTTP_ROUTE,
    NAMESPACE,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from localcluster.control_plane import ControlPlane
from scenario.hostile.attacks import Attack

NAMESPACES: Final = tuple(f"tenant-{number}" for number in range(4))
ACCOUNT: Final = "tenant"
LIFE: Final = 1.5
"""Seconds between two things that a tenant does to an object."""
PATIENCE: Final = 20.0
"""Seconds until an object says what became of it."""
RULES: Final[list[Json]] = [
    {"apiGroups": ["ray.io"], "resources": ["rayclusters", "rayservices"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["*"]},
    {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes", "gateways"], "verbs": ["*"]},
]


class Tenants:
    """All of them, and what became of their objects."""

    def __init__(self, clients: Sequence[KubeClient], admin: KubeClient, heads: Heads) -> None:
        self._clients = clients
        self._admin = admin
        self._heads = heads
        self.done = 0
        self.refused = 0
        self.stored = 0
        self.unexplained: list[str] = []

    async def attack(self, attacks: Sequence[Attack], *, at_once: int) -> None:
        """Carry all attacks out, so many of each tenant at the same time."""
        waiting = iter(enumerate(attacks))
        async with asyncio.TaskGroup() as group:
            for namespace, kube in zip(NAMESPACES, self._clients, strict=True):
                for _ in range(at_once):
                    group.create_task(self._work(namespace, kube, waiting))

    async def _work(self, namespace: str, kube: KubeClient, waiting: Any) -> None:
        for number, attack in waiting:
            await self._one(namespace, kube, attack.renamed(f"h{number}"))
            self.done += 1

    async def _one(self, namespace: str, kube: KubeClient, attack: Attack) -> None:
        name = attack.body["metadata"]["name"]
        if attack.answer is not None and not attack.is_late:
            self._heads.answers[name] = attack.answer
        for resource, body in attack.beside:
            await self._create(kube, namespace, resource, body)
        if not await self._create(kube, namespace, attack.resource, attack.body):
            return
        await asyncio.sleep(LIFE)
        await self._mark(kube, namespace, name, attack)
        await asyncio.sleep(LIFE)
        if attack.answer is not None:
            self._heads.answers[name] = attack.answer
        await self._change(kube, namespace, attack.resource, attack.later)
        await asyncio.sleep(LIFE)
        if not await self._is_explained(namespace, attack.resource, name):
            self.unexplained.append(f"{attack.resource.kind} {namespace}/{name}")
        for resource, body in [(attack.resource, attack.body), *attack.beside]:
            with suppress(errors.RaybusError):
                await kube.delete(resource, namespace, body["metadata"]["name"])
        self._heads.answers.pop(name, None)

    async def _create(self, kube: KubeClient, namespace: str, resource: Resource, body: Body) -> bool:
        """Create an object; tell whether it is stored."""
        meta: Json = body["metadata"]
        whole = {
            **body,
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {**meta, "namespace": namespace},
        }
        try:
            await kube.create(resource, namespace, whole)
        except errors.RaybusError:
            self.refused += 1
            return False
        self.stored += 1
        return True

    async def _change(self, kube: KubeClient, namespace: str, resource: Resource, later: Body) -> None:
        try:
            held: Json = msgspec.json.decode(await kube.get(resource, namespace, later["metadata"]["name"]))
            meta: Json = {**held["metadata"], **later["metadata"], "namespace": namespace}
            await kube.replace(resource, namespace, {**held, "spec": later.get("spec"), "metadata": meta})
        except errors.RaybusError:
            self.refused += 1

    async def _mark(self, kube: KubeClient, namespace: str, name: str, attack: Attack) -> None:
        """Write annotations on what raybus made for the object."""
        for resource in (RAY_CLUSTER, SERVICE, HTTP_ROUTE):
            if resource.kind not in attack.marks:
                continue
            with suppress(errors.RaybusError):
                listed = await kube.list(resource, namespace, label_selector=f"{labels.ORIGIN_NAME}={name}")
                for each in msgspec.json.decode(listed)["items"]:
                    patch = Patch(body={"metadata": {"annotations": attack.marks[resource.kind]}})
                    await kube.patch(resource, namespace, each["metadata"]["name"], patch)

    async def _is_explained(self, namespace: str, resource: Resource, name: str) -> bool:
        """Tell whether an object says what became of it; what another controller is to look after need not."""
        for _ in range(round(PATIENCE / LIFE)):
            body: Json = msgspec.json.decode(await self._admin.get(resource, namespace, name))
            status: Json = body.get("status", {})
            managed: Json = body.get("spec") or {}
            if any(each.get("reason") for each in status.get("conditions", [])) or managed.get("managedBy", "") not in {
                "",
                labels.MANAGED_BY_US,
            }:
                return True
            query = {"fieldSelector": f"involvedObject.name={name}"}
            listed = await self._admin.request("GET", f"/api/v1/namespaces/{namespace}/events", query=query)
            if msgspec.json.decode(listed)["items"]:
                return True
            await asyncio.sleep(LIFE)
        return False


@asynccontextmanager
async def admitted(control_plane: ControlPlane, admin: KubeClient, heads: Heads) -> AsyncGenerator[Tenants]:
    """Give tenants their namespaces and rights for the length of a block."""
    clients: list[KubeClient] = []
    try:
        for namespace in NAMESPACES:
            await _allow(admin, namespace)
            config = await control_plane.kubeconfig_for_service_account(namespace, ACCOUNT)
            clients.append(await KubeClient.connect(kubeconfig=config, user_agent="tenant"))
        yield Tenants(clients, admin, heads)
    finally:
        for each in clients:
            await each.close()


async def _allow(admin: KubeClient, namespace: str) -> None:
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    binding: Body = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
        "subjects": [subject],
    }
    await admin.create(NAMESPACE, None, {"metadata": {"name": namespace}})
    await admin.create(SERVICE_ACCOUNT, namespace, {"metadata": {"name": ACCOUNT}})
    await admin.create(ROLE, namespace, {"metadata": {"name": ACCOUNT}, "rules": RULES})
    await admin.create(ROLE_BINDING, namespace, binding)
