"""Which children, pods apart, a RayCluster needs and lacks.

Services are in the state stream. The others are looked up at the API server (`looked_up`) and created when absent. Only
the Ingress follows the RayCluster afterwards, and the owner of the GCS volume claim (spec raycluster §8; acceptance cases
19-22, 28, 35, 39-41, 67, 110).
"""

import hashlib

import msgspec

from cluster_reconciler import actions, events, network_policies
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.reasons import EventReason
from cluster_reconciler.resources import auth, autoscaler, gcs_fault_tolerance, graceful_drain, ingress, owner, services
from cluster_reconciler.resources.ingress import ROUTE
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import (
    CONFIG_MAP,
    INGRESS,
    PERSISTENT_VOLUME_CLAIM,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from common.ray import cluster_traits as traits
from common.runtime.actions import Action, Create, EmitEvent, IfExists, Parallel, Refuse, Replace

_DESCRIPTIONS = {
    SERVICE: ("service", (EventReason.CREATED_SERVICE, EventReason.FAILED_TO_CREATE_SERVICE)),
    SERVICE_ACCOUNT: (
        "service account",
        (EventReason.CREATED_SERVICE_ACCOUNT, EventReason.FAILED_TO_CREATE_SERVICE_ACCOUNT),
    ),
    ROLE: ("role", (EventReason.CREATED_ROLE, EventReason.FAILED_TO_CREATE_ROLE)),
    ROLE_BINDING: ("role binding", (EventReason.CREATED_ROLE_BINDING, EventReason.FAILED_TO_CREATE_ROLE_BINDING)),
    INGRESS: ("ingress", (EventReason.CREATED_INGRESS, EventReason.FAILED_TO_CREATE_INGRESS)),
    ROUTE: ("route", (EventReason.CREATED_ROUTE, EventReason.FAILED_TO_CREATE_ROUTE)),
}


def looked_up(cluster: RayCluster, config: Config) -> tuple[Child, ...]:
    """Return the children that have to be looked up at the API server."""
    found: list[Child] = []
    if traits.is_autoscaling(cluster):
        found += [
            Child(SERVICE_ACCOUNT, autoscaler.service_account_name(cluster)),
            Child(ROLE, autoscaler.role_name(cluster)),
            Child(ROLE_BINDING, autoscaler.role_name(cluster)),
        ]
    if ingress.is_needed(cluster):
        found.append(_ingress_child(cluster, config))
    if graceful_drain.is_on(cluster, config):
        found.append(Child(CONFIG_MAP, graceful_drain.config_map_name(cluster)))
    if auth.needs_secret(cluster):
        found.append(Child(SECRET, auth.secret_name(cluster)))
    if traits.is_fault_tolerant(cluster) and traits.has_embedded_storage(cluster):
        found.append(
            Child(
                PERSISTENT_VOLUME_CLAIM,
                gcs_fault_tolerance.claim_name(cluster),
                digest(gcs_fault_tolerance.build_claim(cluster)),
            )
        )
    return tuple(found)


def _ingress_child(cluster: RayCluster, config: Config) -> Child:
    if config.uses_routes:
        return Child(ROUTE, ingress.route_name(cluster))
    return Child(INGRESS, ingress.name(cluster), digest(ingress.build(cluster)))


def digest(body: Body) -> str:
    """Return a hash of an object's wanted content."""
    return hashlib.sha1(msgspec.json.encode(body, order="sorted"), usedforsecurity=False).hexdigest()


def steps(observed: Observed, config: Config, *, token: str) -> tuple[Parallel, ...]:
    """Return the creation of all that is absent: first what the head's identity needs, then the rest."""
    absent = {child.resource for child in observed.absent}
    rest = (
        *_binding(observed.cluster, absent),  # once the Role is known to be ours
        *_lacking(observed.cluster, absent, token=token),
        *_foreign_drain_module(observed),
        *_drifted_claim(observed),
        *_services(observed, config),
    )
    ingress_steps = _ingress_steps(observed, absent)
    return (
        *actions.step(*_rbac(observed, absent)),
        *actions.step(*rest),
        *actions.step(*ingress_steps, is_side=True),
        *actions.step(*_network_policies(observed), is_side=True),
    )


def _network_policies(observed: Observed) -> list[Action]:
    listed = observed.network_policies
    return [] if listed is None else network_policies.actions(observed.cluster, listed)


def left_behind(observed: Observed) -> str | None:
    """Return which children of a deleted cluster of the same name are not gone yet: a pod that relied on them would be refused."""
    if not observed.predecessors:
        return None
    namespace = observed.cluster.metadata.namespace
    names = ", ".join(sorted(f"{each.resource.kind} {namespace}/{each.name}" for each in observed.predecessors))
    return f"{names}: left behind by a deleted RayCluster of the same name; waiting until it is gone"


def _rbac(observed: Observed, absent: set[Resource]) -> list[Action]:
    cluster, have = observed.cluster, observed.found.get(ROLE)
    if have is not None and not owner.controls(cluster, have):
        return [Refuse(event=events.foreign_role(cluster, autoscaler.role_name(cluster)))]
    found: list[Action] = []
    if SERVICE_ACCOUNT in absent:
        own = autoscaler.users_service_account(cluster)
        if own:
            return [Refuse(event=events.service_account_missing(cluster, own))]
        found.append(_create(cluster, SERVICE_ACCOUNT, autoscaler.service_account(cluster)))
    if ROLE in absent:
        found.append(_create(cluster, ROLE, autoscaler.role(cluster), if_exists=IfExists.NEED_OWN))
    return found


def _binding(cluster: RayCluster, absent: set[Resource]) -> list[Action]:
    if ROLE_BINDING not in absent:
        return []
    return [_create(cluster, ROLE_BINDING, autoscaler.role_binding(cluster))]


def _lacking(cluster: RayCluster, absent: set[Resource], *, token: str) -> list[Action]:
    found: list[Action] = []
    if CONFIG_MAP in absent:
        body, report = graceful_drain.config_map(cluster), events.drain_module_failed(cluster)
        found.append(Create(resource=CONFIG_MAP, body=body, events=report, if_exists=IfExists.NEED_OWN))
    if SECRET in absent:
        body = auth.secret(cluster, token=token)
        found.append(Create(resource=SECRET, body=body, if_exists=IfExists.ACCEPT))
    if PERSISTENT_VOLUME_CLAIM in absent:
        claim = gcs_fault_tolerance.claim_options(cluster).claim_name
        if claim:
            found.append(EmitEvent(event=events.pvc_missing(cluster, claim)))
        else:
            body = gcs_fault_tolerance.build_claim(cluster)
            report = events.created_pvc(cluster, gcs_fault_tolerance.claim_name(cluster))
            found.append(Create(resource=PERSISTENT_VOLUME_CLAIM, body=body, events=report, if_exists=IfExists.ACCEPT))
    return found


def _ingress_steps(observed: Observed, absent: set[Resource]) -> list[Action]:
    """Return what users need to reach the dashboard from outside, and no pod needs."""
    cluster, found = observed.cluster, list[Action]()
    if INGRESS in absent:
        found.append(_create(cluster, INGRESS, ingress.build(cluster)))
    if ROUTE in absent:
        found.append(_create(cluster, ROUTE, ingress.build_route(cluster)))
    have = observed.found.get(INGRESS)
    return found if have is None else [*found, *_drifted_ingress(cluster, have)]


def _drifted_ingress(cluster: RayCluster, have: Body) -> list[Action]:
    name = ingress.name(cluster)
    if not owner.controls(cluster, have):
        return [EmitEvent(event=events.foreign_ingress(cluster, name))]
    body = ingress.updated(cluster, have)
    if body is None:
        return []
    return [Replace(resource=INGRESS, body=body, events=events.updated_ingress(cluster, name))]


def _foreign_drain_module(observed: Observed) -> list[Action]:
    """Return the refusal of a ConfigMap that bears our name and is not ours: pods would run what it holds."""
    cluster, have = observed.cluster, observed.found.get(CONFIG_MAP)
    if have is None or owner.controls(cluster, have):
        return []
    return [Refuse(event=events.drain_module_of_another(cluster, graceful_drain.config_map_name(cluster)))]


def _drifted_claim(observed: Observed) -> list[Action]:
    """Return what is done about our volume claim when it differs from what it should be."""
    cluster, have = observed.cluster, observed.found.get(PERSISTENT_VOLUME_CLAIM)
    if have is None or gcs_fault_tolerance.claim_options(cluster).claim_name:
        return []
    name, found = gcs_fault_tolerance.claim_name(cluster), list[Action]()
    if drift := gcs_fault_tolerance.claim_drift(cluster, have):
        found.append(EmitEvent(event=events.pvc_differs(cluster, name, drift)))
    body = gcs_fault_tolerance.realigned_claim(cluster, have)
    if body is None:
        return found
    other = owner.controller(have)
    if other is not None and not owner.controls(cluster, have):
        where = f"{other['kind']} {other['name']}"
        return [*found, Refuse(event=events.pvc_of_another(cluster, name, where))]
    return [*found, Replace(resource=PERSISTENT_VOLUME_CLAIM, body=body)]


def _services(observed: Observed, config: Config) -> list[Action]:
    """Return the creations of missing Services; a foreign one of that name blocks the plan, but for the Serve Service, as in KubeRay."""
    cluster = observed.cluster
    found: list[Action] = []
    if not observed.head_services:
        found.append(_create(cluster, SERVICE, services.build_head(cluster, config), if_exists=IfExists.NEED_OWN))
    if observed.headless_service is None and any(group.num_of_hosts > 1 for group in traits.worker_groups(cluster)):
        found.append(_create(cluster, SERVICE, services.build_headless(cluster), if_exists=IfExists.NEED_OWN))
    if observed.serve_service is None and services.needs_serve(cluster):
        body = services.build_serve(cluster)
        if body is None:
            found.append(Refuse(event=events.no_serve_port(services.NO_SERVE_PORT)))
        else:
            found.append(Create(resource=SERVICE, body=body, if_exists=IfExists.ACCEPT))
    return found


def _create(cluster: RayCluster, resource: Resource, body: Body, *, if_exists: IfExists = IfExists.ACCEPT) -> Create:
    what, reasons = _DESCRIPTIONS[resource]
    report = events.created_child(cluster, what, body["metadata"]["name"], reasons)
    return Create(resource=resource, body=body, events=report, if_exists=if_exists)
