"""Judges whether all objects match their specs at the end of a run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from chaos.checker.evidence import ENDED_PHASES
from common import labels, names
from common.api.opaque import Body
from common.ray import spec_hash

READY: Final = "ready"
SUSPENDED: Final = "suspended"
RUNNING: Final = "Running"
ENDED: Final = frozenset({"Complete", "Failed"})
SUSPENDED_JOB: Final = "Suspended"


class FinalObjects(msgspec.Struct, frozen=True, kw_only=True):
    """All objects at the end of a run as JSON, and the last Serve config of each head."""

    clusters: Sequence[Body]
    services: Sequence[Body]
    pods: Sequence[Body]
    routes: Sequence[Body] = ()
    jobs: Sequence[Body] = ()
    job_children: Sequence[Body] = ()
    """The Kubernetes Jobs and Services that RayJobs own."""
    configs: Mapping[str, str] = {}
    """Value of the variable MESSAGE in the last Serve config of each head, by cluster name."""


class Unreconciled(msgspec.Struct, frozen=True, order=True):
    """An object that does not match its spec, and the reason."""

    kind: str
    namespace: str
    name: str
    why: str


def judge(objects: FinalObjects) -> list[Unreconciled]:
    """Return every object that does not match its spec, sorted by kind, namespace and name."""
    unreconciled = [
        Unreconciled(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"], why)
        for bodies, rule in (
            (objects.clusters, _check_cluster),
            (objects.services, _check_service),
            (objects.pods, _check_pod),
            (objects.jobs, _check_job),
            (objects.job_children, _check_job_child),
            (objects.clusters, _check_job_child),
        )
        for body in bodies
        for why in rule(body, objects)
    ]
    return sorted(unreconciled)


def _check_cluster(body: Body, objects: FinalObjects) -> Iterator[str]:
    meta, spec, status = body["metadata"], body["spec"], body.get("status", {})
    if "deletionTimestamp" in meta:
        yield "it is being deleted"
        return
    is_suspended = bool(spec.get("suspend"))
    pods = [
        pod
        for pod in _list_alive(objects.pods)
        if _is_of(pod, meta["namespace"], labels.CLUSTER, meta["name"])
    ]
    heads = [pod for pod in pods if pod["metadata"]["labels"].get(labels.NODE_TYPE) == labels.HEAD]
    if len(heads) != (0 if is_suspended else 1):
        yield f"it has {len(heads)} head pods"
    groups: list[Body] = spec.get("workerGroupSpecs") or []
    for group in groups:
        have = sum(
            pod["metadata"]["labels"].get(labels.GROUP) == group["groupName"] for pod in pods
        )
        want = 0 if is_suspended else _get_wanted_workers(group)
        if have != want:
            yield f"group {group['groupName']} has {have} workers, wanted {want}"
    want = sum(_get_wanted_workers(group) for group in groups)
    if status.get("desiredWorkerReplicas", 0) != want:
        yield f"its status wants {status.get('desiredWorkerReplicas', 0)} workers, its spec {want}"
    ready = 0 if is_suspended else want
    if status.get("readyWorkerReplicas", 0) != ready:
        yield f"its status has {status.get('readyWorkerReplicas', 0)} ready workers, wanted {ready}"
    if status.get("state") != (SUSPENDED if is_suspended else READY):
        yield f"its state is {status.get('state') or 'unknown'}"


def _check_service(body: Body, objects: FinalObjects) -> Iterator[str]:
    meta, status = body["metadata"], body.get("status", {})
    if "deletionTimestamp" in meta:
        yield "it is being deleted"
        return
    if status.get("observedGeneration") != meta["generation"]:
        yield (
            f"its status is of generation {status.get('observedGeneration')}, its spec of "
            f"{meta['generation']}"
        )
    if status.get("serviceStatus") != RUNNING:
        yield f"its state is {status.get('serviceStatus') or 'unknown'}"
    active = status.get("activeServiceStatus", {}).get("rayClusterName", "")
    pending = status.get("pendingServiceStatus", {}).get("rayClusterName", "")
    if pending:
        yield f"its upgrade to {pending} goes on"
    its = [
        cluster
        for cluster in objects.clusters
        if _is_of(cluster, meta["namespace"], labels.ORIGIN_NAME, meta["name"])
    ]
    if [cluster["metadata"]["name"] for cluster in its] != [active]:
        yield (
            f"it has the clusters {', '.join(cluster['metadata']['name'] for cluster in its)}; "
            f"active is {active or 'none'}"
        )
    goal = spec_hash.service_goal_hash(body["spec"]["rayClusterConfig"])
    if any(
        cluster["metadata"].get("annotations", {}).get(labels.SPEC_HASH) != goal for cluster in its
    ):
        yield "its cluster is not of its spec"
    if (reported := objects.configs.get(active, "")) not in body["spec"].get(
        "serveConfigV2", ""
    ) or not reported:
        yield f"the head of {active} got {reported or 'nothing'}"
    yield from _check_weights(meta["namespace"], meta["name"], active, objects)


def _check_weights(
    namespace: str, service: str, active: str, objects: FinalObjects
) -> Iterator[str]:
    for route in objects.routes:
        if (route["metadata"]["namespace"], route["metadata"]["name"]) != (
            namespace,
            names.http_route(service),
        ):
            continue
        weights = {
            backend["name"]: backend.get("weight", 1)
            for rule in route["spec"].get("rules", [])
            for backend in rule.get("backendRefs", [])
            if backend.get("weight", 1)
        }
        if weights != {names.serve_service(active): 100}:
            yield f"its route weighs {weights}"


def _check_job(body: Body, objects: FinalObjects) -> Iterator[str]:
    meta, spec, status = body["metadata"], body["spec"], body.get("status", {})
    if "deletionTimestamp" in meta:
        yield f"it is being deleted, with the finalizers {meta.get('finalizers', [])}"
        return
    state = status.get("jobDeploymentStatus", "")
    if state not in ({SUSPENDED_JOB, *ENDED} if spec.get("suspend") else ENDED):
        yield f"its state is {state or 'unknown'}"
    cluster = status.get("rayClusterName", "")
    is_there = any(
        (candidate["metadata"]["namespace"], candidate["metadata"]["name"])
        == (meta["namespace"], cluster)
        for candidate in objects.clusters
    )
    if spec.get("shutdownAfterJobFinishes") and is_there:
        yield f"its cluster {cluster} is left"


def _check_job_child(body: Body, objects: FinalObjects) -> Iterator[str]:
    """Yield a problem if the object is left over from a deleted RayJob."""
    meta = body["metadata"]
    for owner in meta.get("ownerReferences", []):
        if owner["kind"] == "RayJob" and not any(
            job["metadata"]["uid"] == owner["uid"] for job in objects.jobs
        ):
            yield f"its RayJob {owner['name']} is gone"


def _check_pod(body: Body, objects: FinalObjects) -> Iterator[str]:
    """Yield a problem if the pod's RayCluster does not exist."""
    cluster = body["metadata"].get("labels", {}).get(labels.CLUSTER)
    if cluster and not any(
        (candidate["metadata"]["namespace"], candidate["metadata"]["name"])
        == (body["metadata"]["namespace"], cluster)
        for candidate in objects.clusters
    ):
        yield f"its cluster {cluster} is gone"


def _list_alive(pods: Sequence[Body]) -> Iterator[Body]:
    for pod in pods:
        is_over = pod.get("status", {}).get("phase") in ENDED_PHASES
        if "deletionTimestamp" not in pod["metadata"] and not is_over:
            yield pod


def _is_of(body: Body, namespace: str, label: str, value: str) -> bool:
    meta = body["metadata"]
    return meta["namespace"] == namespace and meta.get("labels", {}).get(label) == value


def _get_wanted_workers(group: Body) -> int:
    return max(
        group.get("minReplicas") or 0,
        min(group.get("replicas") or 0, group.get("maxReplicas", 2**31)),
    )
