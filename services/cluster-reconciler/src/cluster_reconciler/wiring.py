"""Build the parts of cluster-reconciler and run them."""

import os
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from cluster_reconciler import settings as own_settings
from cluster_reconciler.config import Config
from cluster_reconciler.execute import Execution
from cluster_reconciler.metrics import ClusterMetrics
from cluster_reconciler.observe import Observer
from cluster_reconciler.observed import Observed
from cluster_reconciler.plan import make_plan
from cluster_reconciler.reasons import RayClusterState
from cluster_reconciler.redis_cleanup import FINALIZER
from common.api import ray_cluster
from common.api.core import Job, Pod, Service
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.kube.client import Kube, KubeClient
from common.kube.resources import RAY_CLUSTER
from common.ray import cluster_traits as traits
from common.runtime import replica
from common.runtime.cache import Cache, Object
from common.runtime.controller import Controller
from common.runtime.events import EventRecorder
from common.runtime.executor import Executor
from common.runtime.key import Key, KeyPriority, Watched
from common.runtime.quarantine_release import QuarantineRelease
from common.runtime.reconciler import Reconciler
from common.runtime.writer import Writer
from common.settings import Settings

CONTROLLER: Final = "raycluster"
EVENT_SOURCE: Final = "raybus.io/cluster-reconciler"
KINDS: Final[dict[str, type[Object]]] = {
    "RayCluster": RayCluster,
    "Pod": Pod,
    "Service": Service,
    "Job": Job,
}


class App(replica.ReconcilerParts, frozen=True, kw_only=True):
    """The parts of cluster-reconciler, including the observer that reads the state of clusters."""

    observer: Observer


def assemble(
    kube: Kube,
    config: Config,
    *,
    clock: Clock,
    instance: str,
    registry: CollectorRegistry = REGISTRY,
) -> App:
    """Build the reconciler on the Kubernetes client `kube`; export its metrics to `registry`."""
    cache = Cache()
    events = EventRecorder(
        kube, RAY_CLUSTER, controller=EVENT_SOURCE, instance=instance, clock=clock
    )
    observer = Observer(kube, cache, config)
    execution = Execution(observer)
    executor = Executor[Observed](
        events,
        clock=clock,
        writer_of=lambda observed: Writer(
            kube, cache, KINDS, resource=RAY_CLUSTER, root=observed.cluster
        ),
        handlers=execution.handlers,
    )
    ClusterMetrics(cache, observer.memories, registry)
    return App(
        controller=Controller(
            CONTROLLER,
            Watched(kinds=KINDS, root=RayCluster, keys_of=keys_of),
            cache=cache,
            clock=clock,
            rank=partial(rank, cache=cache),
            forget=(observer.forget,),
            report_quarantine=events.report_quarantine,
            release=QuarantineRelease(kube, events, FINALIZER),
        ),
        reconciler=Reconciler(
            observer.observe,
            make_plan,
            partial(execution.execute, executor),
            recheck=observer.recheck,
        ),
        cache=cache,
        events=events,
        observer=observer,
    )


def keys_of(obj: Object) -> Iterator[Key]:
    """Yield the key of the RayCluster to enqueue when an object changes (spec raycluster §5.1).

    The RayCluster is the object itself or its controller; a label that names one does not count.
    """
    meta = obj.metadata
    if isinstance(obj, RayCluster):
        yield Key(meta.namespace, meta.name)
        return
    for owner in meta.owner_references:
        if (
            owner.controller
            and owner.kind == ray_cluster.KIND
            and owner.api_version.startswith("ray.io/")
        ):
            yield Key(meta.namespace, owner.name)


def rank(key: Key, cache: Cache) -> KeyPriority:
    """Return the priority of a cluster in the work queue; small new clusters come first.

    A cluster is steady if it is ready and has all its workers. Separate tasks reconcile the steady
    clusters.
    """
    cluster = cache.get(RayCluster, key.namespace, key.name)
    if cluster is None:
        return KeyPriority(size=0)
    is_complete = cluster.status.ready_worker_replicas == cluster.status.desired_worker_replicas
    return KeyPriority(
        traits.desired_workers(cluster),
        is_steady=cluster.status.state == RayClusterState.READY and is_complete,
    )


async def main(settings: Settings) -> None:
    """Run cluster-reconciler until cancelled."""
    config = own_settings.configure(settings, os.environ)

    @asynccontextmanager
    async def assembled(kube: KubeClient, clock: Clock) -> AsyncGenerator[App]:
        adapted = own_settings.adapt(config, await own_settings.list_served_versions(kube))
        yield assemble(kube, adapted, clock=clock, instance=socket.gethostname())

    await replica.run(settings, assembled, version=config.version)
