"""Decide which children of a RayCluster, apart from pods, to create, update or delete.

A child is an object that raybus creates for the cluster. Services are read from the bus.
NetworkPolicies and PodDisruptionBudgets are listed at the API server: those that the spec needs are
kept up to date, all others of the cluster are deleted. Children of all other kinds are read from
the API server (`list_children_to_read`) and created if missing. Of these, only the Ingress and the
owner of the GCS volume claim are updated later (spec raycluster §8; acceptance cases 19-22, 28, 35,
39-41, 67, 110).
"""

from collections.abc import Iterator
from typing import Final

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, Continue, make_step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import ChildCreation, Observed
from cluster_reconciler.resources import (
    auth,
    autoscaler,
    disruption_budget,
    graceful_drain,
    ingress,
    network_policy,
    owner,
    services,
)
from cluster_reconciler.resources import gcs_fault_tolerance as gcs
from cluster_reconciler.resources.ingress import ROUTE
from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube import resources as kinds
from common.kube.resources import NETWORK_POLICY, Resource
from common.kube.resources import POD_DISRUPTION_BUDGET as BUDGET
from common.ray import cluster_traits as traits
from common.ray import ports
from common.runtime.actions import (
    Action,
    Annotate,
    Create,
    Delete,
    EmitEvent,
    IfExists,
    Parallel,
    Patch,
    Refuse,
    Replace,
)

_NEED_OWN: Final = frozenset({kinds.ROLE, kinds.SERVICE, NETWORK_POLICY, BUDGET})
"""Kinds of children that must not belong to another owner, or else the plan cannot continue.

For other kinds, any object with the expected name is accepted.
"""
_COMPARED: Final = frozenset({kinds.INGRESS, kinds.PERSISTENT_VOLUME_CLAIM})


def list_children_to_read(
    cluster: RayCluster, config: Config, *, token: str
) -> Iterator[ChildCreation]:
    """Yield each child to read from the API server, as the action that creates it if missing.

    `token` is the value for a new auth Secret.
    """
    if traits.is_autoscaling(cluster):
        yield from (
            _make_child(cluster, *child_parts)
            for child_parts in autoscaler.build_identity(cluster).items()
        )
    if (
        cluster.spec.head_group_spec.enable_ingress
        and config.is_openshift
        and not config.uses_ingress_on_openshift
    ):
        yield _make_child(cluster, ROUTE, ingress.build_route(cluster))
    elif cluster.spec.head_group_spec.enable_ingress:
        yield _make_child(cluster, kinds.INGRESS, ingress.build(cluster))
    if graceful_drain.is_on(cluster, config):
        module = graceful_drain.build_config_map(cluster)
        report = events.NO_DRAIN.failing(cluster, problem="its ConfigMap cannot be created, ")
        yield ChildCreation(
            resource=kinds.CONFIG_MAP, body=module, events=report, if_exists=IfExists.NEED_OWN
        )
    if (secret := auth.build_secret(cluster, token=token)) is not None:
        yield ChildCreation(resource=kinds.SECRET, body=secret)
    if traits.has_embedded_storage(cluster):
        yield _make_child(cluster, kinds.PERSISTENT_VOLUME_CLAIM, gcs.build_claim(cluster))


def _make_child(cluster: RayCluster, resource: Resource, body: Body) -> ChildCreation:
    report = events.CREATED[resource].about(cluster, body["metadata"]["name"])
    if_exists = IfExists.NEED_OWN if resource in _NEED_OWN else IfExists.ACCEPT
    expected = body if resource in _COMPARED else None
    return ChildCreation(
        resource=resource, body=body, events=report, if_exists=if_exists, expected=expected
    )


def create(observed: Observed) -> Continue | ClusterPlan:
    """Return the actions that create missing children, in the order in which they are needed.

    First come the children for the head's identity, then those to which pods refer, then those that
    only users need. Children that a deleted cluster of the same name left behind block the plan,
    because the garbage collector will delete them.
    """
    actions = (
        *make_step(*_create_identity(observed)),
        *make_step(*_create_pod_dependencies(observed), *_create_services(observed)),
        *make_step(*_update_volume_claim(observed)),
        *make_step(*_create_ingress_or_route(observed), is_side=True),
        *(
            ()
            if observed.network_policies is None
            else update_policies(observed, observed.network_policies)
        ),
        *(() if observed.budgets is None else update_budgets(observed, observed.budgets)),
    )
    problem = _find_problem(observed)
    return (
        ClusterPlan(actions=actions, problem=problem, note=problem)
        if problem
        else Continue(actions=actions)
    )


def _find_problem(observed: Observed) -> str:
    """Return a problem that only time or a user can resolve; empty if there is none.

    Several head Services are such a problem, as in KubeRay: workers might reach the wrong head.
    """
    namespace, names = (
        observed.cluster.metadata.namespace,
        [service.metadata.name for service in observed.head_services],
    )
    if missing := ", ".join(
        sorted(f"{kind.kind} {namespace}/{name}" for kind, name in observed.predecessors)
    ):
        return (
            f"{missing}: left behind by a deleted RayCluster of the same name; waiting until it is "
            "gone"
        )
    text = f"{len(names)} head service found [{' '.join(names)}]"
    return (
        f"{text}; delete all but {services.get_head_service_name(observed.cluster)}"
        if len(names) > 1
        else ""
    )


def update_policies(observed: Observed, listed: tuple[Body, ...]) -> tuple[Parallel, ...]:
    """Return the actions that bring the NetworkPolicies up to date.

    `listed` are all NetworkPolicies with the cluster's label.
    """
    cluster = observed.cluster
    return make_step(
        *_update_children(cluster, NETWORK_POLICY, network_policy.build(cluster), listed),
        is_side=True,
    )


def update_budgets(observed: Observed, listed: tuple[Body, ...]) -> tuple[Parallel, ...]:
    """Return the actions that bring the PodDisruptionBudgets up to date.

    `listed` are all PodDisruptionBudgets with the cluster's label.

    An annotation on the RayCluster says that it has budgets. The annotation is set before the first
    budget is created and removed after the last is deleted. Budgets are therefore found and deleted
    even if the feature was turned off while no process ran.
    """
    cluster, budgets = observed.cluster, build_budgets(observed)
    is_marked = labels.HAS_BUDGETS in cluster.metadata.annotations
    before: list[Action] = (
        [Annotate(name=labels.HAS_BUDGETS, value="true")] if budgets and not is_marked else []
    )
    after: list[Action] = (
        [Annotate(name=labels.HAS_BUDGETS, value=None)] if is_marked and not budgets else []
    )
    parts = (before, [*_update_children(cluster, BUDGET, budgets, listed)], after)
    return tuple(Parallel(actions=tuple(actions), chain="budgets") for actions in parts if actions)


def build_budgets(observed: Observed) -> dict[str, Body]:
    """Return the PodDisruptionBudgets that the cluster should have, by name."""
    cluster, count = (
        observed.cluster,
        sum(map(traits.target, traits.named_groups(observed.cluster))),
    )
    idle = sum(disruption_budget.is_idle(pod, now=observed.now) for pod in observed.workers)
    return disruption_budget.build(cluster, observed.config, workers=count, serving=count - idle)


def _update_children(
    cluster: RayCluster, kind: Resource, expected: dict[str, Body], listed: tuple[Body, ...]
) -> Iterator[Action]:
    """Yield the actions that bring the children of one kind to the `expected` content.

    `expected` maps names to manifests, and `listed` are all objects of the kind with the cluster's
    label. Objects of other owners stay.
    """
    own = {
        existing["metadata"]["name"]: existing
        for existing in listed
        if owner.controls(cluster, existing)
    }
    foreign = {existing["metadata"]["name"] for existing in listed} - own.keys()
    for name, body in expected.items():
        if name in foreign:
            yield Refuse(event=events.TAKEN[kind].about(cluster, name))
        elif name not in own:
            yield _make_child(cluster, kind, body)
        elif (changed := owner.update_child(body, own[name], "labels")) is not None:
            yield Replace(
                resource=kind, body=changed, events=events.UPDATED[kind].about(cluster, name)
            )
    for name, have in own.items():
        if name not in expected:
            report = events.DELETED[kind].about(cluster, name)
            yield Delete(resource=kind, name=name, uid=have["metadata"]["uid"], events=report)


def _create_identity(observed: Observed) -> Iterator[Action]:
    """Yield the actions that create the head's ServiceAccount and Role if they are missing.

    A Role of another owner is reported as a failure, and so is a missing ServiceAccount of the
    user.
    """
    cluster, role = observed.cluster, observed.live_children.get(kinds.ROLE)
    account = autoscaler.get_template_service_account(cluster)
    if role is not None and not owner.controls(cluster, role):
        yield Refuse(event=events.ROLE_TAKEN.about(cluster, role["metadata"]["name"]))
    elif kinds.SERVICE_ACCOUNT in observed.absent and account:
        yield Refuse(event=events.SERVICE_ACCOUNT_MISSING.about(cluster, account=account))
    else:
        yield from observed.list_creations(kinds.SERVICE_ACCOUNT, kinds.ROLE)


def _create_pod_dependencies(observed: Observed) -> Iterator[Action]:
    """Yield the actions that create the missing children to which pods refer.

    The RoleBinding is created only after this cluster is known to control the Role.
    """
    cluster, module = observed.cluster, observed.live_children.get(kinds.CONFIG_MAP)
    yield from observed.list_creations(kinds.ROLE_BINDING, kinds.CONFIG_MAP, kinds.SECRET)
    # Pods would run the code in this ConfigMap.
    if module is not None and not owner.controls(cluster, module):
        problem = (
            f"ConfigMap {cluster.metadata.namespace}/{module['metadata']['name']} already exists "
            "and is not owned by this "
            f"RayCluster; rename it, or set {labels.GRACEFUL_DRAIN} to false"
        )
        yield Refuse(event=events.NO_DRAIN.about(cluster, problem=problem))


def _update_volume_claim(observed: Observed) -> Iterator[Action]:
    """Yield the actions that create or correct the volume claim of the embedded store.

    The claim is created after the Services, so that no volume is created for a cluster without
    them.
    """
    cluster, have = observed.cluster, observed.live_children.get(kinds.PERSISTENT_VOLUME_CLAIM)
    if users_claim := traits.embedded_storage(cluster).claim_name:
        if kinds.PERSISTENT_VOLUME_CLAIM in observed.absent:
            yield EmitEvent(event=events.CLAIM_MISSING.about(cluster, claim=users_claim))
        return
    yield from observed.list_creations(kinds.PERSISTENT_VOLUME_CLAIM)
    if have is None:
        return
    name, controller = have["metadata"]["name"], owner.find_controller(have)
    if drift := gcs.find_claim_drift(cluster, have):
        yield EmitEvent(event=events.CLAIM_DIFFERS.about(cluster, name, drift=drift))
    body = gcs.realign_claim(cluster, have)
    if body is not None and controller is not None and not owner.controls(cluster, have):
        yield Refuse(
            event=events.CLAIM_TAKEN.about(
                cluster, name, owner=f"{controller['kind']} {controller['name']}"
            )
        )
    elif body is not None:
        yield Replace(resource=kinds.PERSISTENT_VOLUME_CLAIM, body=body)


def _create_services(observed: Observed) -> Iterator[Action]:
    """Yield the actions that create missing Services.

    A Service of another owner under the same name blocks the plan, except for the Serve Service, as
    in KubeRay.
    """
    cluster = observed.cluster
    if not observed.head_services:
        yield _make_child(cluster, kinds.SERVICE, services.build_head(cluster, observed.config))
    yield from _correct_services(observed)
    if observed.headless_service is None and any(
        group.num_of_hosts > 1 for group in traits.worker_groups(cluster)
    ):
        yield _make_child(cluster, kinds.SERVICE, services.build_headless(cluster))
    is_asked_for = (
        cluster.metadata.annotations.get(labels.ENABLE_SERVE_SERVICE) == "true"
    )  # No other value counts.
    if observed.serve_service is None and is_asked_for:
        if (body := services.build_serve(cluster)) is None:
            yield Refuse(event=events.NO_SERVE_PORT.about(cluster, problem=ports.NO_PORT))
        else:
            yield Create(resource=kinds.SERVICE, body=body, if_exists=IfExists.ACCEPT)


def _correct_services(observed: Observed) -> Iterator[Action]:
    """Yield the actions that correct the selector of this cluster's head Services.

    Only a selector that does not select the head pod is corrected.
    """
    cluster = observed.cluster
    head = observed.heads[0] if observed.heads else None
    for service in observed.head_services:
        meta = service.metadata
        is_ours = any(reference.uid == cluster.metadata.uid for reference in meta.owner_references)
        changed = services.correct_selector(cluster, service, head)
        if is_ours and changed:
            metadata = {"resourceVersion": meta.resource_version}
            patch = {"metadata": metadata, "spec": {"selector": changed}}
            report = events.CORRECTED_SELECTOR.about(cluster, meta.name)
            yield Patch(resource=kinds.SERVICE, name=meta.name, patch=patch, events=report)


def _create_ingress_or_route(observed: Observed) -> Iterator[Action]:
    """Yield the actions for the Ingress and the Route, by which users reach the dashboard."""
    cluster, have = observed.cluster, observed.live_children.get(kinds.INGRESS)
    yield from observed.list_creations(kinds.INGRESS, ROUTE)
    if have is not None and not owner.controls(cluster, have):
        yield EmitEvent(event=events.INGRESS_TAKEN.about(cluster, have["metadata"]["name"]))
    elif have is not None and (body := ingress.update_ingress(cluster, have)) is not None:
        report = events.UPDATED_INGRESS.about(cluster, have["metadata"]["name"])
        yield Replace(resource=kinds.INGRESS, body=body, events=report)
