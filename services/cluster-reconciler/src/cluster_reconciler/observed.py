"""The observed state of one RayCluster, and values that are computed from that state alone."""

from collections import defaultdict
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.reasons import ConditionType
from common import conditions, labels
from common.api.core import Job, Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import FeatureGate
from common.kube.resources import Resource
from common.ray import cluster_traits as traits
from common.runtime.actions import Create, IfExists

_ENDED: Final = frozenset({"Succeeded", "Failed"})
OVERDUE_AFTER: Final = timedelta(seconds=30)
"""A pod's node counts as lost if the pod still exists this long after the end of its grace period.

A running kubelet kills the containers when the grace period ends, and reports that within seconds.
"""


ChildAddress = tuple[Resource, str]
"""Kind and name of an object in the namespace of the cluster."""


class ChildCreation(Create, frozen=True, kw_only=True):
    """Action that creates a child whose kind is not on the bus; the API server is read first."""

    if_exists: IfExists = IfExists.ACCEPT
    expected: Body | None = None
    """Desired content, if an existing child is compared with it; None for other children."""

    @property
    def address(self) -> ChildAddress:
        return self.resource, self.body["metadata"]["name"]


class PkiState(msgspec.Struct, frozen=True, kw_only=True):
    """The certificates of a cluster as read from the API server, without private keys."""

    objects: dict[ChildAddress, Body] = {}
    """Issuers, Certificates and Secrets by kind and name; Secrets without their values."""
    is_served: bool = True
    """Whether the API server serves cert-manager's kinds."""
    problem: str = ""
    """Why the certificates cannot be read; empty if they can be read."""
    read_at: datetime
    changed_at: datetime | None = None
    """When this replica last changed the certificate of the head or of the workers."""
    awaited_since: datetime | None = None
    """Since when the certificates need a change or are not issued; None if they are complete."""
    was_awaited: bool = False
    """Whether pods could not use the certificates at the previous read."""
    is_fresh: bool = True
    """Whether the certificates were read for this reconcile."""


class Observed(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A RayCluster and its children.

    A pod that is being deleted counts as existing until it is gone (spec raycluster §9.1) or
    overdue.
    """

    cluster: RayCluster
    config: Config
    now: datetime
    is_valid: bool
    """Whether `refusals.find_violation_plan` finds no reason to refuse the cluster.

    Of an invalid spec only `RayCluster.intent` is read.
    """
    pods: tuple[Pod, ...] = ()
    """All pods with the cluster's label and a Ray node type."""
    head_services: tuple[Service, ...] = ()
    headless_service: Service | None = None
    serve_service: Service | None = None
    cleanup_jobs: tuple[Job, ...] = ()
    """Jobs that remove the cluster's keys from Redis."""
    absent: dict[Resource, ChildCreation] = {}
    """Children that this reconcile looked for at the API server and did not find, by kind."""
    live_children: dict[Resource, Body] = {}
    """Children that this reconcile read from the API server.

    A child that an earlier reconcile read a short time ago is not read again. It is neither here
    nor in `absent`.
    """
    predecessors: tuple[ChildAddress, ...] = ()
    """Children of a deleted cluster of the same name that still exist."""
    network_policies: tuple[Body, ...] | None = None
    """All NetworkPolicies with the cluster's label; None if none needs a change."""
    budgets: tuple[Body, ...] | None = None
    """All PodDisruptionBudgets with the cluster's label; None if none needs a change."""
    pki: PkiState | None = None
    """The certificates of a cluster with mutual TLS; None for other clusters."""
    pending_deletions: frozenset[str] = frozenset()
    """Uids of pods whose deletion this replica requested and that still exist."""
    unavailable_names: frozenset[str] = frozenset()
    """Names that new pods cannot get: another owner's pod or a deleted pod has them."""

    @cached_property
    def heads(self) -> tuple[Pod, ...]:
        return tuple(
            pod for pod in self.pods if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD
        )

    @cached_property
    def workers(self) -> tuple[Pod, ...]:
        """The worker pods of all groups, including groups that the spec no longer has."""
        return tuple(
            pod for pod in self.pods if pod.metadata.labels.get(labels.NODE_TYPE) == labels.WORKER
        )

    @cached_property
    def by_group(self) -> dict[str, tuple[Pod, ...]]:
        """The pods of each group that count as existing, computed in one pass over the pods."""
        pods_by_group: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.present:
            pods_by_group[pod.metadata.labels.get(labels.GROUP, "")].append(pod)
        return {name: tuple(pods) for name, pods in pods_by_group.items()}

    @cached_property
    def overdue(self) -> tuple[Pod, ...]:
        """Pods that still exist long after their grace period, for example on a lost node."""
        return tuple(pod for pod in self.pods if is_overdue(pod, now=self.now))

    @cached_property
    def present(self) -> tuple[Pod, ...]:
        """The pods that count as existing: all pods except overdue workers.

        Overdue workers are replaced. An overdue head counts, because it may still run and write to
        the cluster's store.
        """
        lost = {pod.metadata.uid for pod in self.overdue} - {pod.metadata.uid for pod in self.heads}
        return tuple(pod for pod in self.pods if pod.metadata.uid not in lost)

    @property
    def overdue_at(self) -> datetime | None:
        """When the next pod that is being deleted becomes overdue; None if no pod will."""
        ends = (pod.metadata.deletion_timestamp for pod in self.pods)
        due = (end + OVERDUE_AFTER for end in ends if end is not None)
        return min((moment for moment in due if moment > self.now), default=None)

    @cached_property
    def by_name(self) -> dict[str, Pod]:
        return {pod.metadata.name: pod for pod in self.workers}

    def list_creations(self, *resources: Resource) -> list[ChildCreation]:
        """Return the actions that create the missing children of these kinds."""
        return [self.absent[resource] for resource in resources if resource in self.absent]

    @cached_property
    def addresses(self) -> tuple[list[str], list[str]]:
        """Sorted IP addresses of the head and of the workers; cached, because there may be many."""
        return _list_addresses(self.heads), _list_addresses(self.workers)

    @property
    def may_shrink(self) -> bool:
        """Whether surplus pods may be deleted although the autoscaler has not named them."""
        return self.config.deletes_random_pods or not traits.is_autoscaling(self.cluster)

    def is_waiting_for(self, pods: tuple[Pod, ...]) -> bool:
        """Return whether this replica has deleted any of these pods (spec raycluster §10)."""
        return any(pod.metadata.uid in self.pending_deletions for pod in pods)

    @property
    def is_to_be_suspended(self) -> bool:
        """Whether the cluster is suspended, is about to be suspended, or has not resumed yet.

        False while its conditions contradict each other, which validation refuses.
        """
        states = (ConditionType.SUSPENDING, ConditionType.SUSPENDED)
        held_states = sum(map(self.holds, states))
        has_conditions = FeatureGate.STATUS_CONDITIONS in self.config.gates
        is_wanted = self.cluster.intent.suspend is True
        return held_states < len(states) and (is_wanted or (has_conditions and held_states > 0))

    def holds(self, kind: ConditionType) -> bool:
        """Return whether a condition of the cluster's status is true."""
        return conditions.is_true(self.cluster.status.conditions, kind)


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_overdue(pod: Pod, *, now: datetime) -> bool:
    """Return whether a pod still exists `OVERDUE_AFTER` after its grace period."""
    ends_at = pod.metadata.deletion_timestamp
    return ends_at is not None and now >= ends_at + OVERDUE_AFTER


def _list_addresses(pods: tuple[Pod, ...]) -> list[str]:
    """Return the sorted addresses of pods that have not ended and are not being deleted."""
    lives = (pod for pod in pods if pod.status.phase not in _ENDED and not is_terminating(pod))
    return sorted(pod.status.pod_ip for pod in lives if pod.status.pod_ip)


def find_irrecoverable_reason(pod: Pod, cluster: RayCluster) -> str:
    """Return why a pod cannot recover; empty if it may recover, or if it is being deleted.

    Only a terminal phase counts, or a Ray container that has ended and may not restart. Crash
    loops, image pull errors, failing probes and a long Pending phase never count (spec raycluster
    §9.5; acceptance cases 44, 45, 60, 61).
    """
    kind, name, phase = (
        pod.metadata.labels.get(labels.NODE_TYPE, ""),
        pod.metadata.name,
        pod.status.phase,
    )
    if is_terminating(pod):
        return ""
    if phase in _ENDED:
        return (
            f"The {kind} Pod {name} status is {phase} which is a terminal state. KubeRay will "
            "delete the Pod and create new Pods in the next reconciliation if necessary."
        )
    if (
        phase == "Running"
        and pod.spec.restart_policy == "Never"
        and (ended := _describe_termination(pod, cluster))
    ):
        return (
            f"The Pod status of the {kind} Pod {name} is {phase}, and the Ray container "
            f"terminated status is {ended}. The container is unable to restart due to its restart "
            "policy "
            f"{pod.spec.restart_policy}, so KubeRay will delete it."
        )
    return ""


def describe_pod(pod: Pod, cluster: RayCluster) -> str:
    """Return phase, restart policy and termination of a pod, for the Event about its deletion."""
    return (
        f"Pod status: {pod.status.phase}; Pod restart policy: {pod.spec.restart_policy}; "
        f"Ray container terminated status: {_describe_termination(pod, cluster) or 'nil'}"
    )


def _describe_termination(pod: Pod, cluster: RayCluster) -> str:
    """Return the exit code and reason of the Ray container; empty if it has not ended."""
    if all(status.state.terminated is None for status in pod.status.container_statuses):
        return ""
    container = traits.ray_container(cluster, pod)
    name = "" if container is None else container.name
    ended = next(
        (
            status.state.terminated
            for status in pod.status.container_statuses
            if status.name == name
        ),
        None,
    )
    return "" if ended is None else f"exit code {ended.exit_code} {ended.reason}".strip()
