"""A dashboard is contacted at the address of its cluster's head pod, whatever address a name
resolves to.
"""

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from common import errors, labels
from common.api.core import Endpoint, EndpointSlice, ObjectReference, Service, ServicePort
from common.api.meta import ObjectMeta, OwnerReference
from common.api.ray_cluster import HeadInfo, RayCluster
from common.ray.dashboard import APPLICATIONS, MAX_STATUS_SIZE, DirectDashboard, Target
from common.ray.serve_api import ServeApi
from common.ray.serve_status import ServeDetails
from common.ray.view import ServeView, foreign_answer
from common.runtime.cache import Cache
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from unit.common.ray.test_token_theft import HEAD as SERVICE
from unit.common.ray.test_token_theft import of_tokens

OWN = "10.0.0.7"
PREY = "169.254.169.254"
CONFIG = "applications:\n- name: app\n  import_path: a:b\n"
HEAD = Target(namespace="ns", name="c-head-svc", port=8265, head_ip=OWN)


def a_cluster(head: str = OWN) -> RayCluster:
    cluster = of_tokens("own")
    status = replace(cluster.status, head=HeadInfo(pod_ip=head))
    return replace(cluster, spec_json=msgspec.Raw(b"{}"), status=status)


def a_slice(*addresses: str, owner: str = "uid-of-svc", kind: str = "Pod") -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(
            name="c-head-svc-1",
            namespace="ns",
            labels={labels.SERVICE_NAME: "c-head-svc"},
            owner_references=[OwnerReference(kind="Service", name="c-head-svc", uid=owner)],
        ),
        endpoints=[
            Endpoint(addresses=[each], target_ref=ObjectReference(kind=kind, uid=each))
            for each in addresses
        ],
    )


class Network:
    """Records the addresses to which requests are sent; answers with these nodes."""

    def __init__(self, *nodes: str) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.nodes = nodes

    def __call__(self, request: httpx.Request) -> httpx.Response:
        where = f"{request.url.host}:{request.url.port}"
        self.requests.append((request.method, where, request.headers["Host"]))
        proxies = {each: {"status": "HEALTHY", "node_ip": each} for each in self.nodes}
        body = msgspec.json.encode({"applications": {}, "proxies": proxies})
        return httpx.Response(200, stream=httpx.ByteStream(body))


def an_api(network: Network, *slices: EndpointSlice, service: Service = SERVICE) -> ServeApi:
    cache = Cache()
    cache.put(replace(service, metadata=replace(service.metadata, uid="uid-of-svc")))
    for each in slices:
        cache.put(each)
    client = httpx.AsyncClient(transport=httpx.MockTransport(network))
    return ServeApi(
        DirectDashboard(domain="cluster.local", client=client), FakeKube(), cache, FakeClock()
    )


async def polled(api: ServeApi, cluster: RayCluster) -> ServeView:
    return await api.poll(ServeView(cluster=cluster), max_age=1.0, now=FakeClock().now())


async def test_requests_go_to_the_address_of_the_head_pod() -> None:
    network = Network()
    api = an_api(network, a_slice(OWN))
    assert (await polled(api, a_cluster())).serve.details is not None
    await api.submit(a_cluster(), CONFIG)
    assert {each[1] for each in network.requests} == {f"{OWN}:8265"}
    assert {each[0] for each in network.requests} == {"GET", "PUT"}
    assert {each[2] for each in network.requests} == {"c-head-svc.ns.svc.cluster.local:8265"}


@pytest.mark.parametrize(
    "slices",
    [
        (),
        (a_slice(OWN, owner="uid-of-another"),),
        (a_slice(OWN, kind=""),),
        (a_slice("10.0.0.8", "10.0.0.9"),),
    ],
    ids=["none", "of another Service", "of no pod", "two that are not the status'"],
)
async def test_without_a_known_address_nothing_is_asked(slices: tuple[EndpointSlice, ...]) -> None:
    network = Network()
    view = await polled(an_api(network, *slices), a_cluster())
    assert (
        "the address of the head pod behind Service c-head-svc is not known" in view.serve.problem
    )
    assert network.requests == []


async def test_an_address_in_the_status_alone_is_not_asked() -> None:
    network = Network()
    await polled(an_api(network, a_slice(OWN)), a_cluster(head=PREY))
    assert {each[1] for each in network.requests} == {f"{OWN}:8265"}


async def test_an_ipv6_address_is_asked() -> None:
    network = Network()
    await polled(an_api(network, a_slice("fd00::7")), a_cluster(head="fd00::7"))
    assert [each[1] for each in network.requests] == ["fd00::7:8265"]


@pytest.mark.parametrize(
    ("address", "number"), [("None", 8265), ("10.96.0.9", 9265)], ids=["headless", "translated"]
)
async def test_the_port_is_that_of_the_pod(address: str, number: int) -> None:
    port = ServicePort(name="dashboard", port=8265, target_port=9265)
    spec = replace(SERVICE.spec, cluster_ip=address, ports=[port])
    network = Network()
    await polled(an_api(network, a_slice(OWN), service=replace(SERVICE, spec=spec)), a_cluster())
    assert [each[1] for each in network.requests] == [f"{OWN}:{number}"]


async def test_no_config_is_sent_to_a_dashboard_that_names_none_of_the_clusters_nodes() -> None:
    network = Network("10.9.9.9")
    api = an_api(network, a_slice(OWN))
    await polled(api, a_cluster())
    with pytest.raises(errors.Unavailable, match=r"names node 10\.9\.9\.9 and none of the cluster"):
        await api.submit(a_cluster(), CONFIG)
    assert [each[0] for each in network.requests] == ["GET"]


def test_an_answer_that_names_no_node_yet_is_the_clusters() -> None:
    assert foreign_answer(a_cluster(), frozenset({OWN}), ServeDetails()) is None


async def test_a_dashboard_without_an_address_is_not_asked_by_its_name() -> None:
    network = Network()
    client = httpx.AsyncClient(transport=httpx.MockTransport(network))
    direct = DirectDashboard(domain="cluster.local", client=client)
    with pytest.raises(errors.Unavailable, match="EndpointSlices name none"):
        await direct.request(replace(HEAD, head_ip=""), APPLICATIONS, most=MAX_STATUS_SIZE)
    assert network.requests == []
