"""The cluster behind a dashboard's answer; spec rayservice §17, a dashboard that answers for another cluster."""

import pytest

from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.api.ray_cluster import HeadInfo, RayCluster, RayClusterStatus
from common.ray.serve_status import Application, Deployment, Proxy, Replica, ServeDetails
from common.ray.view import SILENT, Reading, ServeView, verify_identity

TEXT = "the dashboard of RayCluster green answers for RayCluster blue"


def a_view(name: str, reading: Reading, head: str, *pods: str) -> ServeView:
    status = RayClusterStatus(head=HeadInfo(pod_ip=head))
    return ServeView(
        cluster=RayCluster(metadata=ObjectMeta(name=name), status=status),
        pods=tuple(
            Pod(metadata=ObjectMeta(name=each), status=PodStatus(pod_ip=each)) for each in pods
        ),
        serve=reading,
    )


def verified(reading: Reading) -> Reading:
    """Return the accepted part of an answer of the green cluster, which has the nodes g and h,
    beside the blue one on b.
    """
    view = verify_identity(a_view("green", reading, "h", "g", ""), a_view("blue", Reading(), "b"))
    assert view is not None
    return view.serve


def an_answer(*nodes: str) -> Reading:
    proxies = {node: Proxy(status="HEALTHY", node_ip=node) for node in nodes}
    return Reading(
        details=ServeDetails(applications={"app": Application(status="RUNNING")}, proxies=proxies)
    )


@pytest.mark.parametrize(
    ("nodes", "is_accepted"),
    [
        pytest.param(["g"], True, id="its own node"),
        pytest.param([], True, id="Ray reports no node"),
        pytest.param(["x"], True, id="nodes that are nobody's pods, as with several networks"),
        pytest.param(["g", "b"], True, id="a node that both are on, as in the host's network"),
        pytest.param(["b"], False, id="only nodes of the other one"),
        pytest.param(["b", "x"], False, id="nodes of the other one and of nobody"),
    ],
)
def test_an_answer_is_the_other_clusters_when_it_names_its_nodes_alone(
    nodes: list[str], *, is_accepted: bool
) -> None:
    reading = an_answer(*nodes)
    expected = reading if is_accepted else Reading(problem=TEXT, failures=SILENT)
    assert verified(reading) == expected


def test_a_replicas_node_counts_as_a_proxys_does() -> None:
    replica = Replica(state="RUNNING", node_ip="b")
    app = Application(
        status="RUNNING", deployments={"D": Deployment(status="HEALTHY", replicas=[replica])}
    )
    reading = Reading(details=ServeDetails(applications={"app": app}))
    assert verified(reading).problem == TEXT


def test_a_cluster_is_where_its_head_and_its_pods_are() -> None:
    assert a_view("green", Reading(), "h", "g", "").nodes == {"g", "h"}


def test_an_answer_is_kept_where_there_is_no_other_cluster() -> None:
    view = a_view("green", an_answer("b"), "g")
    assert verify_identity(view, None) is view
    assert verify_identity(None, view) is None
