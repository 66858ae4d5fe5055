"""Keep an annotation of each RayCluster equal to its dashboard (docs/how-to/controller.md)."""

from contextlib import nullcontext
from datetime import datetime
from functools import partial

from common import labels
from common.api.core import Service
from common.api.ray_cluster import KIND, RayCluster
from common.clock import Clock
from common.kube import client, resources
from common.ray.view import dashboard_service, foreign_service
from common.runtime import controller, events, executor, process, reconciler, replica
from common.runtime.actions import Action, Patch, Plan
from common.runtime.cache import Cache, Object
from common.runtime.key import Key, Watched
from common.runtime.writer import Writer

NAME, ANNOTATION = "dashboard-annotation", "example.com/dashboard"
KINDS: dict[str, type[Object]] = {KIND: RayCluster, "Service": Service}
Observed = tuple[RayCluster, Service | None]
"""A RayCluster, and the Service in front of its head."""


def keys_of(obj: Object) -> list[Key]:
    """Return the RayClusters to reconcile: the changed one, or the owner of a Service."""
    own, owners = obj.metadata.name, obj.metadata.owner_references
    names = (
        [own]
        if isinstance(obj, RayCluster)
        else [each.name for each in owners if each.kind == KIND]
    )
    return [Key(obj.metadata.namespace, name) for name in names]


async def observe(key: Key, now: datetime, *, cache: Cache) -> Observed | None:  # noqa: ARG001  (the kit passes it)
    """Read the cache; None for a RayCluster that is gone or managed by another controller."""
    cluster = cache.get(RayCluster, key.namespace, key.name)
    if (
        cluster is None
        or cluster.raw_spec.get("managedBy", labels.MANAGED_BY_US) != labels.MANAGED_BY_US
    ):
        return None
    return cluster, cache.get(Service, key.namespace, dashboard_service(cluster))


def address(cluster: RayCluster, service: Service | None) -> str | None:
    """Return the dashboard's address; None without a head Service that is ours."""
    if service is None or service.metadata.deletion_timestamp or foreign_service(service, cluster):
        return None
    host = f"{service.metadata.name}.{service.metadata.namespace}.svc"
    return next(
        (f"http://{host}:{each.port}" for each in service.spec.ports if each.name == "dashboard"),
        None,
    )


def make_plan(observed: Observed, now: datetime) -> Plan[Action]:  # noqa: ARG001  (the kit passes it)
    """Return the one write that is needed, or none; pure."""
    meta, wanted = observed[0].metadata, address(*observed)
    if meta.deletion_timestamp or meta.annotations.get(ANNOTATION) == wanted:
        return Plan(note="nothing to do")
    patch = {
        "metadata": {"resourceVersion": meta.resource_version, "annotations": {ANNOTATION: wanted}}
    }
    write = Patch(resource=resources.RAY_CLUSTER, name=meta.name, patch=patch)
    return Plan(actions=(write,), note=f"the dashboard is at {wanted}")


def writer(observed: Observed, *, kube: client.Kube, cache: Cache) -> Writer:
    """Return what writes a RayCluster, and what belongs to it."""
    return Writer(kube, cache, KINDS, resource=resources.RAY_CLUSTER, root=observed[0])


def assemble(kube: client.Kube, clock: Clock) -> nullcontext[replica.ReconcilerParts]:
    """Put the controller together; nothing is to be closed at its end."""
    cache, watched = Cache(), Watched(kinds=KINDS, root=RayCluster, keys_of=keys_of)
    recorder = events.EventRecorder(
        kube, resources.RAY_CLUSTER, controller=NAME, instance=NAME, clock=clock
    )
    writer_of = partial(writer, kube=kube, cache=cache)
    by = executor.Executor[Observed](recorder, clock=clock, writer_of=writer_of)
    reconcile = reconciler.Reconciler(partial(observe, cache=cache), make_plan, by.execute)
    queue = controller.Controller(NAME, watched, cache=cache, clock=clock)
    parts = replica.ReconcilerParts(
        controller=queue, reconciler=reconcile, cache=cache, events=recorder
    )
    return nullcontext(parts)


if __name__ == "__main__":
    main = partial(replica.run, assemble=assemble, version="0.1.0")
    process.exit_process(process.run(NAME, main))
