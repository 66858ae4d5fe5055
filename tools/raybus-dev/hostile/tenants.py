"""The hostile tenants. Each one may write Ray objects, Services and routes in one namespace."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import msgspec

from bench.heads import Heads
from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    EVENT,
    HTTP_ROUTE,
    NAMESPACE,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from localcluster.control_plane import ControlPlane
from scenario.hostile.attacks import Attack

NAMESPACES: Final = tuple(f"tenant-{number}" for number in range(4))
ACCOUNT: Final = "tenant"
LIFE: Final = 1.5
"""Seconds that a tenant waits between two requests about the same object."""
TIMEOUT: Final = 180.0
"""Seconds within which an object must have a condition or Event about its outcome.

A new head takes up to 90 s if other work shares the processors.
"""
KINDS: Final = ("rayclusters", "rayservices", "rayjobs", "raycronjobs")
ANOTHER: Final = "kueue.x-k8s.io/multikueue"
MAX_CONCURRENT_ATTACKS: Final = 64
"""Maximum attacks that are under way at the same time."""
RULES: Final[list[Json]] = [
    {
        "apiGroups": ["ray.io"],
        "resources": [*KINDS, *(f"{each}/status" for each in KINDS)],
        "verbs": ["*"],
    },
    {"apiGroups": [""], "resources": ["services"], "verbs": ["*"]},
    {
        "apiGroups": ["gateway.networking.k8s.io"],
        "resources": ["httproutes", "gateways"],
        "verbs": ["*"],
    },
]


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Event(msgspec.Struct, frozen=True):
    regarding: _Named
    reason: str = ""


class _Condition(msgspec.Struct, frozen=True):
    reason: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    managed_by: str = ""


class _Object(msgspec.Struct, frozen=True):
    spec: _Spec | None = None
    status: _Status | None = None


class Events:
    """Collects the reasons of all Events, by the object that an Event is about.

    Listing the Events of one object would make the API server read all Events of its namespace,
    thousands of times in a run.
    """

    def __init__(self) -> None:
        self.reasons: defaultdict[NamespacedName, set[str]] = defaultdict(set)

    def present(self, raw: bytes, reason: str = "") -> None:
        assert not reason, f"an Event cannot be read: {reason}: {raw[:200]!r}"
        event = msgspec.json.decode(raw, type=_Event)
        self.reasons[event.regarding.namespace, event.regarding.name].add(event.reason)

    def gone(self, raw: bytes) -> None:
        """Do nothing: raybus has reported the reason, even if the Event is deleted."""

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """Do nothing: Events that a new list no longer contains have expired, but were reported."""


class Tenants:
    """Carries out the attacks of all tenants, and judges the outcome of their objects."""

    def __init__(
        self, clients: Sequence[KubeClient], admin: KubeClient, heads: Heads, events: Events
    ) -> None:
        self.clients = clients
        self._admin = admin
        self._events = events
        self._heads = heads
        self.done = 0
        self.refused = 0
        self.stored = 0
        self.unexplained: list[str] = []

    async def attack(self, attacks: Iterable[Attack], *, rate: float, prefix: str = "h") -> None:
        """Start `rate` attacks a second, with the tenants in turn, and wait until all have ended.

        The names of the objects begin with `prefix`. A semaphore limits the number of concurrent
        attacks, in place of API Priority and Fairness.
        """
        loop = asyncio.get_running_loop()
        began, under_way = loop.time(), asyncio.Semaphore(MAX_CONCURRENT_ATTACKS)
        async with asyncio.TaskGroup() as group:
            for number, attack in enumerate(attacks):
                await asyncio.sleep(began + number / rate - loop.time())
                await under_way.acquire()
                place = number % len(NAMESPACES)
                named = attack.renamed(f"{prefix}{number}")
                task = group.create_task(
                    self._run_attack(NAMESPACES[place], self.clients[place], named)
                )
                task.add_done_callback(lambda _task: under_way.release())

    def anew(self) -> "Tenants":
        """Return the same tenants, with all counters at zero."""
        return Tenants(self.clients, self._admin, self._heads, self._events)

    async def _run_attack(self, namespace: str, kube: KubeClient, attack: Attack) -> None:
        name = attack.body["metadata"]["name"]
        if attack.answer is not None and not attack.is_late:
            self._heads.answers[name] = attack.answer
        if attack.metrics:
            self._heads.pages[name] = attack.metrics
        if attack.location:
            self._heads.redirects[name] = attack.location
        for resource, body in attack.beside:
            await self._create(kube, namespace, resource, body)
        if not await self._create(kube, namespace, attack.resource, attack.body):
            self.done += 1
            return
        await asyncio.sleep(LIFE)
        await self._disturb(kube, namespace, name, attack)
        await asyncio.sleep(LIFE)
        if attack.answer is not None:
            self._heads.answers[name] = attack.answer
        if not await self._change(kube, namespace, attack.resource, attack.later):
            # An object that the API server refuses is not quarantined.
            attack = msgspec.structs.replace(attack, reasons=attack.reasons - {"Quarantined"})
        await asyncio.sleep(LIFE)
        if (problem := await self._find_silent_object(namespace, attack, name)) is not None:
            self.unexplained.append(f"{attack.resource.kind} {namespace}/{name}: {problem}")
        for resource, body in [(attack.resource, attack.body), *attack.beside]:
            with suppress(errors.RaybusError):
                await kube.delete(resource, namespace, body["metadata"]["name"])
        self._heads.answers.pop(name, None)
        self._heads.redirects.pop(name, None)
        self._heads.pages.pop(name, None)
        self.done += 1

    async def _create(
        self, kube: KubeClient, namespace: str, resource: Resource, body: Body
    ) -> bool:
        """Create an object. Return whether the API server stored it."""
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

    async def _change(
        self, kube: KubeClient, namespace: str, resource: Resource, later: Body
    ) -> bool:
        """Give an object the spec and metadata of `later`; return whether that was stored."""
        try:
            held: Json = msgspec.json.decode(
                await kube.get(resource, namespace, later["metadata"]["name"])
            )
            meta: Json = {**held["metadata"], **later["metadata"], "namespace": namespace}
            await kube.replace(
                resource, namespace, {**held, "spec": later.get("spec"), "metadata": meta}
            )
        except errors.RaybusError:
            self.refused += 1
            return False
        return True

    async def _disturb(self, kube: KubeClient, namespace: str, name: str, attack: Attack) -> None:
        """Overwrite the status of the attack's object; annotate the objects raybus made for it."""
        if attack.status:
            with suppress(errors.RaybusError):
                await kube.patch(
                    attack.resource,
                    namespace,
                    name,
                    PatchRequest(body={"status": attack.status}, subresource="status"),
                )
        for resource in (RAY_CLUSTER, SERVICE, HTTP_ROUTE):
            if resource.kind not in attack.marks:
                continue
            with suppress(errors.RaybusError):
                listed = await kube.list(
                    resource, namespace, label_selector=f"{labels.ORIGIN_NAME}={name}"
                )
                for item in msgspec.json.decode(listed)["items"]:
                    patch = PatchRequest(
                        body={"metadata": {"annotations": attack.marks[resource.kind]}}
                    )
                    await kube.patch(resource, namespace, item["metadata"]["name"], patch)

    async def _find_silent_object(self, namespace: str, attack: Attack, name: str) -> str | None:
        """Wait until an object has the expected condition or Event.

        Return None, or after `TIMEOUT` a text that says what is missing. Objects of another
        controller are skipped, and so are RayCronJobs, because most of them start no job while the
        attack lasts.
        """
        if attack.resource == RAY_CRON_JOB and not attack.reasons:
            return None
        reasons: set[str] = set()
        for _ in range(round(TIMEOUT / LIFE)):
            with suppress(errors.Retryable):  # the API server is asked again
                held = msgspec.json.decode(
                    await self._admin.get(attack.resource, namespace, name), type=_Object
                )
                if held.spec is not None and held.spec.managed_by not in {"", labels.MANAGED_BY_US}:
                    return None
                listed = held.status.conditions if held.status is not None else None
                conditions = {condition.reason for condition in listed or () if condition.reason}
                reasons = self._events.reasons[namespace, name] | conditions
            if reasons and (not attack.reasons or not attack.reasons.isdisjoint(reasons)):
                return None
            await asyncio.sleep(LIFE)
        return (
            f"none of {sorted(attack.reasons)} among {sorted(reasons)}"
            if reasons
            else "neither a condition nor an Event"
        )


def unmanaged(attack: Attack) -> Attack:
    """Return the attack with objects whose `managedBy` names another controller."""
    body, later = (_left_to_another(body) for body in (attack.body, attack.later))
    return msgspec.structs.replace(attack, body=body, later=later, marks={}, answer=None)


def _left_to_another(body: Body) -> Body:
    spec: Any = body.get("spec")
    if not isinstance(spec, dict):
        return body
    return {**body, "spec": {**cast("Json", spec), "managedBy": ANOTHER}}


@asynccontextmanager
async def admitted(
    control_plane: ControlPlane, admin: KubeClient, heads: Heads
) -> AsyncGenerator[Tenants]:
    """Create the tenants' namespaces and rights; yield the tenants during the `with` block."""
    clients: list[KubeClient] = []
    events = Events()
    watch = Watch(
        admin, WatchTarget(resource=EVENT), events, jitter=lambda: 0.0, timing=WatchTiming()
    )
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        try:
            for namespace in NAMESPACES:
                await _allow(admin, namespace)
                config = await control_plane.kubeconfig_for_service_account(namespace, ACCOUNT)
                clients.append(await KubeClient.connect(kubeconfig=config, user_agent="tenant"))
            yield Tenants(clients, admin, heads, events)
        finally:
            watching.cancel()
            for client in clients:
                await client.close()


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
