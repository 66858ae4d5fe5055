"""A real API server that refuses: the reason is reported verbatim, the rest continues, no request storm follows, and all heals.

A ValidatingAdmissionPolicy stands for every webhook. Spec raycluster §13.1 (ReplicaFailure), §15 (Events); cases 50, 63.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.client import JSON_PATCH, PatchRequest
from common.kube.resources import EVENT, POD, RAY_CLUSTER, SERVICE, Resource
from integration.cluster_reconciler.conftest import Live, running
from localcluster.control_plane import ControlPlane
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

pytestmark = [pytest.mark.integration]

ADMISSION = "admissionregistration.k8s.io"
POLICY = Resource(
    group=ADMISSION, kind="ValidatingAdmissionPolicy", plural="validatingadmissionpolicies"
)
BINDING = Resource(
    group=ADMISSION,
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
)
DENIAL = "every object needs a team"
STORM = 12
"""More requests for one refused object in two seconds than this are a storm; back-off allows half as many."""


@asynccontextmanager
async def denying(live: Live, resource: Resource, allowed: str) -> AsyncGenerator[None]:
    """Deny the creation of objects that an expression does not allow, in this namespace, for the length of a block."""
    name = f"{live.namespace}-{resource.plural}"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [resource.plural],
    }
    policy: Body = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": live.namespace}},
        },
        "validations": [{"expression": allowed, "message": DENIAL}],
    }
    binding: Body = {"policyName": name, "validationActions": ["Deny"]}
    await live.kube.create(POLICY, None, {"metadata": {"name": name}, "spec": policy})
    await live.kube.create(BINDING, None, {"metadata": {"name": name}, "spec": binding})
    await live.eventually(lambda: is_denied(live, resource), "the policy is in force")
    try:
        yield
    finally:
        await live.kube.delete(BINDING, None, name)
        await live.kube.delete(POLICY, None, name)


async def is_denied(live: Live, resource: Resource) -> bool:
    """Return whether a policy denies an object that is otherwise valid."""
    spec: Body = (
        {"containers": [{"name": "c", "image": "i"}]}
        if resource == POD
        else {"ports": [{"port": 1}]}
    )
    body: Body = {"metadata": {"name": "probe", "labels": {labels.GROUP: "bad"}}, "spec": spec}
    try:
        await live.kube.request(
            "POST", resource.path(live.namespace), query={"dryRun": "All"}, body=body
        )
    except errors.RaybusError as problem:
        return DENIAL in str(problem)
    return False


@pytest.mark.acceptance("raycluster", 50)
async def test_a_head_that_a_policy_denies_is_reported_and_is_created_once_it_is_allowed(
    live: Live,
) -> None:
    async with denying(live, POD, "has(object.metadata.labels.team)"):
        await live.apply(a_ray_cluster())
        cluster = await live.until(
            lambda c, _: "ReplicaFailure" in reasons(c), "the denial is reported"
        )
        reason, message = reasons(cluster)["ReplicaFailure"]
        assert (reason, message.split("\n")[0]) == ("FailedCreateHeadPod", "FailedCreateHeadPod")
        assert f"denied request: {DENIAL}" in message
        assert DENIAL in await note(live, "FailedToCreateHeadPod")
        assert [service["metadata"]["name"] for service in await found(live, SERVICE)] == [
            "c-head-svc"
        ]
        await expect_no_storm(live, f"POST {POD.path(live.namespace)}")
    healed = await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "healed")
    assert "ReplicaFailure" not in reasons(healed)


@pytest.mark.acceptance("raycluster", 63)
async def test_a_group_that_a_policy_denies_holds_up_no_other(live: Live) -> None:
    async with denying(live, POD, f"object.metadata.labels['{labels.GROUP}'] != 'bad'"):
        await live.apply(
            a_ray_cluster(groups=[a_group("bad", replicas=2), a_group("good", replicas=2)])
        )
        cluster = await live.until(
            lambda c, p: (
                "ReplicaFailure" in reasons(c)
                and len(p) == 3
                and c.status.ready_worker_replicas == 2
            ),
            "the other group runs",
        )
        assert reasons(cluster)["ReplicaFailure"][0] == "FailedCreateWorkerPod"
        assert DENIAL in await note(live, "FailedToCreateWorkerPod")
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 5, "healed")


async def test_a_service_that_a_policy_denies_is_reported_and_no_pod_is_created_without_it(
    live: Live,
) -> None:
    async with denying(live, SERVICE, "has(object.metadata.labels.team)"):
        await live.apply(a_ray_cluster())
        await live.eventually(
            lambda: live.has_reported("FailedToCreateService"), "the denial is reported"
        )
        assert DENIAL in await note(live, "FailedToCreateService")
        await expect_no_storm(live, f"POST {SERVICE.path(live.namespace)}")
        assert await live.pods() == []
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "healed")


INVALID = {
    "more requested than allowed": (
        a_template(
            a_container("ray", resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})
        ),
        "must be less than or equal to cpu limit",
    ),
    "a mount of no volume": (
        a_template(a_container("ray", volume_mounts=[{"name": "absent", "mountPath": "/x"}])),
        'Not found: "absent"',
    ),
}


@cases(("template", "text"), INVALID)
async def test_pods_that_are_refused_as_invalid_are_reported_and_delay_no_other(
    live: Live, template: Any, text: str
) -> None:
    await live.apply(
        a_ray_cluster(
            groups=[a_group("bad", replicas=2, template=template), a_group("good", replicas=1)]
        )
    )
    cluster = await live.until(
        lambda c, p: (
            "ReplicaFailure" in reasons(c) and len(p) == 2 and c.status.ready_worker_replicas == 1
        ),
        "the other group runs",
    )
    assert reasons(cluster)["ReplicaFailure"][0] == "FailedCreateWorkerPod"
    assert text in reasons(cluster)["ReplicaFailure"][1]
    assert text in await note(live, "FailedToCreateWorkerPod")
    await expect_no_storm(live, f"POST {POD.path(live.namespace)}")
    fixed: Body = {
        "op": "replace",
        "path": "/spec/workerGroupSpecs/0/template",
        "value": a_template(),
    }
    await live.kube.patch(
        RAY_CLUSTER, live.namespace, "c", PatchRequest(body=[fixed], content_type=JSON_PATCH)
    )
    healed = await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "healed")
    assert "ReplicaFailure" not in reasons(healed)


async def test_a_head_without_container_is_reported_once(live: Live) -> None:
    await live.apply(a_ray_cluster(head=a_head(template={"spec": {"containers": []}})))
    await live.eventually(
        lambda: live.has_reported("InvalidRayClusterSpec"), "the event is written"
    )
    assert "should have at least one container" in await note(live, "InvalidRayClusterSpec")
    before = len(live.own.requests)
    live.enqueue_all()
    await asyncio.sleep(0.5)
    assert [each for each in live.own.requests[before:] if "/events" not in each] == []
    await live.patch({"headGroupSpec": {"template": a_template()}})
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "healed")


async def test_a_spec_of_a_megabyte_makes_pods(live: Live) -> None:
    env = [{"name": f"E{number}", "value": "x" * 1000} for number in range(450)]
    groups = [
        a_group(name, replicas=1, template=a_template(a_container("ray", env=env)))
        for name in ("g", "h")
    ]
    await live.apply(a_ray_cluster(groups=groups))
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 3, "ready")
    worker = (await live.pods(f"{labels.GROUP}=g"))[0]
    assert worker["spec"]["containers"][0]["env"][: len(env)] == env


async def test_a_pod_too_large_for_etcd_is_reported_and_delays_no_other(live: Live) -> None:
    """A template of 0.9 MB makes a pod twice as large: the container that waits for the head has the same variables."""
    env = [{"name": f"E{number}", "value": "x" * 1000} for number in range(900)]
    large = a_group("bad", replicas=2, template=a_template(a_container("ray", env=env)))
    await live.apply(a_ray_cluster(groups=[large, a_group("good", replicas=1)]))
    cluster = await live.until(
        lambda c, p: "ReplicaFailure" in reasons(c) and len(p) == 2, "the other group runs"
    )
    assert reasons(cluster)["ReplicaFailure"][0] == "FailedCreateWorkerPod"
    assert "request is too large; make the object smaller" in reasons(cluster)["ReplicaFailure"][1]
    await expect_no_storm(live, f"POST {POD.path(live.namespace)}")


async def test_names_at_their_limits_make_objects_that_are_accepted(live: Live) -> None:
    name, group = "c" * 53, "g" * 57
    groups = [a_group(group, replicas=2, num_of_hosts=2)]
    head = a_head(enable_ingress=True)
    await live.apply(a_ray_cluster(name, head=head, groups=groups, enable_in_tree_autoscaling=True))
    await live.eventually(lambda: is_ready(live, name), "ready")
    assert not [reason for reason in await live.reasons() if reason.startswith("Failed")]


async def test_unknown_fields_hold_nothing_up(live: Live) -> None:
    body = msgspec.json.decode(msgspec.json.encode(a_ray_cluster().raw_spec))
    body["fieldOfTomorrow"] = {"a": 1}
    body["headGroupSpec"]["template"]["spec"]["anotherField"] = "x"
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c"},
        "spec": body,
    }
    await live.kube.create(RAY_CLUSTER, live.namespace, manifest)
    await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")


async def is_ready(live: Live, name: str) -> bool:
    return (await live.cluster(name)).status.state == "ready"


async def expect_no_storm(live: Live, request: str) -> None:
    """Watch for two seconds how often the same is asked again."""
    before = len(live.own.requests)
    await asyncio.sleep(2)
    again = live.own.requests[before:].count(request)
    assert again <= STORM, f"{again} times {request} in two seconds"


async def note(live: Live, reason: str) -> str:
    """Return the note of the first Event of a reason."""
    await live.eventually(lambda: live.has_reported(reason), f"the Event {reason}")
    return next(each["note"] for each in await found(live, EVENT) if each["reason"] == reason)


async def found(live: Live, resource: Resource) -> list[Body]:
    items = msgspec.json.decode(await live.kube.list(resource, live.namespace))["items"]
    return [each for each in items if each["metadata"]["name"] != "kubernetes"]


def reasons(cluster: RayCluster) -> dict[str, tuple[str, str]]:
    return {each.type: (each.reason, each.message) for each in cluster.status.conditions}


async def test_a_head_service_and_a_pod_without_their_labels_through_the_watcher(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A pod without its labels is the user's, and another is made; a Service has no other name, so its labels are asked for."""
    async with running(control_plane, Config(), bus=tmp_path) as live:
        await live.apply(a_ray_cluster())
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")
        worker = (await live.pods(f"{labels.GROUP}=g"))[0]["metadata"]
        service = (await found(live, SERVICE))[0]["metadata"]
        await live.kube.patch(POD, live.namespace, worker["name"], without_labels(worker))
        await live.until(
            lambda c, p: c.status.state == "ready" and len(p) == 5, "another pod is made"
        )
        await live.kube.patch(SERVICE, live.namespace, "c-head-svc", without_labels(service))
        cluster = await live.until(
            lambda c, _: "ReplicaFailure" in reasons(c), "the Service is reported"
        )
        message = 'services "c-head-svc" already exists without its labels; set ray.io/cluster=c, ray.io/node-type=head'
        assert message in reasons(cluster)["ReplicaFailure"][1]
        assert message in await note(live, "FailedToCreateService")
        assert cluster.status.head.service_name == "c-head-svc"
        await expect_no_storm(live, f"POST {SERVICE.path(live.namespace)}")
        given = PatchRequest(body={"metadata": {"labels": service["labels"]}})
        await live.kube.patch(SERVICE, live.namespace, "c-head-svc", given)
        await live.until(
            lambda c, p: "ReplicaFailure" not in reasons(c) and c.status.state == "ready", "healed"
        )
        assert len(await live.pods(labels.CLUSTER)) == 4


def without_labels(meta: Body) -> PatchRequest:
    """Return what takes an object's labels away."""
    return PatchRequest(body={"metadata": {"labels": dict.fromkeys(meta["labels"])}})
