import pytest
from msgspec.structs import replace

from cluster_reconciler.observed import describe_pod, find_irrecoverable_reason
from common import labels
from common.api.core import Container, ContainerState, ContainerStatus, Pod, StateTerminated
from support.builders.pods import a_pod
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases


@cases(
    ("pod", "due"),
    {
        "a failed pod goes whatever its restart policy": (a_pod("p", phase="Failed"), True),
        "a pod that ended well goes too": (a_pod("p", phase="Succeeded"), True),
        "an ended container that may not restart": (
            a_pod("p", ended=True, restart_policy="Never"),
            True,
        ),
        "an ended container that restarts": (a_pod("p", ended=True), False),
        "one that restarts on failure": (a_pod("p", ended=True, restart_policy="OnFailure"), False),
        "a crash loop is left alone": (a_pod("p", waiting=("CrashLoopBackOff", "")), False),
        "a pending pod is left alone": (a_pod("p", phase="Pending"), False),
        "an unknown phase": (
            a_pod("p", phase="Unknown", ended=True, restart_policy="Never"),
            False,
        ),
        "a pod that goes already is not asked again": (
            a_pod("p", phase="Failed", terminating=True),
            False,
        ),
    },
)
@pytest.mark.acceptance("raycluster", 43, 44, 60, 61)
def test_only_a_pod_that_cannot_recover_is_due(pod: Pod, due: bool) -> None:
    assert bool(find_irrecoverable_reason(pod, a_ray_cluster())) is due


def test_the_reason_names_the_phase_and_the_pod() -> None:
    reason = find_irrecoverable_reason(a_pod("p", phase="Failed"), a_ray_cluster())
    assert reason.startswith("The worker Pod p status is Failed which is a terminal state.")


def test_the_state_is_reported_as_kuberay_reports_it() -> None:
    assert describe_pod(a_pod("p", phase="Failed", restart_policy="Never"), a_ray_cluster()) == (
        "Pod status: Failed; Pod restart policy: Never; Ray container terminated status: nil"
    )


RAY = a_template(a_container("ray"))
MESHED = a_ray_cluster(head=a_head(template=RAY), groups=[a_group(template=RAY)])


@pytest.mark.parametrize("node_type", [labels.HEAD, labels.WORKER])
@pytest.mark.parametrize("ended", ["ray", "proxy"])
def test_the_ray_container_counts_wherever_a_mesh_puts_its_proxy(
    node_type: str, ended: str
) -> None:
    pod = a_pod("p", node_type=node_type, restart_policy="Never")
    containers = [Container(name="proxy"), Container(name="ray")]
    over = ContainerState(terminated=StateTerminated(exit_code=1, reason="Error"))
    pod = replace(
        pod,
        spec=replace(pod.spec, containers=containers),
        status=replace(pod.status, container_statuses=[ContainerStatus(name=ended, state=over)]),
    )
    assert bool(find_irrecoverable_reason(pod, MESHED)) is (ended == "ray")


def test_a_container_that_was_renamed_since_is_the_first_one() -> None:
    assert find_irrecoverable_reason(
        a_pod("p", ended=True, restart_policy="Never"), a_ray_cluster()
    )
