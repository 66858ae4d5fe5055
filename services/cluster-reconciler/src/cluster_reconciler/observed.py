"""What a plan and a status may know: one frozen value per reconcile, and questions about it that need nothing else."""

from collections import defaultdict
from datetime import datetime
from functools import cached_property

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.reasons import ConditionType
from common import conditions, labels
from common.api.core import Job, Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.runtime.actions import SILENT, ActionEvents, Create, IfExists


class Child(msgspec.Struct, frozen=True):
    """A child outside the state stream: it is looked up at the API server, and created when absent."""

    resource: Resource
    name: str
    body: Body = {}
    events: ActionEvents = SILENT
    """The Events of its creation."""
    if_exists: IfExists = IfExists.ACCEPT
    wanted: Body = {}
    """The wanted content, of a child that is compared with what it should be."""

    @property
    def creation(self) -> Create:
        """Return the creation of the child."""
        return Create(resource=self.resource, body=self.body, events=self.events, if_exists=self.if_exists)


class Observed(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A RayCluster and what belongs to it; a pod that is Terminating counts until it is gone (spec raycluster §9.1)."""

    cluster: RayCluster
    config: Config
    now: datetime
    pods: tuple[Pod, ...] = ()
    """All pods of the cluster that have a Ray node type, by name."""
    head_services: tuple[Service, ...] = ()
    headless_service: Service | None = None
    serve_service: Service | None = None
    cleanup_jobs: tuple[Job, ...] = ()
    """Jobs that clean Redis up."""
    absent: dict[Resource, Child] = {}
    """Children that the latest live read did not find."""
    found: dict[Resource, Body] = {}
    """Children that the latest live read found; one that was observed lately is in neither."""
    predecessors: tuple[Child, ...] = ()
    """Children that the latest live read found, of a deleted cluster of the same name."""
    network_policies: tuple[Body, ...] | None = None
    """All that carry the cluster's label, when some are to be changed; None when they were observed lately to be as they should be."""
    budgets: tuple[Body, ...] | None = None
    """All PodDisruptionBudgets that carry it, likewise."""
    awaited: frozenset[str] = frozenset()
    """Pods that we asked to go and that are still there, by uid."""
    taken: frozenset[str] = frozenset()
    """Pod names that another owner's pod holds, or that belonged to a pod that is gone."""

    @cached_property
    def heads(self) -> tuple[Pod, ...]:
        """Return the head pods."""
        return tuple(pod for pod in self.pods if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD)

    @cached_property
    def workers(self) -> tuple[Pod, ...]:
        """Return the worker pods of all groups, also of groups that the spec no longer has."""
        return tuple(pod for pod in self.pods if pod.metadata.labels.get(labels.NODE_TYPE) == labels.WORKER)

    @cached_property
    def by_group(self) -> dict[str, tuple[Pod, ...]]:
        """Return the pods by worker group: one pass over the pods, however many groups there are."""
        found: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            found[pod.metadata.labels.get(labels.GROUP, "")].append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    @cached_property
    def by_name(self) -> dict[str, Pod]:
        """Return the worker pods by name, whatever their group."""
        return {pod.metadata.name: pod for pod in self.workers}

    def creations(self, *resources: Resource) -> list[Create]:
        """Return the creation of those children of these kinds that are absent."""
        return [self.absent[each].creation for each in resources if each in self.absent]

    def is_waiting_for(self, pods: tuple[Pod, ...]) -> bool:
        """Return whether one of these pods was asked to go by us and is still there (spec raycluster §10)."""
        return any(pod.metadata.uid in self.awaited for pod in pods)

    def holds(self, kind: ConditionType) -> bool:
        """Return whether a condition of the status is True."""
        return conditions.is_true(self.cluster.status.conditions, kind)


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def irrecoverable(pod: Pod) -> str:
    """Return why a pod cannot recover; empty when it may, or is being deleted already (spec raycluster §9.5; acceptance cases 44, 45, 60, 61).

    Only a phase that ends a pod, or a Ray container that has ended and may not restart, counts: crash loops, image pull errors,
    failing probes and a long Pending never do.
    """
    kind, name, phase = pod.metadata.labels.get(labels.NODE_TYPE, ""), pod.metadata.name, pod.status.phase
    if is_terminating(pod):
        return ""
    if phase in {"Failed", "Succeeded"}:
        return (
            f"The {kind} Pod {name} status is {phase} which is a terminal state. KubeRay will "
            "delete the Pod and create new Pods in the next reconciliation if necessary."
        )
    if phase == "Running" and pod.spec.restart_policy == "Never" and (ended := _terminated(pod)):
        return (
            f"The Pod status of the {kind} Pod {name} is {phase}, and the Ray container "
            f"terminated status is {ended}. The container is unable to restart due to its restart policy "
            f"{pod.spec.restart_policy}, so KubeRay will delete it."
        )
    return ""


def described(pod: Pod) -> str:
    """Describe a pod as the Events about its end do."""
    return (
        f"Pod status: {pod.status.phase}; Pod restart policy: {pod.spec.restart_policy}; "
        f"Ray container terminated status: {_terminated(pod) or 'nil'}"
    )


def _terminated(pod: Pod) -> str:
    """Describe the end of the Ray container, which is found by the name of the first container; empty when it has not ended."""
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    ended = next((each.state.terminated for each in pod.status.container_statuses if each.name == name), None)
    return "" if ended is None else f"exit code {ended.exit_code} {ended.reason}".strip()
