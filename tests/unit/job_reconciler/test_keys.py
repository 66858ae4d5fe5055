"""Which RayJobs a changed object concerns, and which come first (spec rayjob §5.1)."""

import msgspec
import pytest

from common.api.core import EndpointSlice, Pod, Service
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob
from common.runtime.cache import Cache
from common.runtime.key import Key, KeyPriority
from job_reconciler.wiring import find_keys, rank

META = {"namespace": "ns", "uid": "u", "resourceVersion": "1"}


def a_job(cluster: str) -> RayJob:
    body = {"metadata": {**META, "name": "job"}, "status": {"rayClusterName": cluster}}
    return msgspec.convert(body, RayJob)


def an_owner(kind: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "name": name,
        "uid": name,
        "controller": True,
    }


def a_pod(cluster: str, node: str = "worker") -> Pod:
    return msgspec.convert({"metadata": below(cluster, {"ray.io/node-type": node})}, Pod)


def a_slice(service: str) -> EndpointSlice:
    marks = {"kubernetes.io/service-name": service}
    body = {"metadata": {**META, "name": "s", "labels": marks}, "addressType": "IPv4"}
    return msgspec.convert(body, EndpointSlice)


def below(cluster: str, labels: dict[str, str] | None = None) -> dict[str, object]:
    owners = [an_owner("RayCluster", cluster)]
    return {**META, "name": "p", "ownerReferences": owners, "labels": labels or {}}


def test_a_pod_concerns_the_job_of_its_cluster() -> None:
    cache = Cache()
    owners = [an_owner("RayJob", "job")]
    body = {"metadata": {**META, "name": "job-abcde", "ownerReferences": owners}}
    cache.put(msgspec.convert(body, RayCluster))
    assert list(find_keys(cache, a_pod("job-abcde"))) == [Key("ns", "job")]


def test_a_pod_concerns_its_job_after_the_cluster_is_gone() -> None:
    cache = Cache()
    cache.put(a_job("job-abcde"))
    assert list(find_keys(cache, a_pod("job-abcde"))) == [Key("ns", "job")]


@pytest.mark.parametrize("cluster", ["job-fghij", "other-abcde", "job"])
def test_a_pod_of_another_cluster_that_is_gone_concerns_no_job(cluster: str) -> None:
    cache = Cache()
    cache.put(a_job("job-abcde"))
    assert list(find_keys(cache, a_pod(cluster))) == []


@pytest.mark.parametrize(
    ("state", "is_steady"),
    [("", False), ("Running", False), ("Suspended", False), ("Complete", True), ("Failed", True)],
)
def test_a_job_that_runs_does_not_wait_for_those_that_have_ended(
    state: str, is_steady: bool
) -> None:
    cache = Cache()
    body = {"metadata": {**META, "name": "job"}, "status": {"jobDeploymentStatus": state}}
    cache.put(msgspec.convert(body, RayJob))
    assert rank(cache, Key("ns", "job")) == KeyPriority(is_steady=is_steady)
    assert rank(cache, Key("ns", "gone")) == KeyPriority()
    assert rank(cache, Key("ns", "job", "RayCronJob")) == KeyPriority()


@pytest.mark.parametrize(
    ("status", "concerns"),
    [
        pytest.param({}, ["head", "worker", "Service"], id="new"),
        pytest.param(
            {"jobDeploymentStatus": "Initializing"}, ["head", "worker", "Service"], id="starts"
        ),
        pytest.param({"jobDeploymentStatus": "Running"}, ["head"], id="runs"),
        pytest.param(
            {
                "jobDeploymentStatus": "Running",
                "jobStatusCheckFailureStartTime": "2026-01-01T00:00:00Z",
            },
            ["head", "Service", "EndpointSlice"],
            id="its dashboard is silent",
        ),
        pytest.param(
            {"jobDeploymentStatus": "Retrying"}, ["head", "worker", "Service"], id="starts over"
        ),
        pytest.param({"jobDeploymentStatus": "Complete"}, [], id="has ended"),
    ],
)
def test_an_object_of_the_cluster_concerns_its_job_only_in_some_states(
    status: dict[str, str], concerns: list[str]
) -> None:
    cache = Cache()
    owners = [an_owner("RayJob", "job")]
    cluster = {"metadata": {**META, "name": "job-abcde", "ownerReferences": owners}}
    cache.put(msgspec.convert(cluster, RayCluster))
    cache.put(msgspec.convert({"metadata": {**META, "name": "job"}, "status": status}, RayJob))
    objects = {
        "head": a_pod("job-abcde", "head"),
        "worker": a_pod("job-abcde"),
        "Service": msgspec.convert({"metadata": below("job-abcde")}, Service),
        "EndpointSlice": a_slice("head-svc"),
    }
    cache.put(msgspec.convert({"metadata": {**below("job-abcde"), "name": "head-svc"}}, Service))
    found = [name for name, obj in objects.items() if list(find_keys(cache, obj))]
    assert found == concerns
    assert list(find_keys(cache, msgspec.convert(cluster, RayCluster))) == [Key("ns", "job")]


@pytest.mark.parametrize(("silent_since", "wakes"), [(None, False), ("2026-01-01T00:00:00Z", True)])
def test_addresses_of_its_own_service_concern_a_job_only_while_its_dashboard_is_silent(
    silent_since: str | None, wakes: bool
) -> None:
    cache = Cache()
    status = {"jobDeploymentStatus": "Running", "jobStatusCheckFailureStartTime": silent_since}
    cache.put(msgspec.convert({"metadata": {**META, "name": "job"}, "status": status}, RayJob))
    meta = {**META, "name": "job-head-svc", "ownerReferences": [an_owner("RayJob", "job")]}
    cache.put(msgspec.convert({"metadata": meta}, Service))
    found = list(find_keys(cache, a_slice("job-head-svc")))
    assert found == ([Key("ns", "job")] if wakes else [])
