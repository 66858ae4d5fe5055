"""raybus's side: cluster-reconciler on the API server in memory of the scenario tests."""

from typing import Any, Final

from common.api.opaque import Body
from common.kube.resources import Resource
from common.ray import spec_hash
from common.runtime.key import Key
from parity.cases import NAMESPACE, OperatorSettings, Outcome
from parity.defaults import defaulted
from parity.rounds import dated
from scenario.cluster_reconciler.harness import Harness
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

MOST: Final = 15
"""Reconciles after which a case counts as one that does not come to rest."""


class AddressingKube(FakeKube):
    """Sets defaults as the real one does, and notes what is created and deleted."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.noted: list[str] = []
        """What was created and deleted, in order."""

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        body = defaulted(body)
        created = await super().create(resource, namespace, body)
        if resource.kind != "Event":
            self.noted.append(f"create {resource.kind} {body['metadata']['name']}")
        return created

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> bytes:
        return await super().replace(resource, namespace, defaulted(body), subresource=subresource)

    def _delete(self, resource: Resource, old: Body) -> Body:
        if "deletionTimestamp" not in old["metadata"]:
            self.noted.append(f"delete {resource.kind} {old['metadata']['name']}")
        return super()._delete(resource, old)


async def reconcile(settings: OperatorSettings, objects: list[Body], *, version: str) -> Outcome:
    """Return what raybus makes of these objects, once nothing changes any more."""
    now = FakeClock().now()
    kube = AddressingKube(now=lambda: now)
    for body in dated(objects, now):
        group, _, version_of = body["apiVersion"].rpartition("/")
        resource = Resource(
            kind=body["kind"], plural=f"{body['kind'].lower()}s", group=group, version=version_of
        )
        kube.put(resource, body)
    harness = Harness(settings.config(version), kube=kube)
    kube.requests.clear()
    names = [name for kind, _, name in kube.objects if kind == "RayCluster"]
    for _ in range(MOST):
        before = _state(kube)
        for name in names:
            await harness.reconcile(Key(NAMESPACE, name))
        await harness.settle()
        await harness.pass_time(1)
        if _state(kube) == before:
            break
    left = [body for (kind, _, _), body in kube.objects.items() if kind != "Event"]
    return Outcome(
        objects=left,
        events=[
            {"type": kind, "reason": reason, "note": note} for kind, reason, note in kube.events()
        ],
        writes=kube.noted,
        hashes=[
            spec_hash.cluster_spec_hash(body["spec"])
            for body in left
            if body["kind"] == "RayCluster"
        ],
    )


def _state(kube: FakeKube) -> dict[tuple[str, str, str], str]:
    return {
        key: body["metadata"]["resourceVersion"]
        for key, body in kube.objects.items()
        if key[0] != "Event"
    }
