"""The part of its traffic that a cluster is observed not to carry (ADR 41)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from common.api import ray_cluster
from common.api.core import ObjectReference
from common.api.opaque import Json
from common.ray.serve_status import ServeDetails
from common.ray.view import Reading
from common.upgrade.traffic_record import ClusterTraffic
from support.tables import cases
from traffic_manager.observed import Baseline, HealthMemory, ServedCluster
from traffic_manager.status import health

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - health.GRACE
JUST_NOW = NOW - timedelta(seconds=1)
HEAD, WORKER = "192.0.2.1", "192.0.2.2"
ALL_20 = Baseline(
    weight=80,
    replicas={"app/Model": 20},
    ready={"app/Model": 100},
    served=frozenset({"app"}),
    nodes=frozenset({WORKER}),
)
CONFIG = "applications:\n- {name: app, import_path: a:b}\n"
INTERNAL = f"{CONFIG}- {{name: other, import_path: a:b, route_prefix: null}}\n"
BOTH = f"{CONFIG}- {{name: other, import_path: a:b, route_prefix: /other}}\n"
BOTH_20 = msgspec.structs.replace(
    ALL_20,
    replicas={"app/Model": 20, "other/Model": 20},
    ready={"app/Model": 100, "other/Model": 100},
    served=frozenset({"app", "other"}),
)


def an_answer(
    running: int = 20,
    target: int = 20,
    *,
    status: str = "RUNNING",
    capacity: float | None = 100,
    node: str = WORKER,
    proxies: bool = True,
    location: str = "EveryNode",
) -> ServeDetails:
    replicas: list[Json] = [{"state": "RUNNING", "node_ip": node}] * running
    deployment: Json = {"status": "HEALTHY", "target_num_replicas": target, "replicas": replicas}
    proxy = {"status": "HEALTHY" if proxies else "UNHEALTHY"}
    return msgspec.convert(
        {
            "applications": {"app": {"status": status, "deployments": {"Model": deployment}}},
            "target_capacity": capacity,
            "proxy_location": location,
            "proxies": {ip: {**proxy, "node_ip": ip} for ip in (HEAD, WORKER)},
        },
        ServeDetails,
    )


def pods_at(*addresses: str) -> dict[str, ObjectReference]:
    return dict.fromkeys(addresses, ObjectReference())


def a_view(
    details: ServeDetails | None = None,
    *,
    head: str = "True",
    baseline: Baseline | None = ALL_20,
    unhealthy_since: datetime | None = None,
    **fields: Any,
) -> ServedCluster:
    ready: Json = {
        "type": "HeadPodReady",
        "status": head,
        "reason": "R",
        "message": "",
        "lastTransitionTime": NOW.isoformat(),
    }
    body: Json = {
        "metadata": {"name": "demo-1"},
        "spec": {},
        "status": {"conditions": [ready], "head": {"podIP": HEAD}},
    }
    serve = Reading(details=details or an_answer())
    memory = HealthMemory(baseline=baseline, unhealthy_since=unhealthy_since)
    defaults: dict[str, Any] = {"endpoints": pods_at("10.0.0.1"), "serve": serve, "memory": memory}
    return ServedCluster(cluster=ray_cluster.decode(body), **{**defaults, **fields})


def and_another(running: int, target: int = 20, *, status: str = "RUNNING") -> ServeDetails:
    """Return an answer of Serve with a second application."""
    first, other = an_answer(), an_answer(running, target, status=status)
    applications = {**first.applications, "other": other.applications["app"]}
    return msgspec.structs.replace(first, applications=applications)


REFUSED = Reading(problem="refuses raybus", failures=30, is_unauthenticated=True)
"""Reading of a dashboard that answers without Serve's state: the cluster serves as before."""


def silent(failures: int) -> Reading:
    return Reading(problem="no answer", failures=failures)


@cases(
    ("view", "expected"),
    {
        "all is well": (a_view(), 100),
        "its head is not ready": (a_view(head="False"), 0),
        "no endpoint is ready": (a_view(endpoints={}), 0),
        "no replica runs": (a_view(an_answer(running=0)), 0),
        "a worker without a proxy": (
            a_view(an_answer(location="HeadOnly"), endpoints=pods_at(HEAD)),
            100,
        ),
        "a worker that is not ready": (a_view(an_answer(), endpoints=pods_at(HEAD)), 0),
        "one lost answer": (a_view(serve=silent(1), unhealthy_since=LONG_AGO), 100),
        "silence is no evidence": (a_view(serve=silent(30), unhealthy_since=LONG_AGO), 100),
        "a silent one without ready endpoints": (a_view(serve=silent(30), endpoints={}), 0),
        "a silent one that has no proxies by design": (
            a_view(serve=silent(30), endpoints={}, given=f"proxy_location: Disabled\n{CONFIG}"),
            100,
        ),
        "nobody has looked at its pods yet": (a_view(endpoints={}, has_slices=False), 100),
        "a refused token": (a_view(serve=REFUSED, unhealthy_since=LONG_AGO), 100),
        "a status of Serve": (a_view(an_answer(status="UNHEALTHY"), unhealthy_since=JUST_NOW), 100),
        "a status that lasts, with all replicas": (
            a_view(an_answer(status="UNHEALTHY"), unhealthy_since=LONG_AGO),
            100,
        ),
        "one of twenty replicas is lost": (
            a_view(an_answer(19, status="UNHEALTHY"), unhealthy_since=LONG_AGO),
            95,
        ),
        "a redeployment gets its time": (
            a_view(an_answer(0, status="DEPLOYING"), unhealthy_since=JUST_NOW),
            100,
        ),
        "and no more": (a_view(an_answer(0, status="DEPLOYING"), unhealthy_since=LONG_AGO), 0),
        "no proxy is healthy": (a_view(an_answer(proxies=False), unhealthy_since=LONG_AGO), 0),
        "half of the replicas are lost": (a_view(an_answer(10)), 50),
        "a target that grew makes nobody sick": (a_view(an_answer(20, 30)), 100),
        "nor does one that shrank": (a_view(an_answer(10, 10)), 100),
        "nor does a rounded one": (
            a_view(
                an_answer(1, 2, capacity=80),
                baseline=Baseline(weight=60, replicas={"app/Model": 1}),
            ),
            100,
        ),
        "what nobody saw before is no loss": (a_view(an_answer(10), baseline=None), 100),
        "replicas that a deployment replaces get its time": (
            a_view(an_answer(10, status="DEPLOYING"), unhealthy_since=JUST_NOW),
            100,
        ),
        "and no more of it": (
            a_view(an_answer(10, status="DEPLOYING"), unhealthy_since=LONG_AGO),
            50,
        ),
        "an application that its config does not ask for": (
            a_view(and_another(0, status="DEPLOY_FAILED"), given=CONFIG),
            100,
        ),
        "an application that never served": (
            a_view(and_another(0, status="DEPLOY_FAILED"), given=BOTH),
            100,
        ),
        "one of two applications is lost": (
            a_view(and_another(0, status="UNHEALTHY"), given=BOTH, baseline=BOTH_20),
            0,
        ),
        "an application without a route prefix takes no requests": (
            a_view(and_another(0, status="UNHEALTHY"), given=INTERNAL, baseline=BOTH_20),
            100,
        ),
        "an application that served is not deployed any more": (
            a_view(given=BOTH, baseline=BOTH_20, unhealthy_since=LONG_AGO),
            0,
        ),
        "the only worker's pod takes no requests any more": (a_view(endpoints=pods_at(HEAD)), 0),
        "the only worker's pod is not ready for a moment": (
            a_view(endpoints=pods_at(HEAD), unready=frozenset({WORKER}), unhealthy_since=JUST_NOW),
            100,
        ),
        "the only worker's pod stays not ready": (
            a_view(endpoints=pods_at(HEAD), unready=frozenset({WORKER}), unhealthy_since=LONG_AGO),
            0,
        ),
        "it does": (a_view(endpoints=pods_at(HEAD, WORKER)), 100),
        "the head takes none by design": (
            a_view(an_answer(node=HEAD), endpoints=pods_at(WORKER)),
            100,
        ),
        "a node that is not ready yet is not lost": (
            a_view(an_answer(node="192.0.2.3"), endpoints=pods_at(HEAD)),
            100,
        ),
        "addresses of another family prove nothing": (
            a_view(endpoints=pods_at("2001:db8::1")),
            100,
        ),
    },
)
def test_what_a_cluster_may_keep(view: ServedCluster, expected: int) -> None:
    found = health.assess_health(view, now=NOW)
    assert found.sustainable == expected
    assert bool(found.reason) == (expected < 100)


@cases(
    ("view", "capacity", "expected"),
    {
        "all of it": (a_view(), 100, 100),
        "no more than Serve runs with": (a_view(an_answer(capacity=40)), 100, 40),
        "no more than what runs": (a_view(an_answer(10)), 100, 50),
        "a status hides no replica": (a_view(an_answer(status="DEPLOYING")), 100, 100),
        "a target that grew makes no replica weaker": (
            a_view(an_answer(20, 40, status="DEPLOYING")),
            100,
            100,
        ),
        "which takes one who saw them": (a_view(an_answer(20, 40), baseline=None), 100, 50),
        "an application that was removed holds nothing back": (
            a_view(and_another(0, 0, status="DELETING"), given=CONFIG),
            100,
            100,
        ),
        "each application must have replicas": (a_view(and_another(0), given=BOTH), 100, 0),
        "nothing without endpoints": (a_view(endpoints={}), 100, 0),
        "nothing before the first answer": (a_view(serve=silent(1)), 100, 0),
        "nothing on a node that takes no requests": (a_view(endpoints=pods_at(HEAD)), 100, 0),
    },
)
def test_what_a_cluster_can_take_over(view: ServedCluster, capacity: int, expected: int) -> None:
    assert health.ready_capacity(view, capacity) == expected


@cases(
    ("view", "surviving", "rescue"),
    {
        "all is well": (a_view(), 100, 100),
        "one application of two serves": (
            a_view(and_another(0, status="UNHEALTHY"), given=BOTH, baseline=BOTH_20),
            100,
            100,
        ),
        "none serves": (a_view(an_answer(0)), 0, 0),
        "the weakest of those that serve limits what it takes over": (
            a_view(and_another(10), given=BOTH, baseline=BOTH_20),
            100,
            50,
        ),
        "Kubernetes sends it nothing": (a_view(endpoints={}), 0, 0),
    },
)
def test_what_the_applications_that_serve_can_carry(
    view: ServedCluster, surviving: int, rescue: int
) -> None:
    assert health.assess_health(view, now=NOW).surviving == surviving
    assert health.surviving_capacity(view, 100) == rescue


def test_a_baseline_holds_what_serves_and_nothing_else() -> None:
    view = a_view(and_another(0, status="DEPLOY_FAILED"), given=BOTH, endpoints=pods_at(WORKER))
    found = health.build_baseline(view, 80)
    assert found is not None
    assert found == msgspec.structs.replace(ALL_20, weight=80)
    assert health.build_baseline(a_view(serve=silent(1)), 80) is None


@pytest.mark.parametrize(("given", "reported"), [(None, None), (CONFIG, 100)])
def test_only_a_cluster_with_a_serve_config_has_a_capacity_that_can_change(
    given: str | None, reported: int | None
) -> None:
    share = ClusterTraffic(uid="u", weight=100, capacity=0)
    assert health.build_state(a_view(given=given), share, now=NOW).reported == reported
