"""What is done about a cluster's NetworkPolicies: those that are wanted are created and kept as they should be, all others of ours go."""

from cluster_reconciler import events
from cluster_reconciler.resources import network_policy, owner
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import NETWORK_POLICY
from common.runtime.actions import Action, Create, Delete, IfExists, Refuse, Replace


def may_exist(cluster: RayCluster) -> bool:
    """Return whether a cluster has policies, or may have had some: a spec that never changed had none before."""
    return cluster.spec.network_policy is not None or cluster.metadata.generation > 1


def actions(cluster: RayCluster, listed: tuple[Body, ...]) -> list[Action]:
    """Return what is to be done, given all policies that carry the cluster's label."""
    wanted = network_policy.build(cluster)
    own = {each["metadata"]["name"]: each for each in listed if owner.controls(cluster, each)}
    foreign = {each["metadata"]["name"] for each in listed} - own.keys()
    found: list[Action] = []
    for name, body in wanted.items():
        if name in foreign:
            found.append(Refuse(event=events.foreign_network_policy(cluster, name)))
        elif name not in own:
            report = events.network_policy(cluster, name, "Create")
            found.append(Create(resource=NETWORK_POLICY, body=body, events=report, if_exists=IfExists.NEED_OWN))
        elif (changed := network_policy.updated(body, own[name])) is not None:
            report = events.network_policy(cluster, name, "Update")
            found.append(Replace(resource=NETWORK_POLICY, body=changed, events=report))
    for name, have in own.items():
        if name not in wanted:
            report = events.network_policy(cluster, name, "Delete")
            found.append(Delete(resource=NETWORK_POLICY, name=name, uid=have["metadata"]["uid"], events=report))
    return found
