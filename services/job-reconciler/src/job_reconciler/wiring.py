"""Build the parts of job-reconciler and run them."""

import os
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace
from prometheus_client import REGISTRY, CollectorRegistry

from common import labels
from common.api import ray_cluster, ray_cron_job, ray_job
from common.api.core import EndpointSlice, Job, Pod, Service
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import DeploymentState, RayJob
from common.bus.nats import Bus as NatsBus
from common.bus.subjects import TreeKind
from common.clock import Clock
from common.feature_gates import FeatureGate
from common.kube.client import Kube, KubeClient
from common.kube.resources import RAY_CRON_JOB, RAY_JOB
from common.ray import dashboard as dashboards
from common.ray import job_events as events_of_jobs
from common.ray import operator_file, owner
from common.ray.cluster_dashboards import MIN_WORKERS
from common.ray.dashboard import Dashboard
from common.ray.jobs_api import JobsApi
from common.runtime import replica
from common.runtime.cache import Cache, Object
from common.runtime.controller import Controller
from common.runtime.event_publisher import EventBus, Published, Publisher
from common.runtime.events import EventRecorder
from common.runtime.executor import Executor
from common.runtime.key import Key, KeyPriority, Watched
from common.runtime.lookup import Lookup
from common.runtime.quarantine_release import QuarantineRelease
from common.runtime.reconciler import Reconciler
from common.runtime.replica import ReconcilerParts
from common.runtime.writer import Writer
from common.settings import Settings
from common.version import OPERATOR_VERSION
from job_reconciler.cron import plan as cron_plan
from job_reconciler.cron.observe import CronObserver
from job_reconciler.cron.plan import ObservedCronJob
from job_reconciler.execute import Execution
from job_reconciler.metrics import EVENTS, JobMetrics, initialize
from job_reconciler.observe import Observer
from job_reconciler.observed import Observed
from job_reconciler.phases.finished import FINALIZER
from job_reconciler.plan import ENDED, make_plan
from job_reconciler.reasons import EventReason
from job_reconciler.settings import Config, read_config

CONTROLLER: Final = "rayjob"
EVENT_SOURCE: Final = "raybus.io/job-reconciler"
KINDS: Final[dict[str, type[Object]]] = {
    "RayJob": RayJob,
    "RayCronJob": RayCronJob,
    "RayCluster": RayCluster,
    "Job": Job,
    "Pod": Pod,
    "Service": Service,
    "EndpointSlice": EndpointSlice,
}

PUBLISHED: Final = Published(
    family=events_of_jobs.FAMILY,
    counter=EVENTS,
    lost_reason=EventReason.EVENT_LOST,
    action="Publish",
    what="the job's step",
)


def assemble(  # noqa: PLR0913  (this function names every part)
    kube: Kube,
    dashboard: Dashboard,
    config: Config,
    *,
    clock: Clock,
    instance: str,
    bus: EventBus,
    registry: CollectorRegistry | None = None,
) -> ReconcilerParts:
    """Build the reconcilers on the given clients; with a `registry`, export their metrics there."""
    cache = Cache()
    jobs = JobsApi(dashboard, kube, cache, clock)
    observer = Observer(cache, Lookup(kube, cache, clock), jobs, config, clock)
    metrics = JobMetrics(cache)
    if registry is not None:
        registry.register(metrics)
    recorder = partial(EventRecorder, kube, controller=EVENT_SOURCE, instance=instance, clock=clock)
    job_events, cron_events = recorder(regarding=RAY_JOB), recorder(regarding=RAY_CRON_JOB)
    publisher = Publisher(PUBLISHED, bus, clock, job_events.record)
    executor = Executor[Observed](
        job_events,
        clock=clock,
        writer_of=lambda observed: Writer(kube, cache, KINDS, resource=RAY_JOB, root=observed.job),
        handlers=Execution(kube, jobs, observer, metrics, publisher).handlers,
    )
    reconcile_job = Reconciler(observer.observe, make_plan, executor.execute)
    cron_executor = Executor[ObservedCronJob](
        cron_events,
        clock=clock,
        writer_of=lambda observed: Writer(
            kube, cache, KINDS, resource=RAY_CRON_JOB, root=observed.cron_job
        ),
    )
    reconcile_cron_job = Reconciler(
        CronObserver(cache, config).observe,
        lambda observed, _now: cron_plan.make_plan(observed, config.gates),
        cron_executor.execute,
    )
    release_job = QuarantineRelease(kube, job_events, FINALIZER)

    async def reconcile(key: Key, now: datetime) -> datetime | None:
        if key.kind == ray_cron_job.KIND:
            return (
                await reconcile_cron_job(key, now) if FeatureGate.CRON_JOB in config.gates else None
            )
        return await reconcile_job(key, now)

    async def release(key: Key, now: datetime) -> datetime | None:
        """Remove raybus's finalizer from a RayJob; a RayCronJob has no such finalizer."""
        return None if key.kind else await release_job(key, now)

    async def report_quarantine(key: Key, about: ObjectMeta, reason: str) -> None:
        await (cron_events if key.kind else job_events).report_quarantine(key, about, reason)

    return ReconcilerParts(
        controller=Controller(
            CONTROLLER,
            Watched(
                kinds=KINDS,
                root=RayJob,
                other_roots={ray_cron_job.KIND: RayCronJob},
                keys_of=partial(find_keys, cache),
            ),
            cache=cache,
            clock=clock,
            rank=partial(rank, cache),
            forget=(observer.forget, metrics.forget),
            report_quarantine=report_quarantine,
            release=release,
        ),
        reconciler=reconcile,
        cache=cache,
        events=job_events,
        other_events=(cron_events,),
        tree=TreeKind.JOB,
        least_workers=MIN_WORKERS,
    )


def find_keys(cache: Cache, obj: Object) -> Iterator[Key]:
    """Yield the keys to enqueue when an object changes (spec rayjob §5.1).

    An object that raybus created leads to its RayJob or RayCronJob by its controller reference.
    """
    meta = obj.metadata
    if isinstance(obj, RayCronJob):
        yield Key(meta.namespace, meta.name, ray_cron_job.KIND)
    elif isinstance(obj, RayJob):
        yield Key(meta.namespace, meta.name)
        if cron_job := owner.find_controller(meta, ray_cron_job.KIND):
            yield Key(meta.namespace, cron_job, ray_cron_job.KIND)
    elif isinstance(obj, EndpointSlice):
        service = cache.get(Service, meta.namespace, meta.labels.get(labels.SERVICE_NAME, ""))
        keys = () if service is None else find_keys(cache, service)
        yield from (key for key in keys if _needs_address(cache, key))
    elif job := owner.find_controller(meta, ray_job.KIND):
        yield Key(meta.namespace, job)
    elif name := owner.find_controller(meta, ray_cluster.KIND) or meta.labels.get(labels.CLUSTER):
        cluster = cache.get(RayCluster, meta.namespace, name)
        job = (
            _find_last_job(cache, meta.namespace, name)
            if cluster is None
            else owner.find_controller(cluster.metadata, ray_job.KIND)
        )
        if job is not None and not _is_minor(cache, obj, job):
            yield Key(meta.namespace, job)


def _needs_address(cache: Cache, key: Key) -> bool:
    """Return whether changed addresses of the dashboard can affect a RayJob.

    They can while the dashboard does not answer, and if the RayJob is not in the cache yet.
    """
    job = cache.get(RayJob, key.namespace, key.name)
    return job is None or _is_dashboard_silent(job)


def _is_dashboard_silent(job: RayJob) -> bool:
    return job.status.job_status_check_failure_start_time is not None


def _find_last_job(cache: Cache, namespace: str, cluster: str) -> str | None:
    """Return the name of the RayJob whose status names the deleted `cluster`, or None.

    The pods of a deleted cluster may still exist, and the plan of an ended attempt waits for them.
    The name of the RayJob is that of the cluster without its suffix.
    """
    name = cluster.rpartition("-")[0]
    job = cache.get(RayJob, namespace, name)
    return name if job is not None and job.status.ray_cluster_name == cluster else None


def _is_minor(cache: Cache, obj: Object, job_name: str) -> bool:
    """Return whether a changed object of a RayJob's cluster cannot affect the RayJob.

    No object affects an ended RayJob. While the job runs, the head pod is the only pod that affects
    it. Objects of other kinds affect it only while the dashboard does not answer, because its
    address may have changed.
    """
    job = cache.get(RayJob, obj.metadata.namespace, job_name)
    if job is None:
        return False
    state = job.status.job_deployment_status
    if isinstance(obj, Pod):
        matters_to_run = obj.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD
    else:
        matters_to_run = _is_dashboard_silent(job)
    return state in ENDED or (state == DeploymentState.RUNNING and not matters_to_run)


def rank(cache: Cache, key: Key) -> KeyPriority:
    """Return the priority of a key in the work queue: steady if the RayJob has ended.

    Separate tasks reconcile steady keys. After a start there may be thousands of ended RayJobs, for
    which running RayJobs must not wait.
    """
    job = None if key.kind else cache.get(RayJob, key.namespace, key.name)
    has_ended = job is not None and job.status.job_deployment_status in ENDED
    return KeyPriority(is_steady=has_ended)


def configure(settings: Settings, environ: Mapping[str, str]) -> Config:
    """Return the settings from KubeRay's environment variables and file, and the shared settings.

    Raises `InvalidSpec` if a value or the file is wrong.
    """
    gates = settings.feature_gates
    config = read_config(
        gates,
        environ,
        cluster_domain=settings.cluster_domain,
        batch_scheduler=operator_file.read_batch_scheduler(environ, gates),
    )
    deletes_job = config.deletes_job_itself or operator_file.read_deletes_jobs(environ)
    return replace(config, deletes_job_itself=deletes_job)


async def main(settings: Settings) -> None:
    """Run job-reconciler until cancelled."""
    config, bus = configure(settings, os.environ), NatsBus(settings)

    @asynccontextmanager
    async def assembled(kube: KubeClient, clock: Clock) -> AsyncGenerator[ReconcilerParts]:
        async with dashboards.reached(kube, settings) as dashboard:
            initialize()
            yield assemble(
                kube,
                dashboard,
                config,
                clock=clock,
                instance=socket.gethostname(),
                bus=bus,
                registry=REGISTRY,
            )

    await replica.run(settings, assembled, version=OPERATOR_VERSION, bus=bus)
