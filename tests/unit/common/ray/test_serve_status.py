"""A status of Serve alone proves nothing: replicas and proxies count too (design rule 8)."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from common import errors
from common.ray import serve_status
from common.ray.serve_status import ServeDetails
from support.tables import cases


def details(
    *,
    app: str = "RUNNING",
    running: int = 1,
    target: int | None = 1,
    proxy: str = "HEALTHY",
    where: str = "EveryNode",
) -> ServeDetails:
    replicas = [{"state": "RUNNING", "node_ip": "10.0.0.1"}] * running + [{"state": "STARTING"}]
    deployment: dict[str, Any] = {
        "status": "HEALTHY",
        "replicas": replicas,
        "target_num_replicas": target,
    }
    body = {
        "applications": {"a": {"status": app, "deployments": {"d": deployment}}},
        "proxies": {"n": {"status": proxy, "node_ip": "10.0.0.1"}},
        "proxy_location": where,
    }
    return msgspec.convert(body, ServeDetails)


@cases(
    ("seen", "why"),
    {
        "all serve": (details(), None),
        "nothing there": (ServeDetails(), "no application is deployed"),
        "still deploying": (details(app="DEPLOYING"), "application a is DEPLOYING"),
        "RUNNING with none": (
            details(running=0),
            "deployment d of application a has 0 of 1 replicas running",
        ),
        "none wanted": (details(running=0, target=0), None),
        "a Ray that does not count": (details(running=0, target=None), None),
        "the proxy drains": (details(proxy="DRAINING"), "no proxy is healthy"),
        "no proxies at all": (details(proxy="DRAINING", where="Disabled"), None),
    },
)
def test_why_applications_do_not_serve(seen: ServeDetails, why: str | None) -> None:
    assert serve_status.not_serving(seen) == why


def test_a_node_with_replicas_needs_its_own_proxy() -> None:
    seen = details()
    other = replace(seen, proxies={"n": serve_status.Proxy(status="HEALTHY", node_ip="10.0.0.2")})
    assert serve_status.not_serving(other) == "the proxy on node 10.0.0.1 is not healthy"
    head_only = replace(other, proxy_location="HeadOnly")
    assert serve_status.not_serving(head_only) is None


def test_an_application_without_a_name_is_shown_as_default() -> None:
    assert list(ServeDetails(applications={"": serve_status.Application()}).named()) == ["default"]


def test_an_application_that_was_asked_for_and_is_not_listed_is_missing() -> None:
    seen = ServeDetails(
        applications={"a": serve_status.Application(), "": serve_status.Application()}
    )
    assert serve_status.missing(seen, frozenset({"a", "default"})) is None
    assert (
        serve_status.missing(seen, frozenset({"b", "a", "c"}))
        == "application b is not deployed yet"
    )


def test_all_nodes_that_serve_reports() -> None:
    seen = details()
    more = replace(seen, proxies={"n": serve_status.Proxy(status="DRAINING", node_ip="10.0.0.2")})
    assert more.nodes == {"10.0.0.1", "10.0.0.2"}


@pytest.mark.parametrize(
    "answer",
    [
        '{"target_capacity": 1e300}',
        '{"target_capacity": -5}',
        '{"applications": {"a": {"deployments": {"d": {"target_num_replicas": -1}}}}}',
        '{"applications": {"a": {"deployments": {"d": {"target_num_replicas": 99999999999999999999}}}}}',
        '{"applications": {"a": {"deployments": {"d": {"replicas": [{"start_time_s": 1e300}]}}}}}',
        '{"applications": {"a": {"deployments": {"d": {"replicas": [{"start_time_s": -1}]}}}}}',
    ],
)
def test_numbers_that_ray_cannot_mean_are_no_answer(answer: str) -> None:
    with pytest.raises(errors.Unavailable):
        serve_status.decode(answer.encode())


@pytest.mark.parametrize("number", [5_000, 5_001])
def test_more_applications_than_anybody_runs_are_no_answer(number: int) -> None:
    body = msgspec.json.encode({"applications": {str(each): {} for each in range(number)}})
    if number <= serve_status.MAX_NAMED_PARTS:
        assert len(serve_status.decode(body).applications) == number
    else:
        with pytest.raises(errors.Unavailable, match="more than 5000 applications and deployments"):
            serve_status.decode(body)


def test_bytes_that_are_no_text_are_no_answer() -> None:
    with pytest.raises(errors.Unavailable, match="utf-8"):
        serve_status.decode(b'{"applications": {"\xff": {}}}')


def test_the_commas_of_tracebacks_are_no_values() -> None:
    message = '  File "/app/main.py", line 1, in <module>\n' * 400
    app = {"status": "DEPLOY_FAILED", "message": message}
    body = msgspec.json.encode({"applications": {str(each): app for each in range(200)}})
    assert body.count(b",") > serve_status.MAX_PARTS
    assert len(serve_status.decode(body).applications) == 200
