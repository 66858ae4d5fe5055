"""`raybus migrate check`: reports what would change if raybus replaced KubeRay's operator.

The report covers the settings of the operator, the Ray objects, and other objects that affect the
take-over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeVar, cast

import msgspec

from cluster_reconciler import settings
from cluster_reconciler.observe import Observer
from common import errors, labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import Clock, SystemClock
from common.kube.client import KubeClient
from common.ray import serve_writer
from common.ray.dashboard import Dashboard, ProxiedDashboard
from common.runtime.cache import Cache
from raybus_cli.doctor.checks import STALE
from raybus_cli.doctor.facts import Lease
from raybus_cli.doctor.operator import Operator
from raybus_cli.migrating import clusters, findings, report, services, switches
from raybus_cli.migrating.findings import Finding, Subject
from raybus_cli.migrating.report import OperatorSummary, Report
from raybus_cli.migrating.survey import Hook, Installation, Job, Scope, Surroundings, Survey
from raybus_cli.migrating.switches import Configuration

_OVER: Final = frozenset({"Complete", "Failed"})
_GROUP: Final = "ray.io"
_TAKEN_OVER: Final = frozenset(
    {"rayclusters", "rayservices", "*", "rayclusters/*", "rayservices/*"}
)
_KEEP: Final = "raybus runs no jobs: let them end before KubeRay stops, or run them elsewhere"


def operators(found: Installation, *, now: datetime) -> Iterator[Finding]:
    """Yield the findings about the installed operators."""
    if found.kuberay is None:
        yield findings.unread(
            "Deployments of all namespaces may not be listed, so the presence of KubeRay is "
            "unknown",
            "request 'list deployments'",
        )
        return
    if not found.kuberay:
        yield findings.note(
            "no KubeRay operator is installed; its own configuration cannot be compared"
        )
    if len(found.kuberay) > 1:
        names = ", ".join(each.place for each in found.kuberay)
        yield findings.note(
            f"several KubeRay operators are installed ({names}); the first one's configuration "
            "is compared"
        )
    running = [each for each in found.kuberay if each.is_running]
    watcher = found.raybus.get("watcher")
    if running and watcher is not None and watcher.is_running:
        yield _both(running[0], watcher, found.leases or [], now=now)


def _both(
    kuberay: Operator, watcher: Operator, leases: Iterable[Lease], *, now: datetime
) -> Finding:
    """Return the finding for the case that both operators run.

    It is only a note if they watch different namespaces, or share the leader-election Lease.
    """
    if kuberay.namespaces and watcher.namespaces and not kuberay.namespaces & watcher.namespaces:
        return findings.note(
            "KubeRay and raybus both run, in namespaces of their own: KubeRay in "
            f"{', '.join(sorted(kuberay.namespaces))}, "
            f"raybus in {', '.join(sorted(watcher.namespaces))}"
        )
    named = (
        watcher.environment.get(name) for name in ("RAYBUS_LEASE_NAMESPACE", "RAYBUS_NAMESPACE")
    )
    place = next((each for each in named if each), watcher.namespace)
    elects = kuberay.flags.get("enable-leader-election", "true") != "false"
    theirs = kuberay.flags.get("leader-election-namespace") or kuberay.namespace
    if elects and place == theirs:
        holder = next(
            (each.spec.holder_identity for each in leases if _is_held(each, theirs, now=now)), None
        )
        return findings.note(
            f"KubeRay and raybus both run and share the Lease {theirs}/ray-operator-leader, held "
            f"by {holder or 'no process'}: "
            "only its holder works"
        )
    stop = f"'kubectl -n {kuberay.namespace} scale deployment {kuberay.name} --replicas 0'"
    return findings.change(
        f"KubeRay ({kuberay.place}) and raybus ({watcher.namespace}) both run and share no Lease: "
        "both write to the same objects",
        f"stop one of them: {stop}",
    )


def _is_held(lease: Lease, namespace: str, *, now: datetime) -> bool:
    renewed = lease.spec.renew_time
    return lease.metadata.namespace == namespace and renewed is not None and now - renewed <= STALE


def gateways(services: Iterable[RayService], around: Surroundings) -> Iterator[Finding]:
    """Yield a finding if upgrades in steps are requested and the Gateway API is not installed."""
    asking = [each.metadata for each in services if serve_writer.asks_for_steps(each)]
    if asking and not around.has_gateway_api:
        name = f"{asking[0].namespace}/{asking[0].name}"
        text = f"RayService {name} is to be upgraded in steps, and the Gateway API is not installed"
        yield findings.note(text, "as with KubeRay, its upgrades wait until it is")


def webhooks(around: Surroundings) -> Iterator[Finding]:
    """Yield the webhooks that KubeRay's operator answers.

    They would reject every change once the operator is gone.
    """
    if around.webhooks is None:
        yield findings.unread(
            "webhook configurations may not be listed",
            "request 'list' on them, or check them yourself",
        )
        return
    for kind, each in around.webhooks:
        held = [
            hook for hook in each.webhooks if _is_kuberays(hook) and hook.failure_policy != "Ignore"
        ]
        if held:
            yield findings.change(
                f"{kind} {each.metadata.name} sends changes to KubeRay's operator: without it "
                "they are rejected",
                f"'kubectl delete {kind.lower()} {each.metadata.name}' before KubeRay stops; "
                "'kubectl apply -k deploy/admission' checks the same without a server",
            )


def _is_kuberays(hook: Hook) -> bool:
    """Return whether a webhook concerns objects that raybus takes over.

    Only webhooks that are answered by a Service in the cluster count.
    """
    if not hook.client_config.get("service"):
        return False
    return any(
        _GROUP in cast("list[str]", rule.get("apiGroups") or [])
        and _TAKEN_OVER & set(cast("list[str]", rule.get("resources") or []))
        for rule in hook.rules
    )


def jobs(around: Surroundings) -> Iterator[Subject]:
    """Yield the RayJobs and RayCronJobs, because raybus runs neither."""
    for each in around.jobs or []:
        yield _job("RayJob", each, is_over=each.status.job_deployment_status in _OVER)
    for each in around.cron_jobs or []:
        yield _job("RayCronJob", each, is_over=each.spec.suspend)


def _job(kind: str, job: Job, *, is_over: bool) -> Subject:
    meta = job.metadata
    if job.spec.managed_by not in {None, "", labels.MANAGED_BY_US}:
        found = findings.note("belongs to neither operator: spec.managedBy names another one")
    elif is_over:
        state = (
            "is suspended"
            if kind == "RayCronJob"
            else f"is over ({job.status.job_deployment_status})"
        )
        found = findings.note(
            f"{state}; raybus does not change it, and does not delete it after its time to live"
        )
    else:
        state = job.status.job_deployment_status or "not begun"
        found = findings.unsupported(f"no controller would run it ({state})", _KEEP)
    return findings.subject(kind, meta.namespace, meta.name, [found])


AT_ONCE: Final = 16
"""Maximum number of objects that are checked concurrently."""
DASHBOARD_SECONDS: Final = 5.0
T = TypeVar("T", RayCluster, RayService)


def read_only() -> None:
    """Raise `Invariant`: installed as the client's write check, because a check must not write."""
    raise errors.Invariant("a check must not write")


async def check(
    kube: KubeClient,
    *,
    raybus_namespace: str,
    namespace: str | None,
    dashboard: Dashboard | None = None,
    clock: Clock | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Return the report on a take-over.

    `namespace` restricts the check to one namespace; None checks all namespaces that the
    configuration watches. `progress` is called with a line of text before slow steps.
    """
    kube.may_write = read_only
    clock = clock or SystemClock()
    survey = Survey(kube)
    installed = await survey.installation(raybus_namespace)
    configuration, environment, found = await _configured(kube, installed)
    scope = _scope(namespace, configuration)
    state = await survey.state(scope)
    around = await survey.surroundings(scope)
    found = [
        *operators(installed, now=clock.now()),
        *found,
        *webhooks(around),
        *gateways(state.list_all(RayService), around),
        *(findings.unread(each) for each in dict.fromkeys(survey.unread)),
    ]
    through = dashboard or ProxiedDashboard(kube, seconds=DASHBOARD_SECONDS)
    progress(
        f"checking {state.count(RayService)} RayServices and {state.count(RayCluster)} RayClusters"
    )
    objects = [
        *await _services(kube, state, configuration, through, clock),
        *await _clusters(kube, state, configuration, clock),
        *jobs(around),
    ]
    first = installed.kuberay[0] if installed.kuberay else None
    return Report(
        verdict=report.verdict(found, objects),
        kuberay=[_summary(each) for each in installed.kuberay or []],
        raybus=[_summary(each) for each in installed.raybus.values()],
        settings=switches.settings_of(first) if first is not None else [],
        environment=environment,
        findings=found,
        objects=objects,
    )


async def _configured(
    kube: KubeClient, installed: Installation
) -> tuple[Configuration, dict[str, str], list[Finding]]:
    """Return the configuration that raybus would have, its environment variables, and the findings.

    An installed raybus has its own configuration, and differences from KubeRay's are findings.
    Otherwise KubeRay's configuration is translated.
    """
    served = await settings.served(kube)

    def adapted(environment: dict[str, str], file: str | None) -> Configuration:
        found = switches.configuration(environment, file)
        return msgspec.structs.replace(found, clusters=settings.adapt(found.clusters, served))

    theirs = installed.kuberay[0] if installed.kuberay else None
    environment, found = (
        switches.translated(theirs, installed.kuberay_file) if theirs is not None else ({}, [])
    )
    wanted = adapted(environment, installed.kuberay_file)
    if not installed.raybus:
        return wanted, environment, found
    own: dict[str, str] = {}
    for each in installed.raybus.values():
        own |= each.environment
    held = adapted(own, installed.raybus_file)
    if theirs is not None:
        text = "raybus is configured differently from KubeRay: "
        remedy = (
            "set the variables that 'migrate check -o yaml' names under environment, on all "
            "services"
        )
        found += [
            findings.change(text + each, remedy) for each in switches.differences(wanted, held)
        ]
    return held, environment, found


def _scope(namespace: str | None, configuration: Configuration) -> Scope:
    if namespace is not None:
        return (namespace,)
    return configuration.namespaces or (None,)


async def _services(
    kube: KubeClient, state: Cache, configuration: Configuration, dashboard: Dashboard, clock: Clock
) -> list[Subject]:
    observers = services.observers(kube, dashboard, state, configuration.services, clock)
    return await _each(
        state.list_all(RayService), lambda each: services.judge(each, observers, now=clock.now())
    )


async def _clusters(
    kube: KubeClient, state: Cache, configuration: Configuration, clock: Clock
) -> list[Subject]:
    reads = Observer(kube, state, configuration.clusters)
    return await _each(
        state.list_all(RayCluster), lambda each: clusters.judge(each, reads, now=clock.now())
    )


async def _each(objects: Iterable[T], judge: Callable[[T], Awaitable[Subject]]) -> list[Subject]:
    """Judge objects concurrently; results are ordered by namespace and name."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(each: T) -> Subject:
        async with slots:
            return await judge(each)

    ordered = sorted(objects, key=lambda each: (each.metadata.namespace, each.metadata.name))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in ordered]
    return [each.result() for each in tasks]


def _summary(found: Operator) -> OperatorSummary:
    return OperatorSummary(
        namespace=found.namespace,
        name=found.name,
        version=found.version,
        replicas=found.replicas,
        ready=found.ready,
    )
