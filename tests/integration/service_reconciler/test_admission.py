"""The optional admission policy has the messages of KubeRay's webhook; spec rayservice §3.5, acceptance 4, 13."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest

from common import errors
from common.api.opaque import Json
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_JOB, RAY_SERVICE, Resource
from integration.service_reconciler.conftest import Live
from support import manifests
from support.builders.ray_cluster import a_group, a_head
from support.builders.ray_job import a_cluster_spec, a_ray_job
from support.builders.ray_service import a_ray_service
from support.manifests import DEPLOY
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]

GROUP: Final = "admissionregistration.k8s.io"
KINDS: Final = {
    kind: Resource(group=GROUP, version="v1", kind=kind, plural=plural)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
TIMEOUT: Final = "ray.io/initializing-timeout"
REFUSED: Final = (
    "The RayService metadata is invalid: RayService annotations is invalid: annotation " + TIMEOUT
)


async def refusal(live: Live, name: str, **annotations: str) -> str:
    """Try to create a RayService; return the refusal of the API server, empty when it does not refuse."""
    body = a_ray_service(name=name, annotations=dict(annotations), suspend=True)
    del body["metadata"]["namespace"]
    try:
        await live.kube.create(RAY_SERVICE, live.namespace, body)
    except errors.RaybusError as problem:
        return str(problem)
    await live.kube.delete(RAY_SERVICE, live.namespace, name)
    return ""


@pytest.fixture
async def guarded(live: Live) -> AsyncGenerator[Live]:
    """Put the policy in force for the length of a test."""
    bodies = manifests.read(DEPLOY / "admission")
    for body in bodies:
        await live.kube.create(KINDS[body["kind"]], None, body)

    async def is_in_force() -> bool:
        return bool(await refusal(live, "1abc"))

    try:
        await eventually_true(is_in_force, what="the policy is in force")
        yield live
    finally:
        for body in bodies:
            await live.kube.delete(KINDS[body["kind"]], None, body["metadata"]["name"])


@pytest.mark.acceptance("rayservice", 4)
async def test_4_the_messages_of_the_webhook_come_from_a_policy(guarded: Live) -> None:
    refused = await refusal(guarded, "1abc")
    assert 'RayService.ray.io "1abc" is invalid: metadata.name: Invalid value: "1abc": ' in refused
    assert (
        "The RayService metadata is invalid: RayService name should be a valid DNS1035 label: [a DNS-1035"
        in refused
    )
    assert "RayService name should be no more than 47 characters" in await refusal(
        guarded, "a" * 48
    )
    for value, text in (
        ("0", " must be a positive duration, got: 0"),
        ("-100", " must be a positive integer (seconds), got: -100"),
        (
            "5x",
            " has invalid format: 5x. Expected Go duration format (e.g., '5m', '1h') or positive integer seconds",
        ),
    ):
        refused = await refusal(guarded, "good", **{TIMEOUT: value})
        assert (
            'RayService.ray.io "good" is invalid: metadata.name: Invalid value: "good": ' in refused
        )
        assert REFUSED + text in refused
    assert [
        await refusal(guarded, "a" * 47),
        await refusal(guarded, "good", **{TIMEOUT: "1h30m"}),
    ] == ["", ""]


async def cluster_refusal(live: Live, name: str, *groups: Json) -> str:
    """Try to create a RayCluster; return the answer of the API server, empty when it accepts."""
    spec: Json = {
        "suspend": True,
        "headGroupSpec": a_head(rayStartParams={}),
        "workerGroupSpecs": list(groups),
    }
    body: Json = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        await live.kube.create(RAY_CLUSTER, live.namespace, body)
    except errors.RaybusError as problem:
        return str(problem)
    await live.kube.delete(RAY_CLUSTER, live.namespace, name)
    return ""


@pytest.mark.acceptance("raycluster", 14)
async def test_14_the_policy_refuses_what_kuberays_webhook_refuses_of_a_cluster(
    guarded: Live,
) -> None:
    assert "RayCluster name should be a valid DNS1035 label: [a DNS-1035" in await cluster_refusal(
        guarded, "1abc"
    )
    assert "RayCluster name should be no more than 53 characters" in await cluster_refusal(
        guarded, "a" * 54
    )
    doubled = await cluster_refusal(guarded, "good", a_group("g"), a_group("h"), a_group("g"))
    assert (
        'RayCluster.ray.io "good" is invalid: spec.workerGroupSpecs: Invalid value: "g": worker group names must be'
        in doubled
    )
    assert [
        await cluster_refusal(guarded, "a" * 53),
        await cluster_refusal(guarded, "good", a_group("g")),
    ] == ["", ""]


async def test_the_policy_refuses_a_cluster_above_the_limits(guarded: Live) -> None:
    most = 2**31 - 1
    for group, text in (
        (
            a_group(replicas=60_000, max_replicas=most),
            "asks for 60000 worker pods, more than 10000",
        ),
        (
            a_group(replicas=most, max_replicas=most, num_of_hosts=2),
            "asks for 4294967294 worker pods",
        ),
        (a_group(replicas=1, num_of_hosts=50_000), "numOfHosts above 2560"),
    ):
        assert text in await cluster_refusal(guarded, "good", group)
    for name, negative in (
        ("replicas", a_group("small", replicas=-15_000, min_replicas=-15_000)),
        ("minReplicas", a_group("small", replicas=None, min_replicas=-15_000)),
        ("numOfHosts", a_group("small", replicas=15_000, max_replicas=most, num_of_hosts=-1)),
    ):
        large = a_group(replicas=20_000, max_replicas=most)
        refused = await cluster_refusal(guarded, "good", large, negative)
        assert "worker pods, more than 10000" in refused, name
    minimum = a_group(replicas=1, min_replicas=20_000, max_replicas=most)
    assert "asks for 20000 worker pods" in await cluster_refusal(guarded, "good", minimum)
    many = [a_group(f"g{number}", replicas=0) for number in range(1001)]
    assert "has 1001 groups, more than 1000" in await cluster_refusal(guarded, "good", *many)
    assert await cluster_refusal(guarded, "good", *many[:200]) == ""


async def test_the_policy_holds_the_clusters_of_a_rayservice_to_the_same_limits(
    guarded: Live,
) -> None:
    for group, text in (
        (a_group(replicas=20_000, max_replicas=20_000), "asks for 20000 worker pods"),
        (a_group(replicas=1, num_of_hosts=50_000), "numOfHosts above 2560"),
    ):
        body = a_ray_service(name="large", suspend=True)
        body["spec"]["rayClusterConfig"]["workerGroupSpecs"] = [group]
        del body["metadata"]["namespace"]
        with pytest.raises(errors.RaybusError, match=text):
            await guarded.kube.create(RAY_SERVICE, guarded.namespace, body)


async def job_refusal(live: Live, name: str, **spec: Any) -> str:
    """Try to create a RayJob; return the answer of the API server, empty when it accepts."""
    job = a_ray_job(name, suspend=True, shutdownAfterJobFinishes=True, **spec)
    body: Json = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": job.raw_spec,
    }
    try:
        await live.kube.create(RAY_JOB, live.namespace, body)
    except errors.RaybusError as problem:
        return str(problem)
    await live.kube.delete(RAY_JOB, live.namespace, name)
    return ""


@pytest.mark.acceptance("rayjob", 5)
async def test_5_the_policy_refuses_the_names_that_kuberays_webhook_refuses_of_a_job(
    guarded: Live,
) -> None:
    refused = await job_refusal(guarded, "1abc")
    assert 'RayJob.ray.io "1abc" is invalid: metadata.name: Invalid value: "1abc": ' in refused
    assert "RayJob name should be a valid DNS1035 label: [a DNS-1035" in refused
    assert "RayJob name should be no more than 47 characters" in await job_refusal(
        guarded, "a" * 48
    )
    assert await job_refusal(guarded, "a" * 47) == ""


async def test_the_policy_holds_the_cluster_of_a_job_to_the_same_limits(guarded: Live) -> None:
    group = a_group(replicas=20_000, max_replicas=20_000)
    refused = await job_refusal(
        guarded, "large", rayClusterSpec=a_cluster_spec(workerGroupSpecs=[group])
    )
    assert "spec.rayClusterSpec.workerGroupSpecs asks for 20000 worker pods" in refused


@pytest.mark.acceptance("rayservice", 13)
async def test_13_another_managers_service_is_left_alone_and_its_manager_cannot_change(
    live: Live,
) -> None:
    await live.apply(managedBy="kueue.x-k8s.io/multikueue")
    with pytest.raises(errors.RaybusError, match="the managedBy field is immutable"):
        await live.patch(managedBy="ray.io/kuberay-operator")
    await live.kube.patch(
        RAY_SERVICE, live.namespace, "demo", PatchRequest(body={"metadata": {"labels": {"a": "b"}}})
    )
    await live.apply(name="ours", suspend=True)

    async def ours_is_seen() -> bool:
        return b"status" in await live.kube.get(RAY_SERVICE, live.namespace, "ours")

    await eventually_true(ours_is_seen, what="a later one, which is ours, has been reconciled")
    stored = await live.service()
    assert ("status" in stored, "finalizers" in stored["metadata"]) == (False, False)
