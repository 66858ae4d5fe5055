"""Runs cluster-reconciler on the in-memory API server of the scenario tests."""

import copy
from typing import Any, Final

from cluster_reconciler.pods import all_pods
from common import labels, pod_json
from common.api import ray_cluster
from common.api.opaque import Body
from common.kube.resources import Resource
from common.ray import spec_hash
from common.runtime.key import Key
from parity.cases import NAMESPACE, OperatorSettings, RoundOutcome
from parity.defaults import defaulted
from parity.rounds import dated
from scenario.cluster_reconciler.harness import Harness
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

MAX_RECONCILES: Final = 15
"""Maximum number of reconciles of each RayCluster, after which nothing may change any more."""


class AddressingKube(FakeKube):
    """An in-memory API server that sets defaults and records created and deleted objects."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.noted: list[str] = []
        """Creations and deletions of objects, in order, such as `create Pod NAME`."""

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


async def reconcile(
    settings: OperatorSettings, objects: list[Body], *, version: str, one_host: int | None = 1
) -> RoundOutcome:
    """Reconcile objects with raybus until nothing changes, and return the outcome.

    During the reconciles, `one_host` replaces a `numOfHosts` of 1; None removes the field.
    `version` is the version that raybus writes into objects.
    """
    now = FakeClock().now()
    kube = AddressingKube(now=lambda: now)
    for body in _replace_hosts(dated(objects, now), 1, one_host):
        group, _, version_of = body["apiVersion"].rpartition("/")
        resource = Resource(
            kind=body["kind"], plural=f"{body['kind'].lower()}s", group=group, version=version_of
        )
        kube.put(resource, body)
    harness = Harness(settings.config(version), kube=kube)
    kube.requests.clear()
    names = [name for kind, _, name in kube.objects if kind == "RayCluster"]
    for _ in range(MAX_RECONCILES):
        before = _get_versions(kube)
        for name in names:
            await harness.reconcile(Key(NAMESPACE, name))
        await harness.settle()
        await harness.pass_time(1)
        if _get_versions(kube) == before:
            break
    left = [body for (kind, _, _), body in kube.objects.items() if kind != "Event"]
    if one_host != 1:
        left = _update_hashes(left, _replace_hosts(left, one_host, 1), version)
    return RoundOutcome(
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


def _replace_hosts(objects: list[Body], have: int | None, wanted: int | None) -> list[Body]:
    """Return a copy of the objects in which groups with `have` hosts have `wanted` hosts.

    None stands for an absent field. Clusters with an upgrade strategy are not changed, because
    their hash is computed from the number as written.
    """
    copies = copy.deepcopy(objects)
    for body in copies if have != wanted else ():
        spec = body.get("spec", {})
        if body["kind"] != "RayCluster" or spec.get("upgradeStrategy", {}).get("type"):
            continue
        for group in pod_json.bodies(spec, "workerGroupSpecs"):
            if group.get("numOfHosts") == have:
                group.pop("numOfHosts", None)
                group.update({} if wanted is None else {"numOfHosts": wanted})
    return copies


def _update_hashes(seen: list[Body], objects: list[Body], version: str) -> list[Body]:
    """Update the spec hashes in the annotations of `objects` after an edit of RayClusters.

    `seen` holds the same objects before the edit, in the same order.
    """
    hashes = {
        all_pods.build_marks(ray_cluster.decode(one), version)[
            labels.RECREATE_HASH
        ]: all_pods.build_marks(ray_cluster.decode(other), version)[labels.RECREATE_HASH]
        for one, other in zip(seen, objects, strict=True)
        if one["kind"] == "RayCluster"
    }
    for body in objects:
        annotations = pod_json.mapping(body["metadata"], "annotations")
        if (recorded_hash := hashes.get(annotations.get(labels.RECREATE_HASH, ""))) is not None:
            annotations[labels.RECREATE_HASH] = recorded_hash
    return objects


def _get_versions(kube: FakeKube) -> dict[tuple[str, str, str], str]:
    return {
        key: body["metadata"]["resourceVersion"]
        for key, body in kube.objects.items()
        if key[0] != "Event"
    }
