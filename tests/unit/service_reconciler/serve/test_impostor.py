"""Whose answer a dashboard gives; spec rayservice §17, a dashboard that answers for another cluster."""

import pytest

from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.ray.serve_status import Application, Deployment, Proxy, Replica, ServeDetails
from common.ray.view import Reading
from service_reconciler.observed import ClusterView
from service_reconciler.serve import impostor


def a_view(name: str, *ips: str, nodes: tuple[str, ...] = ()) -> ClusterView:
    """Return a cluster with pods at these addresses, whose dashboard tells of proxies on these nodes."""
    pods = tuple(Pod(metadata=ObjectMeta(name=f"{name}-{ip}"), status=PodStatus(pod_ip=ip)) for ip in ips)
    proxies = {ip: Proxy(status="HEALTHY", node_ip=ip) for ip in nodes}
    details = ServeDetails(applications={"app": Application(status="RUNNING")}, proxies=proxies)
    cluster = RayCluster(metadata=ObjectMeta(name=name))
    return ClusterView(cluster=cluster, pods=pods, serve=Reading(details=details))


@pytest.mark.parametrize(
    ("nodes", "is_believed"),
    [
        pytest.param(("g",), True, id="its own node"),
        pytest.param((), True, id="Ray tells of no node"),
        pytest.param(("x",), True, id="nodes that are nobody's pods, as with several networks"),
        pytest.param(("g", "b"), True, id="a node that both are on, as in the host's network"),
        pytest.param(("b",), False, id="only nodes of the other one"),
        pytest.param(("b", "x"), False, id="nodes of the other one and of nobody"),
    ],
)
def test_an_answer_is_the_other_clusters_when_it_names_its_nodes_alone(
    nodes: tuple[str, ...], *, is_believed: bool
) -> None:
    green, blue = a_view("green", "g", nodes=nodes), a_view("blue", "b", nodes=("b",))
    seen = impostor.unmasked(green, blue)
    assert seen is not None
    assert (seen.serve.details is not None) is is_believed
    if not is_believed:
        text = "the dashboard of RayCluster green answers for RayCluster blue"
        assert seen.serve == Reading(problem=text, failures=impostor.SILENT)


def test_a_replicas_node_counts_as_a_proxys_does() -> None:
    replica = Replica(state="RUNNING", node_ip="b")
    app = Application(status="RUNNING", deployments={"D": Deployment(status="HEALTHY", replicas=[replica])})
    green = ClusterView(
        cluster=RayCluster(metadata=ObjectMeta(name="green")),
        serve=Reading(details=ServeDetails(applications={"app": app})),
    )
    seen = impostor.unmasked(green, a_view("blue", "b"))
    assert seen is not None
    assert seen.serve.details is None


def test_without_another_cluster_every_answer_is_believed() -> None:
    green = a_view("green", "g", nodes=("b",))
    assert impostor.unmasked(green, None) is green
    assert impostor.unmasked(None, green) is None
