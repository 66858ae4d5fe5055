"""Writes the status of a RayCluster, when it differs (spec raycluster §6 steps 15-16, §14).

Pods that start together get ready one after the other within moments. What they have done so far is gathered for a moment,
so that the status of a cluster is not written for each of them; what is complete, or got worse, is told at once.
"""

from datetime import datetime, timedelta
from typing import Final

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
from common.kube import absence
from common.kube.resources import RAY_CLUSTER
from common.runtime.key import Key
from common.validation import ray_cluster as cluster_rules

GATHERED_FOR: Final = timedelta(seconds=0.25)


async def report(key: Key, outcome: Outcome, io: Ports, *, now: datetime) -> datetime | None:
    """Bring the status up to date; return when to look again: at once after suspension has moved on."""
    cluster = io.cache.get(RayCluster, key.namespace, key.name)
    if cluster is None:
        return None
    observed = observe.from_state(cluster, io)
    violation = head_info.violation(observed, has_failed=outcome.failure is not None)
    if violation is not None:
        raise errors.Retryable(violation)
    outcome = msgspec.structs.replace(outcome, unsupported=cluster_rules.unsupported(cluster, io.config.gates))
    status = compute.compute(observed, outcome, now=now, has_conditions=io.config.has(Gate.STATUS_CONDITIONS))
    memory = observe.memory_of(cluster, io)
    if not gate.has_changed(cluster.status, status):
        memory.progress_since = None
        return None
    if gate.is_mere_progress(cluster.status, status):
        memory.progress_since = min(memory.progress_since or now, now)
        if now < memory.progress_since + GATHERED_FOR:
            return memory.progress_since + GATHERED_FOR
    memory.progress_since = None
    await _write(cluster, status, io)
    if _became_true(cluster.status, status):
        io.metrics.provisioned(cluster, now=now)
    was, has_become = (suspended.state(tuple(each.conditions)) for each in (cluster.status, status))
    return None if was is has_become else now


async def _write(cluster: RayCluster, status: RayClusterStatus, io: Ports) -> None:
    meta = cluster.metadata
    body: Body = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_cluster.KIND,
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
        "status": msgspec.to_builtins(status),
    }
    with absence.noticed(io.cache, cluster):
        answer = await io.kube.replace(RAY_CLUSTER, meta.namespace, body, subresource="status")
    io.cache.put(ray_cluster.decode(answer))


def _became_true(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    kind = ConditionType.PROVISIONED
    return conditions.is_true(new, kind) and not conditions.is_true(old, kind)
