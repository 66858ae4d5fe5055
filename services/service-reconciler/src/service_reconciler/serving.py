"""Point the Services of a RayService at a cluster, and label the pods that they select.

The head Service is switched first. A Service that selects the right cluster is not changed,
whatever else users changed in it. A Service of another owner is never changed. Spec rayservice
§10.3, §11.2; acceptance 74, 75, 92.

During a stepwise upgrade a Serve Service may remain from a different upgrade strategy, and its
clients do not use the route (ADR 14). The Service is then shared: it selects pods of both clusters
by a label of raybus, so that its clients reach the whole capacity at every step. All pods of the
active cluster have the label while the route sends requests to that cluster. Once the route sends
requests to the pending cluster, a pod of that cluster gets the label when a Serve replica runs in
the pod.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from common import labels
from common.api.core import Pod, Service
from common.api.opaque import Body
from common.errors import InvalidSpec
from common.kube.resources import POD, SERVICE
from common.ray import head_service, owner, serve_proxies
from common.ray.view import CHECKS_KEPT
from common.runtime.actions import Action, ActionEvents, Create, Delete, Patch, warning
from common.upgrade.service_conditions import Reason
from service_reconciler import events
from service_reconciler.actions import change_metadata
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.problems import ServiceProblem
from service_reconciler.reasons import EventReason
from service_reconciler.resources import services

MAX_FAILED_CHECKS: Final = 2
"""Number of failed health checks, of the last three, after which the head pod gets no requests.

KubeRay takes the head pod out of the Service at the first slow answer.
"""


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The actions that switch the Services to another cluster, or why they cannot be switched."""

    actions: tuple[Action, ...] = ()
    problem: ServiceProblem | None = None


def plan_switch(observed: Observed, view: ClusterView) -> Switch:
    """Return the switch of the head Service and the Serve Service to the cluster `view`.

    No Serve Service is created if a Gateway receives the requests.
    """
    service, config = observed.service, view.cluster.raw_spec
    pairs: list[tuple[Service | None, Body]] = []
    if not observed.is_incremental or observed.serve_service is not None:
        try:
            serve = services.serve(
                service, view.name, config=config, is_shared=_is_shared(observed)
            )
        except InvalidSpec as problem:
            return _build_refusal(EventReason.NO_SERVE_PORT, str(problem))
        pairs.append((observed.serve_service, serve))
    has_cluster_ip = observed.config.head_service_has_cluster_ip
    head = services.head(service, view.name, config=config, has_cluster_ip=has_cluster_ip)
    pairs.insert(0, (observed.head_service, head))
    for have, _ in pairs:
        if have is not None and (other := owner.other(have.metadata, service.metadata)) is not None:
            text = (
                f"Service {have.metadata.name} belongs to {other}; choose another name or delete it"
            )
            return _build_refusal(EventReason.SERVICE_NOT_OWNED, text)
    writes = (_plan_write(have, want) for have, want in pairs)
    return Switch(actions=tuple(write for write in writes if write is not None))


def plan_preview(observed: Observed, *, is_wanted: bool) -> list[Action]:
    """Return the action that points the preview Service at the pending cluster, or deletes it.

    Empty if nothing has to change, or if the Service belongs to another owner.
    """
    service, pending, policy = observed.service, observed.pending, observed.policy
    have = observed.preview_service
    if have is not None and not owner.owns(service.metadata, have.metadata):
        return []
    if is_wanted and pending is not None and policy is not None and policy.preview.service:
        want = services.preview(service, pending.name, config=pending.cluster.raw_spec)
        write = _plan_write(have, want) if want["spec"]["ports"] else None
        return [] if write is None else [msgspec.structs.replace(write, is_side=True)]
    if have is None or have.metadata.deletion_timestamp is not None:
        return []
    meta, report = have.metadata, events.SERVICE_DELETED.format(have.metadata.namespaced_name)
    return [Delete(resource=SERVICE, name=meta.name, uid=meta.uid, events=report, is_side=True)]


def _build_refusal(event: EventReason, text: str) -> Switch:
    return Switch(problem=ServiceProblem(Reason.PROGRESS_DEADLINE_EXCEEDED, text, event=event))


def _plan_write(have: Service | None, want: Body) -> Action | None:
    """Return the action that creates or patches a Service; None if it selects the right pods.

    A patch keeps the metadata of the Service and its cluster IP, which is immutable.
    """
    where = f"{want['metadata']['namespace']}/{want['metadata']['name']}"
    if have is None:
        return Create(resource=SERVICE, body=want, events=events.SERVICE_CREATED.format(where))
    if services.selects_same(have, want):
        return None
    return Patch(
        resource=SERVICE,
        name=have.metadata.name,
        patch=head_service.repoint(have, want),
        events=events.SERVICE_UPDATED.format(where),
    )


def plan_head_labels(observed: Observed) -> list[Action]:
    """Return the actions that set the label `ray.io/serve` of head pods.

    The Serve Service selects head pods by this label.
    """
    actions: list[Action] = []
    for view in observed.views:
        if (head := view.head) is None:
            continue
        excluded = observed.service.spec.exclude_head_pod_from_serve_svc
        value = decide_head_label(head, view.proxy_answers, excluded=excluded)
        if value != head.metadata.labels.get(labels.SERVE):
            report = events.HEAD_LABELLED.format(value, head.metadata.namespaced_name)
            actions.append(
                change_metadata(POD, head.metadata, report, labels={labels.SERVE: value})
            )
    return actions


def decide_head_label(pod: Pod, answers: Sequence[bool], *, excluded: bool) -> str:
    """Return the value for the label `ray.io/serve` of a head pod.

    `answers` are the results of its health checks, newest last. One successful check sets the label
    to true; `MAX_FAILED_CHECKS` failed checks set it to false.
    """
    if excluded:
        return "false"
    current = pod.metadata.labels.get(labels.SERVE, "")
    if not answers:
        return current or "false"
    if answers[-1]:
        return "true"
    failed = answers[-CHECKS_KEPT:].count(False)
    return "false" if current != "true" or failed >= MAX_FAILED_CHECKS else "true"


def plan_shared_labels(observed: Observed) -> list[Action]:
    """Return the actions that add or remove the label by which a shared Service selects pods."""
    wanted, actions = _list_members(observed), list[Action]()
    for pod in (pod for view in (*observed.views, *observed.draining) for pod in view.pods):
        meta, value = (
            pod.metadata,
            observed.service.metadata.name if pod.metadata.uid in wanted else None,
        )
        if meta.deletion_timestamp is None and (value is None) == (labels.SERVES in meta.labels):
            note = (
                f"The pod {meta.namespaced_name} is not labelled {labels.SERVES}, so the Serve "
                "Service selects it wrongly "
                "until the upgrade ends: "
            )
            report = ActionEvents(failure=warning(EventReason.FAILED_TO_LABEL_POD, "Update", note))
            actions.append(change_metadata(POD, meta, report, labels={labels.SERVES: value}))
    return actions


def _is_shared(observed: Observed) -> bool:
    """Return whether the Serve Service may select pods by raybus's label.

    All pods to be selected must have the label first, or the Service would lose serving pods.
    """
    wanted = _list_members(observed)
    pods = [pod for view in observed.views for pod in view.pods]
    offered = [pod for pod in pods if pod.metadata.uid in wanted and pod.is_running_and_ready]
    is_labelled = _is_on(observed) or all(labels.SERVES in pod.metadata.labels for pod in offered)
    return _is_needed(observed) and bool(offered) and is_labelled


def _is_needed(observed: Observed) -> bool:
    """Return whether the Serve Service should select pods of both clusters."""
    return (
        observed.own_serve_service is not None
        and observed.is_incremental
        and len(observed.views) == 2
    )


def _is_on(observed: Observed) -> bool:
    return (
        observed.serve_service is not None and labels.SERVES in observed.serve_service.spec.selector
    )


def _list_members(observed: Observed) -> set[str]:
    """Return the uids of the pods that should have raybus's label.

    After the upgrade these are all pods of the remaining cluster, as long as the Serve Service
    still selects by the label.
    """
    active, pending, shares = observed.active, observed.pending, observed.record.clusters
    if active is None or pending is None or not _is_needed(observed):
        return (
            {pod.metadata.uid for pod in active.pods}
            if active is not None and _is_on(observed)
            else set()
        )
    pods = (
        list(active.pods)
        if active.name not in shares or shares[active.name].weight > 0
        else list[Pod]()
    )
    if pending.name in shares and shares[pending.name].weight > 0:
        details, head = pending.serve.details, pending.cluster.status.head.pod_ip
        nodes = (
            serve_proxies.reported(details).nodes(details, head, pending.cluster.raw_spec)
            if details is not None
            else frozenset[str]()
        )
        # A pod that had a running replica keeps the label: its readiness follows its replicas.
        pods += [
            pod
            for pod in pending.pods
            if pod.status.pod_ip in nodes or labels.SERVES in pod.metadata.labels
        ]
    return {pod.metadata.uid for pod in pods}
