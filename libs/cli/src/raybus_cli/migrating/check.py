"""`raybus migrate check`: reports what would change if raybus replaced KubeRay's operator.

The report covers the settings of the operator, the Ray objects, and other objects that affect the
replacement.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeVar, cast

import msgspec

from cluster_reconciler import settings
from cluster_reconciler.observe import Observer
from common import errors
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.api.ray_service import RayService
from common.clock import Clock, SystemClock
from common.kube.client import KubeClient
from common.ray import serve_writer
from common.ray.dashboard import Dashboard, ProxiedDashboard
from common.runtime.cache import Cache
from raybus_cli.doctor.checks import STALE_LEASE_AGE
from raybus_cli.doctor.facts import Lease
from raybus_cli.doctor.operator import InstalledOperator
from raybus_cli.migrating import clusters, findings, jobs, report, services, switches
from raybus_cli.migrating.findings import MigrationFinding, Subject
from raybus_cli.migrating.report import MigrationReport, OperatorSummary
from raybus_cli.migrating.survey import (
    ClusterSurroundings,
    Hook,
    InstalledOperators,
    Scope,
    Survey,
)
from raybus_cli.migrating.switches import Configuration

_GROUP: Final = "ray.io"
_KINDS: Final = ("rayclusters", "rayservices", "rayjobs", "raycronjobs")
_TAKEN_OVER: Final = frozenset({"*", *_KINDS, *(f"{kind}/*" for kind in _KINDS)})


def check_operators(installed: InstalledOperators, *, now: datetime) -> Iterator[MigrationFinding]:
    """Yield the findings about the installed operators."""
    if installed.kuberay is None:
        yield findings.report_unread(
            "Deployments of all namespaces may not be listed, so the presence of KubeRay is "
            "unknown",
            "request 'list deployments'",
        )
        return
    if not installed.kuberay:
        yield findings.add_note(
            "no KubeRay operator is installed; its own configuration cannot be compared"
        )
    if len(installed.kuberay) > 1:
        names = ", ".join(operator.place for operator in installed.kuberay)
        yield findings.add_note(
            f"several KubeRay operators are installed ({names}); the first one's configuration "
            "is compared"
        )
    running = [operator for operator in installed.kuberay if operator.is_running]
    watcher = installed.raybus.get("watcher")
    if running and watcher is not None and watcher.is_running:
        yield _check_both_running(running[0], watcher, installed.leases or [], now=now)


def _check_both_running(
    kuberay: InstalledOperator,
    watcher: InstalledOperator,
    leases: Iterable[Lease],
    *,
    now: datetime,
) -> MigrationFinding:
    """Return the finding that KubeRay's operator and raybus both run.

    It is only a note if they watch different namespaces, or share the Lease of the leader election.
    """
    if kuberay.namespaces and watcher.namespaces and not kuberay.namespaces & watcher.namespaces:
        return findings.add_note(
            "KubeRay and raybus both run, in namespaces of their own: KubeRay in "
            f"{', '.join(sorted(kuberay.namespaces))}, "
            f"raybus in {', '.join(sorted(watcher.namespaces))}"
        )
    named = (
        watcher.environment.get(name) for name in ("RAYBUS_LEASE_NAMESPACE", "RAYBUS_NAMESPACE")
    )
    place = next((name for name in named if name), watcher.namespace)
    elects = kuberay.flags.get("enable-leader-election", "true") != "false"
    theirs = kuberay.flags.get("leader-election-namespace") or kuberay.namespace
    if elects and place == theirs:
        holder = next(
            (lease.spec.holder_identity for lease in leases if _is_held(lease, theirs, now=now)),
            None,
        )
        return findings.add_note(
            f"KubeRay and raybus both run and share the Lease {theirs}/ray-operator-leader, held "
            f"by {holder or 'no process'}: "
            "only its holder works"
        )
    stop = f"'kubectl -n {kuberay.namespace} scale deployment {kuberay.name} --replicas 0'"
    return findings.report_change(
        f"KubeRay ({kuberay.place}) and raybus ({watcher.namespace}) both run and share no Lease: "
        "both write to the same objects",
        f"stop one of them: {stop}",
    )


def _is_held(lease: Lease, namespace: str, *, now: datetime) -> bool:
    renewed = lease.spec.renew_time
    return (
        lease.metadata.namespace == namespace
        and renewed is not None
        and now - renewed <= STALE_LEASE_AGE
    )


def check_gateways(
    services: Iterable[RayService], around: ClusterSurroundings
) -> Iterator[MigrationFinding]:
    """Yield a finding if upgrades in steps are requested and the Gateway API is not installed."""
    asking = [service.metadata for service in services if serve_writer.asks_for_steps(service)]
    if asking and not around.has_gateway_api:
        name = f"{asking[0].namespace}/{asking[0].name}"
        text = f"RayService {name} is to be upgraded in steps, and the Gateway API is not installed"
        yield findings.add_note(text, "as with KubeRay, its upgrades wait until it is")


def check_webhooks(around: ClusterSurroundings) -> Iterator[MigrationFinding]:
    """Yield a finding for each webhook configuration of KubeRay's operator.

    Once the operator is gone, its webhooks no longer answer, and the API server rejects every
    change.
    """
    if around.webhooks is None:
        yield findings.report_unread(
            "webhook configurations may not be listed",
            "request 'list' on them, or check them yourself",
        )
        return
    for kind, configuration in around.webhooks:
        hooks = [
            hook
            for hook in configuration.webhooks
            if _is_kuberays(hook) and hook.failure_policy != "Ignore"
        ]
        if hooks:
            yield findings.report_change(
                f"{kind} {configuration.metadata.name} sends changes to KubeRay's operator: "
                "without it they are rejected",
                f"'kubectl delete {kind.lower()} {configuration.metadata.name}' before KubeRay "
                "stops; 'kubectl apply -k deploy/admission' checks the same without a server",
            )


def _is_kuberays(hook: Hook) -> bool:
    """Return whether KubeRay's operator probably answers a webhook.

    Such a webhook is served by a Service in the cluster, and checks objects that raybus takes over.
    """
    if not hook.client_config.get("service"):
        return False
    return any(
        _GROUP in cast("list[str]", rule.get("apiGroups") or [])
        and _TAKEN_OVER & set(cast("list[str]", rule.get("resources") or []))
        for rule in hook.rules
    )


MAX_CONCURRENT_OBJECTS: Final = 16
"""Maximum number of objects that are checked concurrently."""
DASHBOARD_SECONDS: Final = 5.0
T = TypeVar("T", RayCluster, RayService, RayJob, RayCronJob)


def refuse_write() -> None:
    """Raise `Invariant`, because a check must not write; the client calls this before a write."""
    raise errors.Invariant("a check must not write")


async def check(
    kube: KubeClient,
    *,
    raybus_namespace: str,
    namespace: str | None,
    dashboard: Dashboard | None = None,
    clock: Clock | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> MigrationReport:
    """Return the report on replacing KubeRay's operator by raybus.

    `raybus_namespace` is the existing or planned namespace of raybus. `namespace` restricts the
    check to one namespace; None checks all namespaces that the configuration watches. `progress` is
    called with a line of text before slow steps.
    """
    kube.may_write = refuse_write
    clock = clock or SystemClock()
    survey = Survey(kube)
    installed = await survey.read_installation(raybus_namespace)
    configuration, environment, notes = await _read_configuration(kube, installed)
    scope = _build_scope(namespace, configuration)
    state = await survey.read_state(scope)
    around = await survey.read_surroundings()
    notes = [
        *check_operators(installed, now=clock.now()),
        *notes,
        *check_webhooks(around),
        *check_gateways(state.list_all(RayService), around),
        *(findings.report_unread(kind) for kind in dict.fromkeys(survey.unread)),
    ]
    through = dashboard or ProxiedDashboard(kube, seconds=DASHBOARD_SECONDS)
    progress(
        f"checking {state.count(RayService)} RayServices, {state.count(RayJob)} RayJobs and "
        f"{state.count(RayCluster)} RayClusters"
    )
    objects = [
        *await _judge_services(kube, state, configuration, through, clock),
        *await _judge_clusters(kube, state, configuration, clock),
        *(jobs.judge_job(job, configuration.jobs) for job in _sort(state.list_all(RayJob))),
        *(
            jobs.judge_cron_job(cron_job, configuration.jobs)
            for cron_job in _sort(state.list_all(RayCronJob))
        ),
    ]
    first = installed.kuberay[0] if installed.kuberay else None
    return MigrationReport(
        verdict=report.decide_verdict(notes, objects),
        kuberay=[_summarize_operator(operator) for operator in installed.kuberay or []],
        raybus=[_summarize_operator(operator) for operator in installed.raybus.values()],
        settings=switches.list_settings(first) if first is not None else [],
        environment=environment,
        findings=notes,
        objects=objects,
    )


async def _read_configuration(
    kube: KubeClient, installed: InstalledOperators
) -> tuple[Configuration, dict[str, str], list[MigrationFinding]]:
    """Return the configuration that raybus would have, its environment variables, and the findings.

    If raybus is installed, this is its own configuration; differences from KubeRay's are findings.
    Otherwise it is translated from KubeRay's configuration.
    """
    served = await settings.list_served_versions(kube)

    def parse_adapted(environment: dict[str, str], file: str | None) -> Configuration:
        parsed = switches.build_configuration(environment, file)
        return msgspec.structs.replace(parsed, clusters=settings.adapt(parsed.clusters, served))

    theirs = installed.kuberay[0] if installed.kuberay else None
    environment, notes = (
        switches.translate_settings(theirs, installed.kuberay_file)
        if theirs is not None
        else ({}, [])
    )
    wanted = parse_adapted(environment, installed.kuberay_file)
    if not installed.raybus:
        return wanted, environment, notes
    own: dict[str, str] = {}
    for operator in installed.raybus.values():
        own |= operator.environment
    actual = parse_adapted(own, installed.raybus_file)
    if theirs is not None:
        text = "raybus is configured differently from KubeRay: "
        remedy = (
            "set the variables that 'migrate check -o yaml' names under environment, on all "
            "services"
        )
        notes += [
            findings.report_change(text + difference, remedy)
            for difference in switches.find_differences(wanted, actual)
        ]
    return actual, environment, notes


def _build_scope(namespace: str | None, configuration: Configuration) -> Scope:
    if namespace is not None:
        return (namespace,)
    return configuration.namespaces or (None,)


async def _judge_services(
    kube: KubeClient, state: Cache, configuration: Configuration, dashboard: Dashboard, clock: Clock
) -> list[Subject]:
    observers = services.build_observers(kube, dashboard, state, configuration.services, clock)
    return await _judge_each(
        state.list_all(RayService),
        lambda service: services.judge(service, observers, now=clock.now()),
    )


async def _judge_clusters(
    kube: KubeClient, state: Cache, configuration: Configuration, clock: Clock
) -> list[Subject]:
    reads = Observer(kube, state, configuration.clusters)
    return await _judge_each(
        state.list_all(RayCluster), lambda cluster: clusters.judge(cluster, reads, now=clock.now())
    )


async def _judge_each(
    objects: Iterable[T], judge: Callable[[T], Awaitable[Subject]]
) -> list[Subject]:
    """Return the result of `judge` for each object, ordered by namespace and name.

    At most `MAX_CONCURRENT_OBJECTS` objects are judged at the same time.
    """
    slots = asyncio.Semaphore(MAX_CONCURRENT_OBJECTS)

    async def judge_one(obj: T) -> Subject:
        async with slots:
            return await judge(obj)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(judge_one(obj)) for obj in _sort(objects)]
    return [task.result() for task in tasks]


def _sort(objects: Iterable[T]) -> list[T]:
    return sorted(objects, key=lambda obj: (obj.metadata.namespace, obj.metadata.name))


def _summarize_operator(operator: InstalledOperator) -> OperatorSummary:
    return OperatorSummary(
        namespace=operator.namespace,
        name=operator.name,
        version=operator.version,
        replicas=operator.replicas,
        ready=operator.ready,
    )
