"""Which writes make both Services of a RayService select a cluster (spec rayservice §10.3).

The head Service goes first. A Service that selects the right cluster does not change, whatever else users changed in it; one
that belongs to another owner is refused (acceptance 92).
"""

import msgspec

from common import labels
from common.api.core import Service
from common.api.opaque import Body
from common.errors import InvalidSpec
from common.kube.resources import POD, SERVICE
from common.ray import owner
from common.runtime.actions import Action, Create, Patch
from service_reconciler import events, plain_service
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.reasons import EventReason
from service_reconciler.resources import services
from service_reconciler.serve import head_label
from service_reconciler.serve.problems import ServiceProblem


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The writes, or why there are none."""

    actions: tuple[Action, ...] = ()
    problem: ServiceProblem | None = None


def point_at(observed: Observed, view: ClusterView) -> Switch:
    """Return what makes both Services select a cluster."""
    config = view.cluster.raw_spec
    try:
        serve = _serve_service(observed, view)
    except InvalidSpec as problem:
        return Switch(problem=ServiceProblem(event=EventReason.NO_SERVE_PORT, message=str(problem)))
    head = services.head(
        observed.service, view.name, config=config, has_cluster_ip=observed.config.head_service_has_cluster_ip
    )
    pairs = [(observed.head_service, head), *([(observed.serve_service, serve)] if serve is not None else [])]
    for have, _ in pairs:
        if have is not None and (other := owner.other(have.metadata, observed.service.metadata)) is not None:
            text = f"Service {have.metadata.name} belongs to {other}; choose another name or delete it"
            return Switch(problem=ServiceProblem(event=EventReason.SERVICE_NOT_OWNED, message=text))
    writes = (_write(have, want) for have, want in pairs)
    return Switch(actions=tuple(write for write in writes if write is not None))


def head_labels(observed: Observed) -> list[Action]:
    """Return the labels by which the Serve Service selects head pods, where they are not what they should be."""
    actions: list[Action] = []
    excluded = observed.service.spec.exclude_head_pod_from_serve_svc
    for view in (observed.active, observed.pending):
        head = view.head if view is not None else None
        if view is None or head is None:
            continue
        value = head_label.wanted(head, view.proxy_answers, excluded=excluded)
        if value == head.metadata.labels.get(labels.SERVE):
            continue
        meta = head.metadata
        report = events.head_labelled(value, f"{meta.namespace}/{meta.name}")
        patch = {"metadata": {"resourceVersion": meta.resource_version, "labels": {labels.SERVE: value}}}
        actions.append(Patch(resource=POD, name=meta.name, patch=patch, events=report, is_side=True))
    return actions


def _serve_service(observed: Observed, view: ClusterView) -> Body | None:
    """Return the Serve Service; where a Gateway takes the requests, one of an earlier strategy is kept, none is made."""
    if observed.is_incremental and observed.serve_service is None:
        return None
    is_shared = plain_service.is_shared(observed)
    return services.serve(observed.service, view.name, config=view.cluster.raw_spec, is_shared=is_shared)


def _write(have: Service | None, want: Body) -> Action | None:
    where = f"{want['metadata']['namespace']}/{want['metadata']['name']}"
    if have is None:
        return Create(resource=SERVICE, body=want, events=events.service_created(where))
    if services.selects_same(have, want):
        return None
    report = events.service_updated(where)
    return Patch(resource=SERVICE, name=have.metadata.name, patch=_patch(have, want), events=report)


def _patch(have: Service, want: Body) -> Body:
    """Replace the spec but for the cluster IP, which cannot change; metadata stays the user's."""
    foreign = dict.fromkeys(set(have.spec.selector) - set(want["spec"]["selector"]))
    spec = {key: value for key, value in want["spec"].items() if key != "clusterIP"}
    return {
        "metadata": {"resourceVersion": have.metadata.resource_version},
        "spec": {**spec, "selector": {**foreign, **want["spec"]["selector"]}},
    }
