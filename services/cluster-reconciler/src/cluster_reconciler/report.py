"""Writes the status of a RayCluster, when it differs (spec raycluster §6 steps 15-16, §14)."""

from datetime import datetime

import msgspec

from cluster_reconciler import observe
from cluster_reconciler.ports import Ports
from cluster_reconciler.reasons import ConditionType
from cluster_reconciler.status import compute, conditions, gate, head_info, suspended
from cluster_reconciler.status.compute import Outcome
from common import errors
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.feature_gates import Gate
from common.kube.resources import RAY_CLUSTER
from common.runtime.key import Key
from common.validation import ray_cluster as cluster_rules


async def report(key: Key, outcome: Outcome, io: Ports, *, now: datetime) -> bool:
    """Bring the status up to date; return whether suspension moved on, so that the next look must not wait."""
    cluster = io.cache.get(RayCluster, key.namespace, key.name)
    if cluster is None:
        return False
    observed = observe.from_state(cluster, io)
    violation = head_info.violation(observed, has_failed=outcome.failure is not None)
    if violation is not None:
        raise errors.Retryable(violation)
    outcome = msgspec.structs.replace(outcome, unsupported=cluster_rules.unsupported(cluster, io.config.gates))
    status = compute.compute(observed, outcome, now=now, has_conditions=io.config.has(Gate.STATUS_CONDITIONS))
    if not gate.has_changed(cluster.status, status):
        return False
    await _write(cluster, status, io)
    if _became_true(cluster.status, status):
        io.metrics.provisioned(cluster, now=now)
    return suspended.state(tuple(cluster.status.conditions)) is not suspended.state(tuple(status.conditions))


async def _write(cluster: RayCluster, status: RayClusterStatus, io: Ports) -> None:
    meta = cluster.metadata
    body: Body = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_cluster.KIND,
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
        "status": msgspec.to_builtins(status),
    }
    answer = await io.kube.replace(RAY_CLUSTER, meta.namespace, body, subresource="status")
    io.cache.put(ray_cluster.decode(answer))


def _became_true(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    kind = ConditionType.PROVISIONED
    return conditions.is_true(new, kind) and not conditions.is_true(old, kind)
