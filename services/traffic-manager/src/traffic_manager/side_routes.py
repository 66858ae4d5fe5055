"""The routes beside the weighted one that an UpgradePolicy asks for: for previews, and for mirrored requests.

`<RayService>-httproute-preview` sends requests with a header to the pending cluster.
`<RayService>-httproute-mirror` sends requests of some methods to the active cluster, and copies a
part of them to the pending one, as long as that one gets no requests of its own. Both hang on our
Gateway and match more than the weighted route does, which stays as it is. The mirror goes with the
first write that moves weights, for it sends to the active cluster alone.

No object of another owner is changed. A route whose name is taken is not created, an upgrade waits
for its mirror route, and service-reconciler reports the object (`problems`).

A user's own route has their Gateway, and no route of ours beside it.
"""

from collections.abc import Iterator

import msgspec

from common import names
from common.api.gateway import HttpRoute, RouteRule
from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE
from common.names import SideRole
from common.runtime.actions import Action, Create, Delete, EmitEvent, Patch
from common.upgrade import side_routes
from common.upgrade.policy import UpgradePolicy
from traffic_manager import events
from traffic_manager.actions import SIDE_ROUTES
from traffic_manager.migration.progression import Progression
from traffic_manager.migration.state import Side
from traffic_manager.observed import ClusterView, Observed
from traffic_manager.resources import gateway_api
from traffic_manager.resources.gateway_api import MATCH


def writes(observed: Observed, pending: Side, progression: Progression) -> Iterator[Action]:
    """Yield what both routes lack while a cluster is pending with this side."""
    is_shown = progression.judged is not None and not progression.leaves and pending.ready > 0
    yield from _preview(observed, observed.policy if is_shown else None)
    yield from mirror(observed, pending.proven if progression.mirrors else 0)
    held = observed.side_routes.mirror
    if held is not None and gateway_api.copies_all(held):
        yield EmitEvent(event=events.MIRROR_UNSUPPORTED)


def _preview(observed: Observed, policy: UpgradePolicy | None) -> Iterator[Action]:
    """Yield what makes requests with the header of a preview go to the pending cluster; None for no such route."""
    have, pending = observed.side_routes.preview, observed.pending
    wanted = side_routes.wanted(observed.service, policy)
    if policy is None or pending is None or SideRole.PREVIEW not in wanted:
        yield from _removal(have)
        return
    header = {
        "type": "Exact",
        "name": policy.preview.header_name,
        "value": policy.preview.header_value,
    }
    # a mirror matches a method, which counts for more than a header
    methods: list[Json] = [
        {},
        *({"method": each} for each in (policy.mirror.methods if policy.mirror else ())),
    ]
    rule = {
        "matches": [{**MATCH, **each, "headers": [header]} for each in methods],
        "backendRefs": [_backend(pending)],
    }
    if have is None:
        yield from _creation(observed, SideRole.PREVIEW, rule)
    elif not _holds(have, rule):
        yield from _removal(have)  # and the next reconcile creates it


def mirror(observed: Observed, proven: int) -> Iterator[Action]:
    """Yield what makes requests be copied to a pending cluster with this proven capacity; none for 0.

    The duration counts from the creation of the route, so another percentage or other methods are written into it.
    """
    have, policy = observed.side_routes.mirror, observed.policy
    if proven == 0 or policy is None or policy.mirror is None or observed.pair is None:
        yield from _removal(have)
        return
    percent, (active, pending) = min(policy.mirror.percent, proven), observed.pair
    copy = _backend(pending)
    del copy["weight"]
    rule = {
        "matches": [{**MATCH, "method": each} for each in policy.mirror.methods],
        "filters": [
            {"type": "RequestMirror", "requestMirror": {"percent": percent, "backendRef": copy}}
        ],
        "backendRefs": [_backend(active)],
    }
    if have is None:
        yield from _creation(observed, SideRole.MIRROR, rule)
    elif have.metadata.deletion_timestamp is None and not _holds(have, rule):
        patch: Json = {"metadata": gateway_api.patch_meta(have), "spec": {"rules": [rule]}}
        yield Patch(
            resource=HTTP_ROUTE,
            name=have.metadata.name,
            patch=patch,
            chain=SIDE_ROUTES,
            is_side=True,
        )


def removal(observed: Observed) -> tuple[Action, ...]:
    """Return what deletes both routes."""
    return tuple(action for have in observed.side_routes.existing for action in _removal(have))


def _removal(have: HttpRoute | None) -> Iterator[Action]:
    if have is not None and have.metadata.deletion_timestamp is None:
        meta, report = have.metadata, events.DELETED[HTTP_ROUTE].of(have.metadata.namespaced_name)
        yield Delete(
            resource=HTTP_ROUTE,
            name=meta.name,
            uid=meta.uid,
            events=report,
            chain=SIDE_ROUTES,
            is_side=True,
        )


def _creation(observed: Observed, role: SideRole, rule: Json) -> Iterator[Create]:
    """Yield the creation of a side route, unless its name is taken."""
    meta, weighted = observed.service.metadata, observed.our_route
    name = names.side_route(meta.name, role)
    if any(each.metadata.name == name for each in observed.side_routes.foreign):
        return
    spec: Json = {
        "parentRefs": [{"name": names.gateway(meta.name), "namespace": meta.namespace}],
        "rules": [rule],
    }
    users = {} if weighted is None else msgspec.json.decode(weighted.spec_json, type=Json)
    if hostnames := users.get(
        "hostnames"
    ):  # a route without the hosts of our weighted one would come after it
        spec["hostnames"] = hostnames
    body = gateway_api.manifest(HTTP_ROUTE, meta, name, spec)
    report = events.SIDE_ROUTE_CREATED.of(f"{meta.namespace}/{name}")
    yield Create(resource=HTTP_ROUTE, body=body, events=report, chain=SIDE_ROUTES, is_side=True)


def _holds(have: HttpRoute, rule: Json) -> bool:
    """Return whether a route has this one rule."""
    wanted, namespace = msgspec.convert(rule, RouteRule), have.metadata.namespace
    return len(have.spec.rules) == 1 and all(
        _essence(each, namespace) == _essence(wanted, namespace) for each in have.spec.rules
    )


def _essence(rule: RouteRule, namespace: str) -> tuple[object, ...]:
    """Return what counts of a rule: its matches, backends and mirrors."""
    return (
        list(rule.matches),
        [each.resolved(namespace) for each in rule.backend_refs],
        gateway_api.mirrors(rule, namespace),
    )


def _backend(view: ClusterView) -> Json:
    return msgspec.to_builtins(gateway_api.backend(view.cluster, weight=1))
