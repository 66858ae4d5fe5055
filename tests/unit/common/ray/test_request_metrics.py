"""Requests of a Ray node, from its metrics: which series count, and which cannot be meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ray import exposition, request_metrics
from common.ray.request_metrics import Histogram, NodeSeries, Requests, Sample, Series
from support.manifests import ROOT

HTTP = "ray_serve_num_http_requests"
LATENCY = "ray_serve_http_request_latency_ms_bucket"
TOKEN = "ray_vllm_time_to_first_token_seconds_bucket"


def counter(
    count: object,
    *,
    name: str = f"{HTTP}_total",
    route: str = "/a",
    status: str = "200",
    app: str = "app",
    **labels: str,
) -> str:
    marks = {"application": app, "route": route, "status_code": status, "method": "GET", **labels}
    text = ",".join(f'{key}="{value}"' for key, value in marks.items())
    return f"{name}{{{text}}} {count}\n"


def buckets(
    *cumulative: object,
    name: str = LATENCY,
    bounds: tuple[str, ...] = ("100.0", "500.0"),
    **labels: str,
) -> str:
    return "".join(
        counter(count, name=name, le=bound, **labels)
        for bound, count in zip((*bounds, "+Inf"), cumulative, strict=True)
    )


def series(text: str) -> NodeSeries | None:
    return request_metrics.parse(("ray_node_cpu 1\n" + text).encode())


def parse(text: str) -> Sample | None:
    found = series(text)
    return None if found is None else request_metrics.by_route(found.values())


def parsed(text: str) -> Sample:
    found = parse(text)
    assert found is not None
    return found


def of_all(text: str) -> tuple[int, int]:
    found = parsed(text)[""]
    return found.total, found.errors


def test_requests_are_counted_by_route_and_in_all() -> None:
    text = (
        counter(20.0)
        + counter(3.0, status="500")
        + counter(5.0, route="/b", status="404")
        + buckets(18, 22, 23)
    )
    of_a = Requests(total=23, errors=3, latency=Histogram((0.1, 0.5), (18, 4, 1)))
    assert parsed(text) == {
        "": Requests(total=28, errors=3, latency=Histogram((0.1, 0.5), (18, 4, 1))),
        "/a": of_a,
        "/b": Requests(total=5),
    }


@pytest.mark.parametrize(
    ("status", "is_error"),
    [
        ("200", False),
        ("301", False),
        ("404", False),
        ("429", False),
        ("499", False),
        ("408", True),
        ("500", True),
        ("503", True),
        ("599", True),
        ("OK", False),
        ("CANCELLED", False),
        ("INVALID_ARGUMENT", False),
        ("NOT_FOUND", False),
        ("INTERNAL", True),
        ("UNKNOWN", True),
        ("UNAVAILABLE", True),
        ("DEADLINE_EXCEEDED", True),
        ("RESOURCE_EXHAUSTED", True),
        ("UNIMPLEMENTED", True),
        ("DATA_LOSS", True),
    ],
)
def test_errors_are_those_of_the_server(status: str, *, is_error: bool) -> None:
    assert of_all(counter(2.0, status=status)) == (2, 2 if is_error else 0)


@pytest.mark.parametrize(
    ("why", "text", "expected"),
    [
        ("no request yet", "", (0, 0)),
        ("health checks are of no application", counter(9, app="", route="/-/healthz") + counter(1), (1, 0)),
        ("a WebSocket that was closed", counter(9, status="1000") + counter(9, status="1011") + counter(1), (1, 0)),
        ("a counter under two names", counter(7) + counter(7, name=HTTP), (7, 0)),
        ("a counter under its old name", counter(7, name=HTTP), (7, 0)),
        ("HTTP and gRPC", counter(1) + counter(2, name="ray_serve_num_grpc_requests_total", route="app"), (3, 0)),
        ("workers of one node", counter(1, WorkerId="a") + counter(2, WorkerId="b"), (3, 0)),
        ("errors by deployment are other counters", counter(9, name="ray_serve_num_deployment_http_error_requests_total"), (0, 0)),
        ("a comment", "# " + counter(9), (0, 0)),
        ("a number with an exponent", counter("1e3"), (1000, 0)),
        ("a moment behind the number", counter("5 1700000000000"), (5, 0)),
        ("an exemplar behind the number", counter('5 # {trace_id="x"} 0.4'), (5, 0)),
        ("a label with a brace, a comma and a quote", counter(5, route='/a}{,b=\\"c\\"'), (5, 0)),
        ("a line without labels", f"{HTTP}_total 5\n", (5, 0)),
        ("a line without an application", f'{HTTP}_total{{route="/a"}} 5\n', (5, 0)),
    ],
)  # fmt: skip
def test_what_counts(why: str, text: str, expected: tuple[int, int]) -> None:
    assert of_all(text) == expected, why


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e13", "9" * 5000, "x", "0x1"])
def test_a_number_that_cannot_be_meant_leaves_no_sample(value: str) -> None:
    assert parse(counter(value)) is None
    assert parse(buckets(0, 0, value)) is None


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("counts that decrease", buckets(5, 4, 6)),
        ("no bucket without a bound", counter(5, name=LATENCY, le="100.0")),
        ("a bound that is no number", buckets(1, 1, 1, bounds=("100.0", "x"))),
        ("a negative bound", buckets(1, 1, 1, bounds=("-5", "100"))),
        ("a bound of NaN", buckets(1, 1, 1, bounds=("NaN", "100"))),
        ("a bucket without a bound's label", counter(5, name=LATENCY)),
        ("too many bounds", buckets(*range(102), bounds=tuple(f"{each}" for each in range(101)))),
    ],
)
def test_a_histogram_that_cannot_be_meant_leaves_no_sample(why: str, text: str) -> None:
    assert parse(text) is None, why


def test_a_hundred_bounds_can_be_meant() -> None:
    assert (
        len(
            parsed(buckets(*range(101), bounds=tuple(f"{each}" for each in range(100))))[
                ""
            ].latency.bounds
        )
        == 100
    )


def test_what_is_not_of_ray_is_no_sample() -> None:
    assert request_metrics.parse(b"python_info 1\n") is None
    assert request_metrics.parse(b"") is None
    assert request_metrics.parse(b"\xff\xfe\x00<html>") is None


@pytest.mark.parametrize("name", [TOKEN, "ray_vllm:time_to_first_token_seconds_bucket"])
def test_the_first_token_is_in_seconds_and_has_no_route(name: str) -> None:
    marks = 'model_name="m",engine="0"'
    text = f'{name}{{{marks},le="0.25"}} 4.0\n{name}{{{marks},le="+Inf"}} 5.0\n'
    assert parsed(text) == {"": Requests(first_token=Histogram((0.25,), (4, 1)))}


def test_a_histogram_is_the_sum_of_its_series() -> None:
    text = (
        buckets(1, 2, 3)
        + buckets(1, 1, 1, status="500")
        + buckets(9, 9, 9, status="1000")
        + buckets(9, 9, 9, app="")
    )
    assert parsed(text)["/a"].latency == Histogram((0.1, 0.5), (2, 1, 1))


def test_of_different_bounds_the_rarer_are_left_out() -> None:
    text = buckets(1, 2, 3) + buckets(1, 2, bounds=("7.0",), status="201")
    assert parsed(text)[""].latency == Histogram((0.1, 0.5), (1, 1, 1))
    more = text + buckets(0, 2, bounds=("7.0",), status="202")
    assert parsed(more)[""].latency == Histogram((0.007,), (1, 3))


def test_at_most_64_routes_are_kept_and_the_others_are_together() -> None:
    sample = parsed("".join(counter(1, route=f"/{each:03}") for each in range(70)))
    assert (len(sample), sample[""].total, sample["…"].total, sample["/063"].total) == (
        66,
        70,
        6,
        1,
    )
    assert "/064" not in sample


def test_routes_beyond_the_limit_stay_together_in_a_total() -> None:
    one = parsed("".join(counter(1, route=f"/a{each:03}") for each in range(70)))
    two = parsed("".join(counter(1, route=f"/b{each:03}") for each in range(70)))
    both = request_metrics.total([one, two])
    assert (len(both), both[""].total, both["…"].total) == (66, 140, 76)


def test_a_route_without_an_end_is_among_the_others_and_control_characters_are_replaced() -> None:
    assert set(parsed(counter(1, route="/" + "a" * 256) + counter(1, route="/\x1b[2Jb"))) == {
        "",
        "…",
        "/b",
    }
    assert "/" + "a" * 255 in parsed(counter(1, route="/" + "a" * 255))


def test_too_many_lines_are_no_sample() -> None:
    assert parse(counter(1) * exposition.MAX_LINES) is not None
    assert parse(counter(1) * (exposition.MAX_LINES + 1)) is None


@given(st.binary())
def test_whatever_a_node_answers_stops_no_reader(exposition: bytes) -> None:
    request_metrics.parse(b"ray_serve_num_http_requests_total{" + exposition)
    request_metrics.parse(b'ray_serve_http_request_latency_ms_bucket{le="' + exposition + b'"} 1')


# --- windows -----------------------------------------------------------------------------------------------------------


def requests(text: str) -> Requests:
    """Return the requests of a node with one series."""
    found = series(text)
    assert found is not None
    assert len(found) == 1
    return next(iter(found.values())).requests


def test_a_series_is_known_by_its_name_and_labels() -> None:
    text = counter(1) + counter(2, status="500") + counter(4, WorkerId="b") + buckets(8, 8, 8)
    old = series(text + counter(9, route="/old"))
    new = series(counter(9, route="/new") + text)
    assert old is not None
    assert new is not None
    assert len(old) == len(new) == 5
    assert len(old.keys() & new.keys()) == 4


def test_a_counter_that_is_exported_under_two_names_is_one_series() -> None:
    found = series(counter(7) + counter(7, name=HTTP))
    assert found is not None
    assert [*found.values()] == [Series("/a", Requests(total=7))]
    before = series(counter(7, name=HTTP))
    assert before is not None
    assert found.keys() == before.keys()


def test_the_increase_of_a_counter_and_of_a_histogram() -> None:
    new, old = counter(13, status="500"), counter(10, status="500")
    increase = request_metrics.increase(requests(new), requests(old))
    assert increase == Requests(total=3, errors=3)
    new, old = buckets(8, 12, 18), buckets(5, 8, 11)
    increase = request_metrics.increase(requests(new), requests(old))
    assert increase == Requests(latency=Histogram((0.1, 0.5), (3, 1, 3)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(counter(16), counter(12), id="fewer requests"),
        pytest.param(buckets(9, 12, 18), buckets(8, 12, 18), id="fewer in a bucket"),
        pytest.param(buckets(0, 0, 19), buckets(8, 12, 18), id="fewer in the last bucket"),
        pytest.param(buckets(5, 9, bounds=("7.0",)), buckets(8, 12, 18), id="other bounds"),
    ],
)
def test_after_a_reset_the_new_value_alone_counts(old: str, new: str) -> None:
    assert request_metrics.increase(requests(new), requests(old)) == requests(new)


def test_the_total_of_nodes() -> None:
    one, two = (
        parsed(counter(1) + buckets(1, 1, 1)),
        parsed(counter(2, status="500") + buckets(0, 1, 2)),
    )
    both = Requests(total=3, errors=2, latency=Histogram((0.1, 0.5), (1, 1, 1)))
    assert request_metrics.total([one, two]) == {"": both, "/a": both}
    assert request_metrics.total([]) == {"": Requests()}


def test_the_metrics_of_ray_2_60_as_recorded() -> None:
    """One application answered 20 requests and failed 3, another answered 404 five times; 4 health checks, 4 unknown paths."""
    page = (ROOT / "tests/golden/ray/serve_metrics.txt").read_text()
    found = parsed(page)
    assert {
        route: (each.total, each.errors, each.latency.total) for route, each in found.items()
    } == {"": (28, 3, 28), "/one": (23, 3, 23), "/two": (5, 0, 5)}
    assert found[""].first_token == Histogram((0.001, 0.005, 0.01, 0.1, 1.0), (0, 23, 0, 0, 0, 0))
    assert found[""].latency.bounds[:4] == (0.001, 0.002, 0.005, 0.01)
