"""Reads a cluster and makes the report: the settings of KubeRay's operator, and what raybus, with the same settings, would change."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from cluster_reconciler import settings
from cluster_reconciler.observe import Observer
from common import errors
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import Clock, SystemClock
from common.kube.client import KubeClient
from common.ray.dashboard import Dashboard, ProxiedDashboard
from common.runtime.cache import Cache
from raybus_cli.doctor.operator import Operator
from raybus_cli.migrating import clusters, findings, report, services, surroundings, switches
from raybus_cli.migrating.facts import Installation
from raybus_cli.migrating.findings import Finding, Subject
from raybus_cli.migrating.report import OperatorSummary, Report
from raybus_cli.migrating.survey import Scope, Survey
from raybus_cli.migrating.switches import Configuration

AT_ONCE: Final = 16
"""Objects that are checked side by side."""
DASHBOARD_SECONDS: Final = 5.0
T = TypeVar("T", RayCluster, RayService)


def read_only() -> None:
    """Reject a write: a check changes nothing."""
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
    """Return what taking over would change; `namespace` narrows that to one; `progress` receives the slow steps."""
    kube.may_write = read_only
    clock = clock or SystemClock()
    survey = Survey(kube)
    installed = await survey.installation(raybus_namespace)
    configuration, environment, found = await _configured(kube, installed)
    scope = _scope(namespace, configuration)
    state = await survey.state(scope)
    around = await survey.surroundings(scope)
    found = [
        *surroundings.operators(installed, now=clock.now()),
        *found,
        *surroundings.webhooks(around),
        *surroundings.gateways(state.all(RayService), around),
        *(findings.unread(each) for each in dict.fromkeys(survey.unread)),
    ]
    through = dashboard or ProxiedDashboard(kube, seconds=DASHBOARD_SECONDS)
    progress(f"checking {state.count(RayService)} RayServices and {state.count(RayCluster)} RayClusters")
    objects = [
        *await _services(kube, state, configuration, through, clock),
        *await _clusters(kube, state, configuration, clock),
        *surroundings.jobs(around),
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


async def _configured(kube: KubeClient, installed: Installation) -> tuple[Configuration, dict[str, str], list[Finding]]:
    """Return the configuration of raybus here: as it is installed, else that of KubeRay."""
    served = await settings.served(kube)

    def adapted(environment: dict[str, str], file: str | None) -> Configuration:
        found = switches.configuration(environment, file)
        return msgspec.structs.replace(found, clusters=settings.adapt(found.clusters, served))

    theirs = installed.kuberay[0] if installed.kuberay else None
    environment, found = switches.translated(theirs, installed.kuberay_file) if theirs is not None else ({}, [])
    wanted = adapted(environment, installed.kuberay_file)
    if not installed.raybus:
        return wanted, environment, found
    own: dict[str, str] = {}
    for each in installed.raybus.values():
        own |= each.environment
    held = adapted(own, installed.raybus_file)
    if theirs is not None:
        text = "raybus is configured differently from KubeRay: "
        remedy = "set the variables that 'migrate check -o yaml' names under environment, on all services"
        found += [findings.change(text + each, remedy) for each in switches.differences(wanted, held)]
    return held, environment, found


def _scope(namespace: str | None, configuration: Configuration) -> Scope:
    if namespace is not None:
        return (namespace,)
    return configuration.namespaces or (None,)


async def _services(
    kube: KubeClient, state: Cache, configuration: Configuration, dashboard: Dashboard, clock: Clock
) -> list[Subject]:
    observers = services.observers(kube, dashboard, state, configuration.services, clock)
    return await _each(state.all(RayService), lambda each: services.judge(each, observers, now=clock.now()))


async def _clusters(kube: KubeClient, state: Cache, configuration: Configuration, clock: Clock) -> list[Subject]:
    reads = Observer(kube, state, configuration.clusters)
    return await _each(state.all(RayCluster), lambda each: clusters.judge(each, reads, now=clock.now()))


async def _each(objects: Iterable[T], judge: Callable[[T], Awaitable[Subject]]) -> list[Subject]:
    """Judge objects side by side, by namespace and name."""
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
        namespace=found.namespace, name=found.name, version=found.version, replicas=found.replicas, ready=found.ready
    )
