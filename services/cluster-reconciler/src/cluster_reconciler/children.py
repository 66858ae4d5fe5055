"""Which children, pods apart, a RayCluster needs and lacks.

Services are in the state stream. NetworkPolicies are listed; those that are wanted are kept as they should be, all others of ours go.
The others are looked up at the API server (`looked_up`) and created when absent. Of these only the Ingress follows the RayCluster
afterwards, and the owner of the GCS volume claim (spec raycluster §8; acceptance cases 19-22, 28, 35, 39-41, 67, 110).
"""

import hashlib
from collections.abc import Iterator

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Child, Observed, Situation
from cluster_reconciler.resources import (
    auth,
    autoscaler,
    gcs_fault_tolerance,
    graceful_drain,
    ingress,
    network_policy,
    owner,
    services,
)
from cluster_reconciler.resources.ingress import ROUTE
from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import (
    CONFIG_MAP,
    INGRESS,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from common.ray import cluster_traits as traits
from common.runtime.actions import Action, Create, Delete, EmitEvent, IfExists, Refuse, Replace


def looked_up(cluster: RayCluster, config: Config) -> Iterator[Child]:
    """Yield the children that have to be looked up at the API server."""
    if traits.is_autoscaling(cluster):
        yield Child(SERVICE_ACCOUNT, autoscaler.service_account_name(cluster))
        yield Child(ROLE, autoscaler.role_name(cluster))
        yield Child(ROLE_BINDING, autoscaler.role_name(cluster))
    if ingress.is_needed(cluster) and config.uses_routes:
        yield Child(ROUTE, ingress.route_name(cluster))
    elif ingress.is_needed(cluster):
        yield Child(INGRESS, ingress.name(cluster), digest(ingress.build(cluster)))
    if graceful_drain.is_on(cluster, config):
        yield Child(CONFIG_MAP, graceful_drain.config_map_name(cluster))
    if auth.needs_secret(cluster):
        yield Child(SECRET, auth.secret_name(cluster))
    if traits.is_fault_tolerant(cluster) and traits.has_embedded_storage(cluster):
        wanted = digest(gcs_fault_tolerance.build_claim(cluster))
        yield Child(PERSISTENT_VOLUME_CLAIM, gcs_fault_tolerance.claim_name(cluster), wanted)


def digest(body: Body) -> str:
    """Return a hash of an object's wanted content."""
    return hashlib.sha1(msgspec.json.encode(body, order="sorted"), usedforsecurity=False).hexdigest()


def create(situation: Situation) -> Continue | ClusterPlan:
    """Create all that is absent: first what the head's identity needs, then what pods refer to, then what only users need.

    A pod that relied on what a deleted cluster of the same name left behind would be refused.
    """
    observed, cluster = situation.observed, situation.cluster
    absent, listed = {child.resource for child in observed.absent}, observed.network_policies
    rest = (*_lacking(observed, absent), *_unfit(observed), *_services(situation))
    actions = (
        *step(*_identity(observed, absent)),
        *step(*rest),
        *step(*_ingress_or_route(observed, absent), is_side=True),
        *step(*(() if listed is None else policies(cluster, listed)), is_side=True),
    )
    if not observed.predecessors:
        return Continue(actions=actions)
    place = cluster.metadata.namespace
    names = ", ".join(sorted(f"{each.resource.kind} {place}/{each.name}" for each in observed.predecessors))
    fault = f"{names}: left behind by a deleted RayCluster of the same name; waiting until it is gone"
    return ClusterPlan(actions=actions, fault=fault, note=fault)


def policies(cluster: RayCluster, listed: tuple[Body, ...]) -> Iterator[Action]:
    """Yield what is done about NetworkPolicies, given all that carry the cluster's label."""
    wanted = network_policy.build(cluster)
    own = {each["metadata"]["name"]: each for each in listed if owner.controls(cluster, each)}
    foreign = {each["metadata"]["name"] for each in listed} - own.keys()
    for name, body in wanted.items():
        if name in foreign:
            yield Refuse(event=events.NETWORK_POLICY_TAKEN.about(cluster, name))
        elif name not in own:
            yield _create(cluster, NETWORK_POLICY, body, if_exists=IfExists.NEED_OWN)
        elif (changed := owner.updated(body, own[name], "labels")) is not None:
            report = events.UPDATED_NETWORK_POLICY.about(cluster, name)
            yield Replace(resource=NETWORK_POLICY, body=changed, events=report)
    for name, have in own.items():
        if name not in wanted:
            report = events.DELETED_NETWORK_POLICY.about(cluster, name)
            yield Delete(resource=NETWORK_POLICY, name=name, uid=have["metadata"]["uid"], events=report)


def _identity(observed: Observed, absent: set[Resource]) -> Iterator[Action]:
    """Yield the creation of the ServiceAccount and the Role of the head."""
    cluster, have = observed.cluster, observed.found.get(ROLE)
    account = autoscaler.users_service_account(cluster)
    if have is not None and not owner.controls(cluster, have):
        yield Refuse(event=events.ROLE_TAKEN.about(cluster, autoscaler.role_name(cluster)))
    elif SERVICE_ACCOUNT in absent and account:
        yield Refuse(event=events.SERVICE_ACCOUNT_MISSING.about(cluster, account=account))
    else:
        if SERVICE_ACCOUNT in absent:
            yield _create(cluster, SERVICE_ACCOUNT, autoscaler.service_account(cluster))
        if ROLE in absent:
            yield _create(cluster, ROLE, autoscaler.role(cluster), if_exists=IfExists.NEED_OWN)


def _lacking(observed: Observed, absent: set[Resource]) -> Iterator[Action]:
    """Yield the creation of what pods refer to; that of the RoleBinding once the Role is known to be ours."""
    cluster = observed.cluster
    if ROLE_BINDING in absent:
        yield _create(cluster, ROLE_BINDING, autoscaler.role_binding(cluster))
    if CONFIG_MAP in absent:
        report = events.NO_DRAIN.failing(cluster, problem="its ConfigMap cannot be created, ")
        body = graceful_drain.config_map(cluster)
        yield Create(resource=CONFIG_MAP, body=body, events=report, if_exists=IfExists.NEED_OWN)
    if SECRET in absent:
        secret = auth.secret(cluster, token=observed.token)
        yield Create(resource=SECRET, body=secret, if_exists=IfExists.ACCEPT)
    if PERSISTENT_VOLUME_CLAIM in absent:
        if claim := gcs_fault_tolerance.claim_options(cluster).claim_name:
            yield EmitEvent(event=events.CLAIM_MISSING.about(cluster, claim=claim))
        else:
            yield _create(cluster, PERSISTENT_VOLUME_CLAIM, gcs_fault_tolerance.build_claim(cluster))


def _unfit(observed: Observed) -> Iterator[Action]:
    """Yield what is done about a ConfigMap and a volume claim that are not as they should be."""
    cluster = observed.cluster
    module, name = observed.found.get(CONFIG_MAP), graceful_drain.config_map_name(cluster)
    if module is not None and not owner.controls(cluster, module):  # pods would run what it holds
        problem = (
            f"ConfigMap {cluster.metadata.namespace}/{name} already exists and is not owned by this RayCluster; "
            f"rename it, or set {labels.GRACEFUL_DRAIN} to false"
        )
        yield Refuse(event=events.NO_DRAIN.about(cluster, problem=problem))
    have, name = observed.found.get(PERSISTENT_VOLUME_CLAIM), gcs_fault_tolerance.claim_name(cluster)
    if have is None or gcs_fault_tolerance.claim_options(cluster).claim_name:
        return
    if drift := gcs_fault_tolerance.claim_drift(cluster, have):
        yield EmitEvent(event=events.CLAIM_DIFFERS.about(cluster, name, drift=drift))
    if (body := gcs_fault_tolerance.realigned_claim(cluster, have)) is None:
        return
    other = owner.controller(have)
    if other is None or owner.controls(cluster, have):
        yield Replace(resource=PERSISTENT_VOLUME_CLAIM, body=body)
    else:
        yield Refuse(event=events.CLAIM_TAKEN.about(cluster, name, owner=f"{other['kind']} {other['name']}"))


def _services(situation: Situation) -> Iterator[Action]:
    """Yield the creations of missing Services; a foreign one of that name blocks the plan, but for the Serve Service, as in KubeRay."""
    observed, cluster = situation.observed, situation.cluster
    if not observed.head_services:
        body = services.build_head(cluster, situation.config)
        yield _create(cluster, SERVICE, body, if_exists=IfExists.NEED_OWN)
    if observed.headless_service is None and any(group.num_of_hosts > 1 for group in traits.worker_groups(cluster)):
        yield _create(cluster, SERVICE, services.build_headless(cluster), if_exists=IfExists.NEED_OWN)
    if observed.serve_service is None and services.needs_serve(cluster):
        if (body := services.build_serve(cluster)) is None:
            yield Refuse(event=events.NO_SERVE_PORT.about(cluster, problem=services.NO_SERVE_PORT))
        else:
            yield Create(resource=SERVICE, body=body, if_exists=IfExists.ACCEPT)


def _ingress_or_route(observed: Observed, absent: set[Resource]) -> Iterator[Action]:
    """Yield what users need to reach the dashboard from outside, and no pod needs."""
    cluster, have = observed.cluster, observed.found.get(INGRESS)
    if INGRESS in absent:
        yield _create(cluster, INGRESS, ingress.build(cluster))
    elif ROUTE in absent:
        yield _create(cluster, ROUTE, ingress.build_route(cluster))
    elif have is not None and not owner.controls(cluster, have):
        yield EmitEvent(event=events.INGRESS_TAKEN.about(cluster, ingress.name(cluster)))
    elif have is not None and (body := ingress.updated(cluster, have)) is not None:
        report = events.UPDATED_INGRESS.about(cluster, ingress.name(cluster))
        yield Replace(resource=INGRESS, body=body, events=report)


def _create(cluster: RayCluster, resource: Resource, body: Body, *, if_exists: IfExists = IfExists.ACCEPT) -> Create:
    report = events.CREATED[resource].about(cluster, body["metadata"]["name"])
    return Create(resource=resource, body=body, events=report, if_exists=if_exists)
