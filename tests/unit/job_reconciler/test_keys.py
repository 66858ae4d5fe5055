"""Which RayJobs a changed object concerns, and which come first (spec rayjob §5.1)."""

import msgspec
import pytest

from common.api.core import Pod
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


def a_pod(cluster: str) -> Pod:
    owners = [an_owner("RayCluster", cluster)]
    return msgspec.convert({"metadata": {**META, "name": "p", "ownerReferences": owners}}, Pod)


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
