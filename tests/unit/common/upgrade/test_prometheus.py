"""The query for Prometheus, the meaning of its answers, and the amount of evidence that passes or
fails a gate.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from common import errors
from common.upgrade import policy as upgrade_policy
from common.upgrade import prometheus
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import PrometheusGate
from common.upgrade.gates import GateOutcome
from common.upgrade.policy import PolicyError
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Answer, Checkpoint
from support.builders.upgrade_policy import PROMETHEUS
from support.fakes.prometheus import refuses, scalar, vector

GATE = PrometheusGate(
    title="prometheus", url="https://prom.example.com:9090/p/", query="up", max=0.5
)
STEP = Checkpoint(
    namespace="team",
    service="demo",
    policy="careful",
    candidate=Candidate(cluster_uid="u", config="c"),
    old="demo-a",
    new="demo-b",
    weight=10,
    step=1,
)


def asked(query: str) -> str:
    """Return the query that is sent for the query in a policy."""
    return prometheus.query(STEP, msgspec.structs.replace(GATE, query=query))


def problem(answer: Answer) -> str:
    with pytest.raises(errors.Unavailable) as found:
        prometheus.read(answer)
    return str(found.value)


def body(value: Any, status: int = 200) -> Answer:
    return Answer(
        status=status, body=value if isinstance(value, bytes) else msgspec.json.encode(value)
    )


def test_the_query_is_asked_below_the_path_of_the_address_bounded_in_time_and_series() -> None:
    gate = msgspec.structs.replace(
        GATE, query='sum(rate(a{b="$pendingCluster", c=~"x+&y=%20"}[1m]))'
    )
    url = urlsplit(prometheus.url(STEP, gate))
    assert (url.scheme, url.netloc, url.path) == (
        "https",
        "prom.example.com:9090",
        "/p/api/v1/query",
    )
    assert parse_qs(url.query) == {
        "query": ['sum(rate(a{b="demo-b", c=~"x+&y=%20"}[1m]))'],
        "timeout": ["10s"],
        "limit": ["2"],
    }


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("$namespace/$service/$activeCluster/$pendingCluster", "team/demo/demo-a/demo-b"),
        ('up{a="$service-x"}', 'up{a="demo-x"}'),
        (
            'label_replace(up, "a", "$1${2}", "b", "(.*)$")',
            'label_replace(up, "a", "$1${2}", "b", "(.*)$")',
        ),
        ("$$service", "$service"),
        ("$$$service$", "$demo$"),
    ],
)
def test_placeholders_are_replaced_and_the_dollar_signs_of_promql_stay(
    query: str, sent: str
) -> None:
    assert asked(query) == sent


def test_an_unknown_placeholder_is_an_error_that_names_the_field_and_the_legal_ones() -> None:
    spec = {
        "gates": [
            {**PROMETHEUS, "prometheus": {**PROMETHEUS["prometheus"], "query": "up{a='$pod'}"}}
        ]
    }
    with pytest.raises(PolicyError) as refused:
        upgrade_policy.read("p", spec)
    assert refused.value.problems == (
        "spec.gates[0].prometheus.query: $pod is not a placeholder; these are: $namespace, $service, $activeCluster, "
        "$pendingCluster; write $$ for a dollar sign",
    )


def test_a_limit_as_a_number_is_an_error_with_the_form() -> None:
    with pytest.raises(PolicyError) as refused:
        upgrade_policy.read("p", {"gates": [{**PROMETHEUS, "min": 0.5}]})
    assert refused.value.problems == (
        'spec.gates[0].min: 0.5 is not a number in quotes such as "0.5", without an exponent',
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.25", 0.25), ("-3", -3), ("1e-05", 1e-5), ("+Inf", float("inf")), ("-Inf", float("-inf"))],
)
def test_a_scalar_and_a_vector_of_one_series_are_values(text: str, value: float) -> None:
    assert prometheus.read(scalar(text)) == value
    assert prometheus.read(vector(text)) == value


def test_none_is_no_value_and_nan_neither() -> None:
    assert problem(vector()) == "answered no value: no series matches the query yet"
    nan = "answered NaN, which is no value: there may be no requests yet"
    assert problem(vector("NaN")) == problem(scalar("NaN")) == nan


def test_more_than_one_value_names_the_remedy() -> None:
    assert (
        problem(vector("1", "2"))
        == "answered more than one value; have the query return one, as by sum(...) or max(...)"
    )


def test_a_range_is_no_value() -> None:
    found = body({"status": "success", "data": {"resultType": "matrix", "result": []}})
    assert "answered a 'matrix', no scalar or vector; have the query" in problem(found)


def test_a_histogram_is_no_value() -> None:
    text = b'{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "histogram": [1, {}]}]}}'
    assert "histogram_quantile" in problem(body(text))


@pytest.mark.parametrize("status", [200, 400, 422, 503])
def test_the_error_of_prometheus_is_shown_bounded_on_one_line(status: int) -> None:
    found = problem(refuses("\x1b[2J1:3: parse error:\nunexpected " + "x" * 5000, status=status))
    assert found.startswith(f"answered status {status}: 1:3: parse error: unexpected xxx")
    assert len(found) < 250
    assert found.isprintable()


@pytest.mark.parametrize("status", [201, 301, 302, 404, 500])
def test_another_status_is_no_value_whatever_its_body(status: int) -> None:
    found = msgspec.structs.replace(scalar("0"), status=status)
    assert problem(found).startswith(f"answered status {status}")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"s3cret",
        b"null",
        b"\xff",
        {"status": "success"},
        {"status": "s3cret"},
        {"status": "success", "data": {"resultType": "scalar", "result": "s3cret"}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, 0.5]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "s3cret"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "1_000"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "nan"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "٣"]}},
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "1" * 5000]}},
        {"status": "success", "data": {"resultType": "vector", "result": {}}},
        b"[" * 10_000,
        b'{"status": "success", "data": {"resultType": "vector", "result": '
        + b"[" * 9000
        + b"]" * 9000
        + b"}}",
    ],
)
def test_what_is_no_answer_of_prometheus_is_reported_without_repeating_it(value: Any) -> None:
    assert problem(body(value)) == "did not answer as Prometheus does"


def judged(
    *values: float, gate: PrometheusGate = GATE, age: float = 0, missing: str | None = None
) -> Any:
    """Return the outcome after consecutive values, the last of which is `age` seconds old."""
    readings, now = Readings(), 0.0
    for each in values:
        now += prometheus.EVERY
        readings = prometheus.after(readings, gate, each, now=now)
    return prometheus.result(gate, readings, missing, now=now + age)


def test_a_value_within_the_limit_passes_while_it_is_fresh() -> None:
    assert judged(0.5).outcome is GateOutcome.PASS
    assert judged(0.5, age=30).outcome is GateOutcome.PASS
    stale = judged(0.5, age=30.1)
    assert (stale.outcome, stale.text) == (
        GateOutcome.INCONCLUSIVE,
        "prometheus: the last value of prom.example.com:9090 is older than 30 s",
    )


def test_the_text_has_the_value_and_the_limit() -> None:
    found = judged(0.25)
    assert (found.value, found.limit, found.text) == (
        0.25,
        0.5,
        "prometheus: 0.25, at most 0.5 allowed",
    )
    least = msgspec.structs.replace(GATE, max=None, min=0.9)
    assert judged(0.95, gate=least).text == "prometheus: 0.95, at least 0.9 allowed"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(0.89, GateOutcome.INCONCLUSIVE), (0.9, GateOutcome.PASS), (5, GateOutcome.PASS)],
)
def test_of_a_least_value_what_is_below_is_beyond(value: float, outcome: GateOutcome) -> None:
    assert judged(value, gate=msgspec.structs.replace(GATE, max=None, min=0.9)).outcome is outcome


@pytest.mark.parametrize("limit", [{"max": 0.0}, {"max": None, "min": 0.0}])
def test_a_limit_of_nothing_is_a_limit(limit: dict[str, Any]) -> None:
    gate = msgspec.structs.replace(GATE, **limit)
    assert judged(0, gate=gate).outcome is GateOutcome.PASS
    beyond = 0.1 if gate.max == 0 else -0.1
    assert judged(beyond, beyond, beyond, gate=gate).outcome is GateOutcome.FAIL


def test_a_gate_fails_by_three_values_beyond_the_limit_one_after_another() -> None:
    first = judged(0.51)
    assert (first.outcome, first.text) == (
        GateOutcome.INCONCLUSIVE,
        "prometheus: 0.51, at most 0.5 allowed, 1 of the 3 times that fail the gate",
    )
    assert judged(9, 9).outcome is GateOutcome.INCONCLUSIVE
    failed = judged(9, 0.6, 7)
    assert (failed.outcome, failed.text) == (
        GateOutcome.FAIL,
        "prometheus: 7, at most 0.5 allowed, 3 times one after another",
    )


def test_a_value_within_the_limit_begins_the_evidence_anew() -> None:
    assert judged(9, 9, 0.1, 9, 9).outcome is GateOutcome.INCONCLUSIVE
    assert judged(9, 9, 0.1, 9, 9, 9).outcome is GateOutcome.FAIL


def test_without_a_value_the_gate_is_inconclusive_and_names_the_server() -> None:
    assert judged().text == "prometheus: prom.example.com:9090 is asked"
    found = judged(missing="answered status 503")
    assert (found.outcome, found.text) == (
        GateOutcome.INCONCLUSIVE,
        "prometheus: prom.example.com:9090 answered status 503",
    )
