"""The two extra routes that an UpgradePolicy asks for: for previews and for mirrored requests.

`<RayService>-httproute-preview` sends requests with a certain header to the pending cluster.
`<RayService>-httproute-mirror` sends requests with certain methods to the active cluster and copies
a percentage of them to the pending cluster, as long as the pending cluster receives no traffic of
its own. Both routes are attached to raybus's Gateway. Their matches are more specific than the
match of the weighted route, so the weighted route stays unchanged. The mirror route is removed with
the first write that moves weights, because the requests that it matches are answered by the active
cluster only.

Objects of other owners are never changed. If such an object has the name of a side route, that
route is not created, and service-reconciler reports the object (`problems`). If it is the mirror
route, the upgrade waits.

If the user brought the weighted route, it uses the user's Gateway, and no side routes exist.
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
from traffic_manager.migration.state import ClusterState
from traffic_manager.observed import Observed, ServedCluster
from traffic_manager.resources import gateway_api
from traffic_manager.resources.gateway_api import MATCH


def plan_side_routes(
    observed: Observed, pending: ClusterState, progression: Progression
) -> Iterator[Action]:
    """Yield the actions that create, patch or delete the preview route and the mirror route."""
    is_shown = progression.judged is not None and not progression.leaves and pending.ready > 0
    yield from _plan_preview_route(observed, observed.policy if is_shown else None)
    yield from plan_mirror_route(observed, pending.proven if progression.mirrors else 0)
    mirror_route = observed.side_routes.mirror
    if mirror_route is not None and gateway_api.copies_all(mirror_route):
        yield EmitEvent(event=events.mirror_unsupported(events.OLD_HTTP_ROUTE))


def _plan_preview_route(observed: Observed, policy: UpgradePolicy | None) -> Iterator[Action]:
    """Yield the action that makes the preview route send requests to the pending cluster.

    Without an UpgradePolicy the preview route is deleted.
    """
    have, pending = observed.side_routes.preview, observed.pending
    wanted = side_routes.wanted(observed.service, policy)
    if policy is None or pending is None or SideRole.PREVIEW not in wanted:
        yield from _plan_removal(have)
        return
    header = {
        "type": "Exact",
        "name": policy.preview.header_name,
        "value": policy.preview.header_value,
    }
    # the mirror route matches methods, and a method match takes precedence over a header match
    methods: list[Json] = [
        {},
        *({"method": method} for method in (policy.mirror.methods if policy.mirror else ())),
    ]
    rule = {
        "matches": [{**MATCH, **method, "headers": [header]} for method in methods],
        "backendRefs": [_build_backend(pending)],
    }
    if have is None:
        yield from _plan_creation(observed, SideRole.PREVIEW, rule)
    elif not _has_rule(have, rule):
        yield from _plan_removal(have)  # the next reconcile creates the route again


def plan_mirror_route(observed: Observed, proven: int) -> Iterator[Action]:
    """Yield the action that mirrors requests to the pending cluster, or stops the mirroring.

    `proven` is the proven capacity of the pending cluster in percent. It limits the mirrored
    percentage; at 0 the mirror route is deleted. The policy's mirror duration counts from the
    creation of the route, so a changed percentage or method list is patched into the existing
    route.
    """
    have, policy = observed.side_routes.mirror, observed.policy
    if proven == 0 or policy is None or policy.mirror is None or observed.pair is None:
        yield from _plan_removal(have)
        return
    percent, (active, pending) = min(policy.mirror.percent, proven), observed.pair
    copy = _build_backend(pending)
    del copy["weight"]
    rule = {
        "matches": [{**MATCH, "method": method} for method in policy.mirror.methods],
        "filters": [
            {"type": "RequestMirror", "requestMirror": {"percent": percent, "backendRef": copy}}
        ],
        "backendRefs": [_build_backend(active)],
    }
    if have is None:
        yield from _plan_creation(observed, SideRole.MIRROR, rule)
    elif have.metadata.deletion_timestamp is None and not _has_rule(have, rule):
        patch: Json = {"metadata": gateway_api.patch_meta(have), "spec": {"rules": [rule]}}
        yield Patch(
            resource=HTTP_ROUTE,
            name=have.metadata.name,
            patch=patch,
            chain=SIDE_ROUTES,
            is_side=True,
        )


def plan_side_route_removal(observed: Observed) -> tuple[Action, ...]:
    """Return the actions that delete the existing side routes."""
    return tuple(action for have in observed.side_routes.existing for action in _plan_removal(have))


def _plan_removal(have: HttpRoute | None) -> Iterator[Action]:
    if have is not None and have.metadata.deletion_timestamp is None:
        meta, report = (
            have.metadata,
            events.DELETED[HTTP_ROUTE].format(have.metadata.namespaced_name),
        )
        yield Delete(
            resource=HTTP_ROUTE,
            name=meta.name,
            uid=meta.uid,
            events=report,
            chain=SIDE_ROUTES,
            is_side=True,
        )


def _plan_creation(observed: Observed, role: SideRole, rule: Json) -> Iterator[Create]:
    """Yield the action that creates a side route; none if another owner's object has the name."""
    meta, weighted = observed.service.metadata, observed.our_route
    name = names.side_route(meta.name, role)
    if any(route.metadata.name == name for route in observed.side_routes.foreign):
        return
    spec: Json = {
        "parentRefs": [{"name": names.gateway(meta.name), "namespace": meta.namespace}],
        "rules": [rule],
    }
    users = {} if weighted is None else msgspec.json.decode(weighted.spec_json, type=Json)
    if hostnames := users.get(
        "hostnames"
    ):  # without the same hostnames, the weighted route would take precedence
        spec["hostnames"] = hostnames
    body = gateway_api.manifest(HTTP_ROUTE, meta, name, spec)
    report = events.SIDE_ROUTE_CREATED.format(f"{meta.namespace}/{name}")
    yield Create(resource=HTTP_ROUTE, body=body, events=report, chain=SIDE_ROUTES, is_side=True)


def _has_rule(have: HttpRoute, rule: Json) -> bool:
    """Return whether a route has exactly one rule, equal to `rule`."""
    wanted, namespace = msgspec.convert(rule, RouteRule), have.metadata.namespace
    return len(have.spec.rules) == 1 and all(
        _normalize_rule(rule, namespace) == _normalize_rule(wanted, namespace)
        for rule in have.spec.rules
    )


def _normalize_rule(rule: RouteRule, namespace: str) -> tuple[object, ...]:
    """Return the parts of a rule that are compared: its matches, backends and mirrors."""
    return (
        list(rule.matches),
        [backend.resolved(namespace) for backend in rule.backend_refs],
        gateway_api.mirrors(rule, namespace),
    )


def _build_backend(view: ServedCluster) -> Json:
    return msgspec.to_builtins(gateway_api.backend(view.cluster, weight=1))
