from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import Failure, ReplicaFailure
from cluster_reconciler.status import compute
from cluster_reconciler.status.compute import ExecutionOutcome, compute_head_ready
from common import conditions
from common.api.core import ServicePort
from common.api.ray_cluster import HeadInfo, RayClusterStatus
from common.conditions import ConditionUpdate
from common.ray import desired_resources
from support.builders.pods import (
    NOW,
    a_head_pod,
    a_head_service,
    a_pod,
    an_observation,
    some_workers,
)
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

CLEAN = ExecutionOutcome()
FAILED = ExecutionOutcome(
    failure=Failure(ReplicaFailure.CREATE_HEAD_POD, "exceeded quota"), is_clean=False
)
UNFINISHED = ExecutionOutcome(is_clean=False)
RUNNING = (a_head_pod(), *some_workers(3))


def status_of(observed: Observed, outcome: ExecutionOutcome = CLEAN) -> RayClusterStatus:
    return compute.compute(observed, outcome)


def facts(status: RayClusterStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions}


def after(status: RayClusterStatus, *pods: Any, **spec: Any) -> Observed:
    return an_observation(*pods, cluster=a_ray_cluster(status=msgspec.to_builtins(status), **spec))


def test_a_new_cluster_has_four_conditions_in_kuberays_order() -> None:
    assert [each.type for each in status_of(an_observation()).conditions] == [
        "HeadPodReady",
        "RayClusterProvisioned",
        "RayClusterSuspended",
        "RayClusterSuspending",
    ]


@cases(
    ("pods", "outcome", "state"),
    {
        "all run": (RUNNING, CLEAN, "ready"),
        "one is missing": (RUNNING[:3], CLEAN, ""),
        "one too many, of a group that is gone": ((*RUNNING, a_pod("x", group="gone")), CLEAN, ""),
        "something is left to do": (RUNNING, UNFINISHED, ""),
        "workers do not run": ((a_head_pod(), *some_workers(3, phase="Pending")), CLEAN, ""),
        "workers are not ready": ((a_head_pod(), *some_workers(3, ready="False")), CLEAN, ""),
        "no Ready condition counts as fine": (
            (a_head_pod(), *some_workers(3, ready=None)),
            CLEAN,
            "ready",
        ),
    },
)
@pytest.mark.acceptance("raycluster", 66, 111)
def test_state(pods: Any, outcome: ExecutionOutcome, state: str) -> None:
    status = status_of(an_observation(*pods), outcome)
    assert (status.state, "state" in msgspec.to_builtins(status)) == (state, bool(state))


@pytest.mark.acceptance("raycluster", 111)
def test_ready_is_kept_when_the_head_is_lost() -> None:
    lost = status_of(after(status_of(an_observation(*RUNNING)), *some_workers(3)))
    assert lost.state == "ready"
    assert facts(lost)["HeadPodReady"] == ("False", "HeadPodNotFound")
    assert facts(lost)["RayClusterProvisioned"][0] == "True"


@pytest.mark.acceptance("raycluster", 112)
def test_provisioned_needs_only_the_pods_that_exist() -> None:
    status = status_of(an_observation(a_head_pod()))
    assert (status.state, facts(status)["RayClusterProvisioned"][0]) == ("", "True")


def test_without_a_head_a_cluster_is_not_provisioned() -> None:
    status = status_of(an_observation(*some_workers(3)))
    assert facts(status)["RayClusterProvisioned"] == ("False", "RayClusterPodsProvisioning")


def test_a_failure_stays_until_a_clean_reconcile() -> None:
    failed = status_of(an_observation(), FAILED)
    found = conditions.find(failed.conditions, "ReplicaFailure")
    assert found is not None
    assert found.message == "FailedCreateHeadPod\nexceeded quota"
    assert "ReplicaFailure" in facts(status_of(after(failed), UNFINISHED))
    assert "ReplicaFailure" not in facts(status_of(after(failed), CLEAN))


@pytest.mark.acceptance("raycluster", 73, 74, 78)
def test_suspension_goes_through_all_its_states() -> None:
    wanted = status_of(an_observation(*RUNNING, cluster=a_ray_cluster(suspend=True)))
    assert facts(wanted)["RayClusterSuspending"][0] == "True"
    still = status_of(after(wanted, *RUNNING, suspend=True))
    assert facts(still)["RayClusterSuspending"][0] == "True"
    done = status_of(after(still, suspend=True))
    assert done.state == "suspended"
    assert [facts(done)[kind][0] for kind in ("RayClusterSuspending", "RayClusterSuspended")] == [
        "False",
        "True",
    ]
    assert facts(done)["RayClusterProvisioned"] == ("False", "RayClusterPodsProvisioning")
    forgotten = status_of(after(done))
    assert facts(forgotten)["RayClusterSuspended"][0] == "True"
    resumed = status_of(after(done, suspend=False))
    assert facts(resumed)["RayClusterSuspended"][0] == "False"


@cases(
    ("pods", "fact"),
    {
        "none": ((), ("False", "HeadPodNotFound", "Head Pod not found")),
        "ready": ((a_head_pod(),), ("True", "HeadPodRunningAndReady")),
        "no Ready condition yet": ((a_head_pod(ready=None),), ("False", "Unknown")),
        "the node is lost": ((a_head_pod(ready="Unknown"),), ("Unknown", "Unknown")),
        "the image cannot be pulled": (
            (
                a_head_pod(
                    ready="False",
                    ready_reason="ContainersNotReady",
                    ready_message="not ready: [ray]",
                    waiting=("ImagePullBackOff", "no such image"),
                ),
            ),
            ("False", "ImagePullBackOff", "not ready: [ray]; ray: no such image"),
        ),
        "a container without a reason": (
            (a_head_pod(ready="False", ready_reason="ContainersNotReady", waiting=("", "")),),
            ("False", "ContainersNotReady", "ray: "),
        ),
    },
)
@pytest.mark.acceptance("raycluster", 113)
def test_head_ready(pods: Any, fact: tuple[str, ...]) -> None:
    assert compute_head_ready(an_observation(*pods)) == ConditionUpdate("HeadPodReady", *fact)


@pytest.mark.acceptance("raycluster", 52)
def test_counters_count_pods_and_clamp_while_resources_do_not() -> None:
    head = a_head(template=a_template(a_container("h", resources={"requests": {"cpu": "1"}})))
    worker = a_template(
        a_container(
            "w", resources={"limits": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1}}
        )
    )
    cluster = a_ray_cluster(
        head=head,
        groups=[a_group(replicas=20, template=worker), a_group("s", suspend=True, template=worker)],
    )
    status = status_of(an_observation(*RUNNING, a_pod("w8", ready="False"), cluster=cluster))
    assert (
        status.desired_worker_replicas,
        status.min_worker_replicas,
        status.max_worker_replicas,
    ) == (10, 0, 10)
    assert (status.ready_worker_replicas, status.available_worker_replicas) == (3, 4)
    assert (status.desired_cpu, status.desired_memory, status.desired_gpu, status.desired_tpu) == (
        "11",
        "20Gi",
        "20",
        "0",
    )


@pytest.mark.parametrize(
    ("head", "worker", "total"),
    [
        pytest.param("1G", "1Gi", "2073741824", id="mixed families keep the first's"),
        pytest.param("1.5Gi", "512Mi", "2Gi", id="the largest suffix without a fraction"),
        pytest.param("1.5Gi", None, "1536Mi", id="alone"),
    ],
)
def test_sums_are_written_as_kubernetes_writes_them(
    head: str, worker: str | None, total: str
) -> None:
    def template(amount: str | None) -> Any:
        return a_template(
            a_container("r", resources={"requests": {"memory": amount} if amount else {}})
        )

    cluster = a_ray_cluster(
        head=a_head(template=template(head)),
        groups=[a_group(replicas=1, template=template(worker))],
    )
    assert desired_resources.for_status(cluster)["desired_memory"] == total


def test_the_head_is_described_by_pod_and_service() -> None:
    info = compute.get_head_info(an_observation(a_head_pod()))
    assert (info.pod_ip, info.service_ip, info.pod_name, info.service_name) == (
        "10.0.0.1",
        "10.0.0.1",
        "c-head-x",
        "c-head-svc",
    )
    own = compute.get_head_info(
        an_observation(head_services=(a_head_service(cluster_ip="10.96.0.9"),))
    )
    assert (own.pod_ip, own.service_ip) == ("", "10.96.0.9")


def test_endpoints_prefer_node_ports_and_are_never_removed() -> None:
    ports = [
        ServicePort(name="client", port=10001, node_port=30001, target_port=10001),
        ServicePort(name="dashboard", port=8265, target_port="dash"),
        ServicePort(port=1, target_port=1),
    ]
    cluster = a_ray_cluster(status={"endpoints": {"old": "1"}})
    status = status_of(
        an_observation(cluster=cluster, head_services=(a_head_service(ports=ports),))
    )
    assert status.endpoints == {"old": "1", "client": "30001", "dashboard": "dash"}


@cases(
    ("observed", "starts"),
    {
        "no service": (an_observation(head_services=()), "unable to find head service"),
        "two": (
            an_observation(head_services=2 * (a_head_service(),)),
            "found multiple head services",
        ),
        "no address": (
            an_observation(head_services=(a_head_service(cluster_ip=""),)),
            "head service IP is empty",
        ),
        "two heads": (an_observation(a_head_pod("a"), a_head_pod("b")), "found multiple heads"),
    },
)
def test_what_makes_a_status_impossible(observed: Observed, starts: str) -> None:
    assert (compute.find_head_violation(observed, ExecutionOutcome()) or "").startswith(starts)


def test_the_status_of_a_wrong_name_depends_on_no_head() -> None:
    misnamed = ExecutionOutcome(
        failure=Failure(ReplicaFailure.INVALID_METADATA, "too long"), is_clean=False
    )
    assert (
        compute.find_head_violation(an_observation(a_head_pod("a"), a_head_pod("b")), misnamed)
        is None
    )


def test_a_status_without_a_service_has_the_reason() -> None:
    observed = an_observation(head_services=())
    assert compute.find_head_violation(observed, FAILED) is None
    assert compute.get_head_info(observed) == HeadInfo()


@pytest.mark.acceptance("raycluster", 114)
def test_a_status_is_written_only_for_what_counts() -> None:
    status = status_of(an_observation(*RUNNING))
    later = msgspec.structs.replace(
        status, last_update_time=NOW + timedelta(hours=1), observed_generation=7, desired_cpu="99"
    )
    assert not compute.has_changed(status, later)
    assert compute.has_changed(status, msgspec.structs.replace(status, ready_worker_replicas=2))
    assert not compute.has_changed(status, status_of(after(status, *RUNNING)))


def test_the_time_of_a_transition_moves_only_with_the_status() -> None:
    known = conditions.updated((), ConditionUpdate("A", "False", "x"), now=NOW)
    later = NOW + timedelta(hours=1)
    assert (
        conditions.updated(known, ConditionUpdate("A", "False", "y", "m"), now=later)[
            0
        ].last_transition_time
        == NOW
    )
    assert (
        conditions.updated(known, ConditionUpdate("A", "True", "y"), now=later)[
            0
        ].last_transition_time
        == later
    )


@pytest.mark.parametrize("state", ["", "failed"])
def test_a_state_stays_until_another_one_holds(state: str) -> None:
    """KubeRay no longer writes `failed`, but leaves an existing one unchanged."""
    held = RayClusterStatus(state=state)
    found = status_of(after(held))
    assert (found.state, found.state_transition_times) == (state, None)
    ready = status_of(after(held, *RUNNING))
    assert (ready.state, set(ready.state_transition_times or {})) == ("ready", {"ready"})
