"""What of its traffic a cluster is observed not to carry (ADR 41)."""

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
from traffic_manager.observed import Baseline, ClusterView, Memory
from traffic_manager.status import health

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A_WHILE_AGO = NOW - health.GRACE
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
) -> ClusterView:
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
    memory = Memory(baseline=baseline, unhealthy_since=unhealthy_since)
    defaults: dict[str, Any] = {"endpoints": pods_at("10.0.0.1"), "serve": serve, "memory": memory}
    return ClusterView(cluster=ray_cluster.decode(body), **{**defaults, **fields})


def and_another(running: int, target: int = 20, *, status: str = "RUNNING") -> ServeDetails:
    """Return an answer with a second application."""
    first, other = an_answer(), an_answer(running, target, status=status)
    applications = {**first.applications, "other": other.applications["app"]}
    return msgspec.structs.replace(first, applications=applications)


REFUSED = Reading(problem="refuses raybus", failures=30, is_unauthenticated=True)
"""The dashboard answers, without what Serve reports: the cluster serves as before."""


def silent(failures: int) -> Reading:
    return Reading(problem="no answer", failures=failures)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(a_view(), 100, id="all is well"),
        pytest.param(a_view(head="False"), 0, id="its head is not ready"),
        pytest.param(a_view(endpoints={}), 0, id="no endpoint is ready"),
        pytest.param(a_view(an_answer(running=0)), 0, id="no replica runs"),
        pytest.param(
            a_view(an_answer(location="HeadOnly"), endpoints=pods_at(HEAD)),
            100,
            id="a worker without a proxy",
        ),
        pytest.param(
            a_view(an_answer(), endpoints=pods_at(HEAD)), 0, id="a worker that is not ready"
        ),
        pytest.param(
            a_view(serve=silent(1), unhealthy_since=A_WHILE_AGO), 100, id="one lost answer"
        ),
        pytest.param(
            a_view(serve=silent(30), unhealthy_since=A_WHILE_AGO),
            100,
            id="silence is no evidence",
        ),
        pytest.param(
            a_view(serve=silent(30), endpoints={}), 0, id="a silent one without ready endpoints"
        ),
        pytest.param(
            a_view(serve=silent(30), endpoints={}, given=f"proxy_location: Disabled\n{CONFIG}"),
            100,
            id="a silent one that has no proxies by design",
        ),
        pytest.param(
            a_view(endpoints={}, has_slices=False), 100, id="nobody has looked at its pods yet"
        ),
        pytest.param(a_view(serve=REFUSED, unhealthy_since=A_WHILE_AGO), 100, id="a refused token"),
        pytest.param(
            a_view(an_answer(status="UNHEALTHY"), unhealthy_since=JUST_NOW),
            100,
            id="a status of Serve",
        ),
        pytest.param(
            a_view(an_answer(status="UNHEALTHY"), unhealthy_since=A_WHILE_AGO),
            100,
            id="a status that lasts, with all replicas",
        ),
        pytest.param(
            a_view(an_answer(19, status="UNHEALTHY"), unhealthy_since=A_WHILE_AGO),
            95,
            id="one of twenty replicas is lost",
        ),
        pytest.param(
            a_view(an_answer(0, status="DEPLOYING"), unhealthy_since=JUST_NOW),
            100,
            id="a redeployment gets its time",
        ),
        pytest.param(
            a_view(an_answer(0, status="DEPLOYING"), unhealthy_since=A_WHILE_AGO),
            0,
            id="and no more",
        ),
        pytest.param(
            a_view(an_answer(proxies=False), unhealthy_since=A_WHILE_AGO),
            0,
            id="no proxy is healthy",
        ),
        pytest.param(a_view(an_answer(10)), 50, id="half of the replicas are lost"),
        pytest.param(a_view(an_answer(20, 30)), 100, id="a target that grew makes nobody sick"),
        pytest.param(a_view(an_answer(10, 10)), 100, id="nor does one that shrank"),
        pytest.param(
            a_view(
                an_answer(1, 2, capacity=80),
                baseline=Baseline(weight=60, replicas={"app/Model": 1}),
            ),
            100,
            id="nor does a rounded one",
        ),
        pytest.param(
            a_view(an_answer(10), baseline=None), 100, id="what nobody saw before is no loss"
        ),
        pytest.param(
            a_view(an_answer(10, status="DEPLOYING"), unhealthy_since=JUST_NOW),
            100,
            id="replicas that a deployment replaces get its time",
        ),
        pytest.param(
            a_view(an_answer(10, status="DEPLOYING"), unhealthy_since=A_WHILE_AGO),
            50,
            id="and no more of it",
        ),
        pytest.param(
            a_view(and_another(0, status="DEPLOY_FAILED"), given=CONFIG),
            100,
            id="an application that its config does not ask for",
        ),
        pytest.param(
            a_view(and_another(0, status="DEPLOY_FAILED"), given=BOTH),
            100,
            id="an application that never served",
        ),
        pytest.param(
            a_view(and_another(0, status="UNHEALTHY"), given=BOTH, baseline=BOTH_20),
            0,
            id="one of two applications is lost",
        ),
        pytest.param(
            a_view(and_another(0, status="UNHEALTHY"), given=INTERNAL, baseline=BOTH_20),
            100,
            id="an application without a route prefix takes no requests",
        ),
        pytest.param(
            a_view(given=BOTH, baseline=BOTH_20, unhealthy_since=A_WHILE_AGO),
            0,
            id="an application that served is not deployed any more",
        ),
        pytest.param(
            a_view(endpoints=pods_at(HEAD)),
            0,
            id="the only worker's pod takes no requests any more",
        ),
        pytest.param(
            a_view(endpoints=pods_at(HEAD), unready=frozenset({WORKER}), unhealthy_since=JUST_NOW),
            100,
            id="the only worker's pod is not ready for a moment",
        ),
        pytest.param(
            a_view(
                endpoints=pods_at(HEAD), unready=frozenset({WORKER}), unhealthy_since=A_WHILE_AGO
            ),
            0,
            id="the only worker's pod stays not ready",
        ),
        pytest.param(a_view(endpoints=pods_at(HEAD, WORKER)), 100, id="it does"),
        pytest.param(
            a_view(an_answer(node=HEAD), endpoints=pods_at(WORKER)),
            100,
            id="the head takes none by design",
        ),
        pytest.param(
            a_view(an_answer(node="192.0.2.3"), endpoints=pods_at(HEAD)),
            100,
            id="a node that is not ready yet is not lost",
        ),
        pytest.param(
            a_view(endpoints=pods_at("2001:db8::1")),
            100,
            id="addresses of another family prove nothing",
        ),
    ],
)
def test_what_a_cluster_may_keep(view: ClusterView, expected: int) -> None:
    found = health.assess(view, now=NOW)
    assert found.sustainable == expected
    assert bool(found.reason) == (expected < 100)


@pytest.mark.parametrize(
    ("view", "capacity", "expected"),
    [
        pytest.param(a_view(), 100, 100, id="all of it"),
        pytest.param(a_view(an_answer(capacity=40)), 100, 40, id="no more than Serve runs with"),
        pytest.param(a_view(an_answer(10)), 100, 50, id="no more than what runs"),
        pytest.param(
            a_view(an_answer(status="DEPLOYING")), 100, 100, id="a status hides no replica"
        ),
        pytest.param(
            a_view(an_answer(20, 40, status="DEPLOYING")),
            100,
            100,
            id="a target that grew makes no replica weaker",
        ),
        pytest.param(
            a_view(an_answer(20, 40), baseline=None), 100, 50, id="which takes one who saw them"
        ),
        pytest.param(
            a_view(and_another(0, 0, status="DELETING"), given=CONFIG),
            100,
            100,
            id="an application that was removed holds nothing back",
        ),
        pytest.param(
            a_view(and_another(0), given=BOTH), 100, 0, id="each application must have replicas"
        ),
        pytest.param(a_view(endpoints={}), 100, 0, id="nothing without endpoints"),
        pytest.param(a_view(serve=silent(1)), 100, 0, id="nothing before the first answer"),
        pytest.param(
            a_view(endpoints=pods_at(HEAD)), 100, 0, id="nothing on a node that takes no requests"
        ),
    ],
)
def test_what_a_cluster_can_take_over(view: ClusterView, capacity: int, expected: int) -> None:
    assert health.ready_capacity(view, capacity) == expected


@pytest.mark.parametrize(
    ("view", "surviving", "rescue"),
    [
        pytest.param(a_view(), 100, 100, id="all is well"),
        pytest.param(
            a_view(and_another(0, status="UNHEALTHY"), given=BOTH, baseline=BOTH_20),
            100,
            100,
            id="one application of two serves",
        ),
        pytest.param(a_view(an_answer(0)), 0, 0, id="none serves"),
        pytest.param(
            a_view(and_another(10), given=BOTH, baseline=BOTH_20),
            100,
            50,
            id="the weakest of those that serve limits what it takes over",
        ),
        pytest.param(a_view(endpoints={}), 0, 0, id="Kubernetes sends it nothing"),
    ],
)
def test_what_the_applications_that_serve_can_carry(
    view: ClusterView, surviving: int, rescue: int
) -> None:
    assert health.assess(view, now=NOW).surviving == surviving
    assert health.surviving_capacity(view, 100) == rescue


def test_a_baseline_holds_what_serves_and_nothing_else() -> None:
    view = a_view(and_another(0, status="DEPLOY_FAILED"), given=BOTH, endpoints=pods_at(WORKER))
    found = health.baseline(view, 80)
    assert found is not None
    assert found == msgspec.structs.replace(ALL_20, weight=80)
    assert health.baseline(a_view(serve=silent(1)), 80) is None


@pytest.mark.parametrize(("given", "reported"), [(None, None), (CONFIG, 100)])
def test_only_a_cluster_with_a_serve_config_has_a_capacity_that_can_change(
    given: str | None, reported: int | None
) -> None:
    share = ClusterTraffic(uid="u", weight=100, capacity=0)
    assert health.side(a_view(given=given), share, now=NOW).reported == reported
