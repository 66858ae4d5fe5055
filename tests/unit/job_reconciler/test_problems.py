"""The reasons why a RayJob does not start (spec rayjob §22, §24)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from common.api.core import Container, Pod, PodCondition, PodSpec
from common.api.meta import Condition
from common.api.ray_cluster import RayCluster
from common.ray.start_problems import MAX_TEXT_LENGTH, StartCode
from job_reconciler import problems
from support.builders.pods import NOW, a_head_pod, a_pod
from support.builders.ray_cluster import a_ray_cluster

QUOTA = (
    'pods "c-head" is forbidden: exceeded quota: q, requested: cpu=2, used: cpu=8, limited: cpu=8'
)
WEBHOOK = 'Internal error occurred: failed calling webhook "x.example.com": no endpoints available'
GANG = "pod group is not ready, 1 Pending, 3 minAvailable; Pending: 1 Unschedulable"


def _failing(message: str, status: str = "True") -> RayCluster:
    cluster = a_ray_cluster()
    condition = Condition(
        type="ReplicaFailure",
        status=status,
        reason="FailedCreateHeadPod",
        message=f"FailedCreateHeadPod\n{message}",
        last_transition_time=NOW,
    )
    return replace(cluster, status=replace(cluster.status, conditions=[condition]))


def _unplaced(message: str = GANG, *, age: float = 60) -> Pod:
    pod = a_pod("c-w-1", phase="Pending", ready="False", age=age)
    placed = PodCondition(type="PodScheduled", status="False", message=message)
    return replace(pod, status=replace(pod.status, conditions=[*pod.status.conditions, placed]))


def _starting(reason: str, message: str = "") -> Pod:
    pod = a_head_pod(phase="Pending", ready="False", waiting=(reason, message))
    container = Container(name="ray", image="registry/ray:missing")
    return replace(pod, spec=PodSpec(containers=[container]))


def _find(*pods: Pod, cluster: RayCluster | None = None) -> tuple[str, str] | None:
    found = problems.find_problem(cluster or a_ray_cluster(), pods, NOW)
    return None if found is None else (found.code, found.message)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_is_named_whatever_the_kubelet_does(reason: str) -> None:
    assert _find(_starting(reason, "back-off 5m0s")) == (
        StartCode.IMAGE_PULL_FAILED,
        "pod c-head-x: the image registry/ray:missing cannot be pulled",
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("CrashLoopBackOff", "container ray keeps ending after its start"),
        (
            "CreateContainerConfigError",
            'container ray: CreateContainerConfigError: secret "s" not found',
        ),
    ],
)
def test_a_container_that_does_not_start(reason: str, text: str) -> None:
    found = _find(_starting(reason, 'secret "s" not found'))
    assert found == (StartCode.CONTAINER_NOT_STARTING, f"pod c-head-x: {text}")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (QUOTA, StartCode.QUOTA_EXCEEDED),
        (WEBHOOK, StartCode.WEBHOOK_SILENT),
        ('admission webhook "x" denied the request', StartCode.PODS_NOT_CREATED),
    ],
)
def test_pods_that_cannot_be_created(message: str, code: StartCode) -> None:
    assert _find(cluster=_failing(message)) == (
        code,
        f"RayCluster c: FailedCreateHeadPod: FailedCreateHeadPod … {message}",
    )
    assert _find(cluster=_failing(message, status="False")) is None


def test_a_gang_that_does_not_fit_is_reported_after_a_while() -> None:
    assert _find(_unplaced()) == (
        StartCode.INSUFFICIENT_CAPACITY,
        f"pod c-w-1 cannot be placed on a node: {GANG}",
    )
    assert _find(_unplaced(age=5)) is None


def test_a_queue_that_holds_the_cluster_comes_first() -> None:
    suspended = replace(_failing(QUOTA), spec_json=a_ray_cluster(suspend=True).spec_json)
    assert _find(_unplaced(), cluster=suspended) == (
        StartCode.CLUSTER_SUSPENDED,
        "RayCluster c is suspended by its queue",
    )


@pytest.mark.parametrize(
    "pod",
    [
        a_head_pod(),
        a_head_pod(phase="Pending", ready="False"),
        a_head_pod(phase="Pending", ready="False", waiting=("ContainerCreating", "")),
        a_head_pod(phase="Pending", ready="False", waiting=("ErrImagePull", ""), terminating=True),
    ],
)
def test_a_pod_that_starts_or_ends_is_no_problem(pod: Pod) -> None:
    assert _find(pod) is None


def test_before_the_cluster_exists_there_is_no_problem() -> None:
    assert problems.find_problem(None, [_unplaced()], NOW + timedelta(hours=1)) is None


@pytest.mark.parametrize("message", ["", "a" * 10_000, "first\nsecond\n\nlast"])
def test_the_text_is_one_short_line(message: str) -> None:
    found = _find(_unplaced(message))
    assert found is not None
    assert "\n" not in found[1]
    assert len(found[1]) <= MAX_TEXT_LENGTH + 50
