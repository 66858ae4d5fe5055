"""Ongoing requests from the metrics that Ray 2.60 exports; any other text gives no number."""

import pytest

from common.ray import ongoing

HTTP = "ray_serve_num_ongoing_http_requests"
OTHER = "ray_node_cpu_count 2.0\n"


@pytest.mark.parametrize(
    ("why", "text", "expected"),
    [
        (
            "one proxy",
            f'{OTHER}{HTTP}{{Version="2.60.0",node_id="a",node_ip_address="10.0.0.1"}} 3.0\n',
            3,
        ),
        ("series add up", f'{HTTP}{{node_id="a"}} 1.0\n{HTTP}{{node_id="b"}} 2.0\n', 3),
        ("gRPC counts too", f"{HTTP} 1.0\nray_serve_num_ongoing_grpc_requests 2.0\n", 3),
        ("a proxy that never had a request", OTHER, 0),
        (
            "a proxy with long streams alone, of which Ray dropped the line",
            "ray_serve_replica_processing_queries 6.0\n",
            6,
        ),
        ("other names that begin alike", f"{HTTP}_total 7.0\n{OTHER}", 0),
        ("comments", f"# HELP {HTTP} The number.\n# TYPE {HTTP} gauge\n{OTHER}", 0),
        ("a label with a brace", f'{HTTP}{{path="/{{x}}"}} 4.0\n', 4),
        ("a time stamp", f"{HTTP} 4.0 1700000000000\n", 4),
        ("nothing", "", None),
        ("a page that is not Ray's", "<html>it works</html>", None),
        ("no number", f"{HTTP} many\n", None),
        ("not a number", f"{HTTP} NaN\n", None),
        ("no value", f"{HTTP}\n", None),
    ],
)
def test_count(why: str, text: str, expected: int | None) -> None:
    found = ongoing.count(text.encode())
    assert (found.requests if found is not None else None) == expected, why


HA_PROXIES = "ray_serve_haproxy_process_count"
REPLICAS = "ray_serve_replica_processing_queries"


@pytest.mark.parametrize(
    ("why", "text", "expected"),
    [
        (
            "HAProxy's newest process knows all",
            f"{HA_PROXIES} 1.0\n{HTTP} 2.0\n{REPLICAS} 1.0\n",
            2,
        ),
        (
            "replicas report what an older process works on",
            f"{HA_PROXIES} 2.0\n{HTTP} 0.0\n{REPLICAS} 1.0\n",
            1,
        ),
        (
            "of several replicas each",
            f'{HA_PROXIES} 2.0\n{HTTP} 0.0\n{REPLICAS}{{r="a"}} 1.0\n{REPLICAS}{{r="b"}} 2.0\n',
            3,
        ),
        (
            "an older process that holds idle connections alone",
            f"{HA_PROXIES} 3.0\n{HTTP} 0.0\n{REPLICAS} 0.0\n",
            0,
        ),
        ("HAProxy did not answer Ray", f"{HA_PROXIES} 1.0\n{REPLICAS} 0.0\n", None),
        ("calls between deployments keep no cluster", f"{HTTP} 0.0\n{REPLICAS} 5.0\n", 0),
        ("a count that is no number", f"{HA_PROXIES} 2.0\n{HTTP} 0.0\n{REPLICAS} NaN\n", None),
    ],
)
def test_count_behind_ha_proxy(why: str, text: str, expected: int | None) -> None:
    found = ongoing.count(text.encode())
    assert (found.requests if found is not None else None) == expected, why


def test_streams_count_by_their_replica_where_the_proxy_of_another_node_reports_nothing_any_more() -> (
    None
):
    head, worker = (
        ongoing.count(OTHER.encode()),
        ongoing.count(f"{HTTP} 0.0\n{REPLICAS} 3.0\n".encode()),
    )
    assert head is not None
    assert worker is not None
    assert worker.requests == 0
    assert ongoing.total([head, worker]).requests == 3


def test_a_request_counts_once_though_its_proxy_and_its_replica_are_on_different_nodes() -> None:
    head = ongoing.count(f"{HA_PROXIES} 1.0\n{HTTP} 3.0\n".encode())
    worker = ongoing.count(f"{HA_PROXIES} 2.0\n{HTTP} 0.0\n{REPLICAS} 3.0\n".encode())
    assert head is not None
    assert worker is not None
    assert ongoing.total([head, worker]).requests == 3


@pytest.mark.parametrize("number", ["1e308", "9" * 5000, "1000001", "inf", "nan"])
def test_more_requests_than_a_node_can_have_are_no_count(number: str) -> None:
    assert (
        ongoing.count(f"ray_x 1\nray_serve_num_ongoing_http_requests {number}\n".encode()) is None
    )
