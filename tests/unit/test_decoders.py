"""No JSON of a tenant, a dashboard or a file makes a reader raise an error that it does not
declare.

Most readers are protected by a schema, but not all: those of files for `raybus lint`, of older
CRDs, and of the answers of dashboards are not.
"""

import contextlib
import copy
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from cluster_reconciler import refusals
from cluster_reconciler.config import Config as ClusterConfig
from common import feature_gates
from common.api import core, gateway, ray_cluster, ray_service
from common.api.opaque import Json
from common.errors import RaybusError
from common.ray import ports, serve_status, serve_writer
from common.upgrade import controls, policy
from common.upgrade.policy import PolicyError
from raybus_cli import manifests
from raybus_cli.linting import lint
from scenario.hostile import attacks
from scenario.hostile.attacks import CLUSTERS, SERVICES
from service_reconciler import validation

DECLARED: Final = (RaybusError, msgspec.ValidationError, PolicyError)
GATES: Final = feature_gates.resolve(feature_gates.parse("AllAlpha=true"))
CONFIG: Final = ClusterConfig()
NAMES: Final = (
    "name",
    "type",
    "mode",
    "value",
    "containerPort",
    "ports",
    "url",
    "weight",
    "metric",
)
ANY: Final[SearchStrategy[Any]] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["NewClusterWithIncrementalUpgrade", "token", "v2", "serve", "1Gi", "10m"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
POLICY: Final[Json] = {
    "metadata": {"name": "p"},
    "spec": {
        "steps": [{"weight": 10, "hold": "5m"}, {"weight": 100, "pause": True}],
        "gates": [
            {"name": "e", "metric": {"type": "errorRate", "max": "1%"}},
            {"name": "w", "webhook": {"url": "https://a.example/x", "timeout": "1s"}},
            {"name": "q", "prometheus": {"url": "https://b.example", "query": "x", "max": 1}},
        ],
        "warmUp": {"requests": 1},
        "mirror": {"percent": 1, "duration": "1m"},
        "preview": {"service": True, "header": {"name": "x", "value": "y"}},
    },
}
ROUTE: Final[Json] = {
    "metadata": {"name": "r", "namespace": "n"},
    "spec": {
        "parentRefs": [{"name": "g"}],
        "rules": [{"backendRefs": [{"name": "s", "port": 8000, "weight": 1}], "matches": [{}]}],
    },
    "status": {"parents": [{"parentRef": {"name": "g"}, "conditions": []}]},
}
POD: Final[Json] = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"containers": [{"name": "ray", "ports": [{"name": "serve", "containerPort": 1}]}]},
    "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": []},
}
DETAILS: Final[Json] = {
    "applications": {
        "a": {
            "status": "RUNNING",
            "deployments": {"d": {"replicas": [{"state": "RUNNING", "node_ip": "10.0.0.1"}]}},
            "deployed_app_config": {},
        }
    },
    "proxies": {"n": {"status": "HEALTHY", "node_ip": "10.0.0.1"}},
    "target_capacity": 50,
}


@st.composite
def changed(draw: st.DrawFn, sound: tuple[Json, ...]) -> Json:
    """Draw an object in which any JSON replaces some fields, except its metadata."""
    body = copy.deepcopy(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 3))):
        parts = [key for key in body if key not in {"metadata", "kind", "apiVersion"}]
        root = draw(st.sampled_from(parts))
        inner = attacks.places(body[root]) if isinstance(body[root], dict | list) else []
        place = draw(st.sampled_from([(root,), *((root, *each) for each in inner)]))
        body = attacks.put(body, place, draw(ANY))
    return body


def _service(body: Json) -> None:
    service = ray_service.decode(body)
    if validation.violation(service, GATES) is None:
        ports.of_serve(service.raw_cluster_config)
    assert isinstance(service.manager, str)
    assert isinstance(service.raw_upgrade_options, dict)
    serve_writer.is_recorded(service)
    serve_writer.asks_for_steps(service)
    controls.interval_of(service)
    assert isinstance(service.serve_config + str(service.excludes_head_pod), str)


def _cluster(body: Json) -> None:
    cluster = ray_cluster.decode(body)
    if refusals.find_violation(cluster, CONFIG) is None:
        ports.of_serve(cluster.raw_spec)
        refusals.find_exceeded_limit(cluster, CONFIG)
    refusals.get_foreign_manager(cluster)


def _route(body: Json) -> None:
    route = msgspec.json.decode(msgspec.json.encode(body), type=gateway.HttpRoute)
    for rule in route.spec.rules:
        route.backends(rule)
    gateway.route_problem(route, is_settled=True)


def _pod(body: Json) -> None:
    msgspec.json.decode(msgspec.json.encode(body), type=core.Pod)


def _details(body: Json) -> None:
    details = serve_status.decode(msgspec.json.encode(body))
    details.nodes  # noqa: B018  (it must not raise)
    serve_status.not_serving(details)
    serve_status.running_percent(details)


def _linted(body: Json) -> None:
    text = msgspec.json.encode(body).decode()
    for document in manifests.parse(text, "a.yaml"):
        lint.lint(document, GATES)


READERS: Final[dict[str, tuple[Callable[[Json], object], tuple[Json, ...]]]] = {
    "RayService": (_service, SERVICES),
    "RayCluster": (_cluster, CLUSTERS),
    "UpgradePolicy": (lambda body: policy.read("p", body["spec"]), (POLICY,)),
    "HTTPRoute": (_route, (ROUTE,)),
    "Pod": (_pod, (POD,)),
    "Serve's status": (_details, (DETAILS,)),
    "a file of a RayService": (_linted, tuple({**each, "kind": "RayService", "apiVersion": "ray.io/v1"} for each in SERVICES)),
    "a file of a RayCluster": (_linted, CLUSTERS),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_no_json_leads_to_an_error_that_is_not_declared(name: str) -> None:
    read, sound = READERS[name]

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(changed(sound))
    def reads(body: Json) -> None:
        with contextlib.suppress(*DECLARED):
            read(body)

    reads()
