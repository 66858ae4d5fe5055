"""The nodes of a cluster that have proxies, by its spec and by Ray's reports."""

from typing import Any

import msgspec
import pytest

from common.api.core import Pod
from common.api.opaque import Json
from common.ray import serve_proxies
from common.ray.serve_proxies import ServeProxies
from common.ray.serve_status import Location, ServeDetails

HEAD, WORKER = "192.0.2.1", "192.0.2.2"


def details(**fields: Any) -> ServeDetails:
    replicas: list[Json] = [{"state": "RUNNING", "node_ip": WORKER}]
    deployments: Json = {"Model": {"status": "HEALTHY", "replicas": replicas}}
    apps: Json = {"app": {"status": "RUNNING", "deployments": deployments}}
    return msgspec.convert({"applications": apps, **fields}, ServeDetails)


def template(*ports: tuple[str, int]) -> Json:
    declared = [{"name": name, "containerPort": number} for name, number in ports]
    return {"spec": {"containers": [{"name": "ray", "ports": declared}, {"name": "other"}]}}


def cluster(head: Json, *workers: Json) -> Json:
    groups = [{"groupName": "group", "template": each} for each in workers]
    return {"headGroupSpec": {"template": head}, "workerGroupSpecs": groups}


NONE, AT_8000, AT_9000 = template(), template(("serve", 8000)), template(("serve", 9000))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ServeProxies()),
        ({"proxy_location": "HeadOnly"}, ServeProxies(location=Location.HEAD_ONLY)),
        ({"proxy_location": "Disabled"}, ServeProxies(location=Location.DISABLED)),
        ({"proxy_location": "Elsewhere", "http_options": []}, ServeProxies()),
        ({"proxy_location": [], "http_options": {"port": "9000"}}, ServeProxies()),
        ({"proxy_location": None, "http_options": {"port": True}}, ServeProxies()),
        ({"http_options": {"port": 9000}}, ServeProxies(port=9000)),
    ],
)
def test_proxies_are_those_of_the_config(config: Json, expected: ServeProxies) -> None:
    assert serve_proxies.asked(config) == expected


def test_proxies_are_those_that_ray_reports() -> None:
    assert serve_proxies.reported(None) == serve_proxies.reported(details()) == ServeProxies()
    found = details(proxy_location="HeadOnly", http_options={"root_path": "", "port": 9000})
    assert serve_proxies.reported(found) == ServeProxies(location=Location.HEAD_ONLY, port=9000)


@pytest.mark.parametrize(
    ("proxies", "workers", "expected"),
    [
        (ServeProxies(), [NONE], {WORKER}),
        (ServeProxies(port=9000), [AT_9000], {WORKER}),
        (ServeProxies(port=9000), [NONE], {HEAD}),
        (ServeProxies(location=Location.HEAD_ONLY), [NONE], {HEAD}),
        (ServeProxies(location=Location.DISABLED), [NONE], set[str]()),
    ],
)
def test_requests_reach_the_replicas_through_these_nodes(
    proxies: ServeProxies, workers: list[Json], expected: set[str]
) -> None:
    config = cluster(AT_9000, *workers)
    assert proxies.nodes(details(), HEAD, config) == expected
    assert "" not in proxies.nodes(details(), "", config)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (Location.EVERY_NODE, [True, True]),
        (Location.HEAD_ONLY, [True, False]),
        (Location.DISABLED, [False, False]),
    ],
)
def test_nodes_have_a_proxy_by_its_location(location: Location, expected: list[bool]) -> None:
    assert [
        ServeProxies(location=location).is_at(each, HEAD) for each in (HEAD, WORKER)
    ] == expected


@pytest.mark.parametrize(
    ("location", "port", "workers", "expected"),
    [
        (Location.EVERY_NODE, 8000, [NONE, AT_8000], True),
        (Location.EVERY_NODE, 9000, [NONE], False),
        (Location.EVERY_NODE, 9000, [AT_9000, AT_8000], False),
        (Location.EVERY_NODE, 9000, [AT_9000], True),
        (Location.HEAD_ONLY, 8000, [AT_8000], False),
        (Location.DISABLED, 8000, [AT_8000], False),
    ],
)
def test_workers_take_requests_at_the_port_that_they_declare(
    location: Location, port: int, workers: list[Json], *, expected: bool
) -> None:
    proxies = ServeProxies(location=location, port=port)
    assert proxies.are_on_workers_of(cluster(NONE, *workers)) == expected


@pytest.mark.parametrize(
    ("declared", "port", "expected"), [(NONE, 8000, True), (NONE, 9000, False), (AT_9000, 9000, True)]
)  # fmt: skip
def test_a_pod_can_be_ready_at_the_port_that_it_declares(
    declared: Json, port: int, *, expected: bool
) -> None:
    pod = msgspec.convert({"metadata": {"name": "pod"}, **declared}, Pod)
    assert ServeProxies(port=port).may_be_at(pod.spec.containers[0]) == expected


@pytest.mark.parametrize(
    ("proxies", "config", "expected"),
    [
        (ServeProxies(), cluster(NONE, AT_8000), []),
        (ServeProxies(), cluster(AT_9000, NONE), [("headGroupSpec",)]),
        (ServeProxies(port=9000), cluster(AT_9000, NONE, AT_9000), [("workerGroupSpecs", 0)]),
        (
            ServeProxies(port=9000),
            cluster(NONE, NONE),
            [("headGroupSpec",), ("workerGroupSpecs", 0)],
        ),
        (ServeProxies(location=Location.HEAD_ONLY, port=9000), cluster(AT_9000, NONE), []),
        (ServeProxies(location=Location.DISABLED, port=9000), cluster(NONE, NONE), []),
        (ServeProxies(), {}, []),
    ],
)
def test_mismatches(proxies: ServeProxies, config: Json, expected: list[Any]) -> None:
    found = dict(serve_proxies.mismatches(proxies, config))
    assert [*found] == expected
    assert all(f"containerPort: {proxies.port}" in each for each in found.values())


@pytest.mark.parametrize(
    ("proxies", "config", "excludes_head", "expected"),
    [
        (ServeProxies(), cluster(NONE, NONE), True, None),
        (ServeProxies(port=9000), cluster(NONE, NONE), False, "the head: Serve listens on port 9000"),
        (ServeProxies(port=9000), cluster(NONE, AT_9000), False, None),
        (ServeProxies(location=Location.HEAD_ONLY), cluster(NONE, NONE), False, None),
        (ServeProxies(location=Location.HEAD_ONLY), cluster(NONE), True, "the only proxy is on the head"),
        (ServeProxies(location=Location.DISABLED, port=9000), cluster(NONE), True, "Serve has no proxy"),
    ],
)  # fmt: skip
def test_unreachable(
    proxies: ServeProxies, config: Json, expected: str | None, *, excludes_head: bool
) -> None:
    found = serve_proxies.unreachable(proxies, config, excludes_head=excludes_head)
    assert found == expected or (found and expected and found.startswith(expected))
