"""The route that carries the traffic, the rules of it that raybus may change, and the conditions
that prevent that.
"""

from typing import Any

import msgspec
import pytest

from common import labels
from common.api import ray_service
from common.api.gateway import Gateway, HttpRoute, lagging_parents
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.api.reference import Reference
from common.errors import message_of
from common.upgrade import traffic_record, weighted_route
from common.upgrade.traffic_record import ANNOTATION
from support.builders.ray_service import a_ray_service
from support.tables import cases


def a_service(route: str | None = None) -> RayService:
    return ray_service.decode(
        a_ray_service(annotations={} if route is None else {labels.HTTP_ROUTE: route})
    )


def a_route(*backends: list[str], filters: Json | None = None, **more: Any) -> HttpRoute:
    """Return a route with one rule for each list of backends."""
    rules: list[Json] = [
        {"backendRefs": [{"name": name, "port": 80} for name in names]} for names in backends
    ]
    if filters is not None:
        rules[0]["filters"] = [filters]
    body: Json = {
        "metadata": {
            "name": "mine",
            "namespace": "default",
            "generation": 2,
            "annotations": {labels.ROUTE_PERMITS: "demo"},
        },
        "spec": {"parentRefs": [{"name": "shared", "namespace": "infra"}], "rules": rules},
        **more,
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=HttpRoute)


def accepted(
    status: str,
    *,
    generation: int = 2,
    section: str | None = None,
    by: str = "example.org/gw",
    at: str = "2026-01-01T00:00:00Z",
) -> Json:
    """Return a controller's report on a route; generation 0 stands for a report without generation."""
    stated = {"observedGeneration": generation} if generation else {}
    held = [
        {
            "type": kind,
            "status": status,
            "reason": "R",
            "message": "",
            **stated,
            "lastTransitionTime": at,
        }
        for kind in ("Accepted", "ResolvedRefs")
    ]
    parent: Json = {"name": "shared", "namespace": "infra"}
    if section is not None:
        parent["sectionName"] = section
    return {"parentRef": parent, "controllerName": by, "conditions": held}


@pytest.mark.parametrize(
    ("annotation", "name", "is_users"),
    [
        (None, "demo-httproute", False),
        ("mine", "mine", True),
        (" mine ", "mine", True),
        ("a.b-c", "a.b-c", True),
        ("", "demo-httproute", False),
        ("No/Name", "demo-httproute", False),
        ("demo-httproute", "demo-httproute", False),
    ],
)
def test_the_name_of_the_route(annotation: str | None, name: str, *, is_users: bool) -> None:
    service = a_service(annotation)
    assert (weighted_route.name_of(service), weighted_route.is_users(service)) == (name, is_users)
    is_odd = annotation is not None and not is_users
    assert (weighted_route.invalid_route_name(service) is not None) is is_odd


def serve(*owners: str) -> frozenset[Reference]:
    return frozenset(weighted_route.serve_service("default", owner) for owner in owners)


OURS = serve("demo", "demo-7m7rj")


def test_backends_are_ours_by_what_exists_and_by_the_record() -> None:
    service = a_service("mine")
    marks = {labels.ORIGIN_NAME: "demo", labels.ORIGIN_KIND: "RayService"}
    record = '{"clusters": {"demo-gone1": {"capacity": 100, "weight": 100}}}'
    meta: Json = {
        "name": "mine",
        "namespace": "default",
        "labels": marks,
        "annotations": {ANNOTATION: record},
    }
    own = weighted_route.own_backends(
        service, ["demo-raycluster-7m7rj"], [a_route([], metadata=meta), None]
    )
    assert own == serve("demo", "demo-raycluster-7m7rj", "demo-gone1")


@pytest.mark.parametrize(
    "meta",
    [
        {"annotations": {labels.ROUTE_PERMITS: "other"}},
        {"labels": {labels.ORIGIN_NAME: "other", labels.ORIGIN_KIND: "RayService"}},
        {
            "ownerReferences": [
                {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "other", "uid": "u2"}
            ]
        },
    ],
)
def test_the_record_of_another_owner_is_ignored(meta: Json) -> None:
    record = '{"clusters": {"other-7m7rj": {"capacity": 100, "weight": 100}}}'
    meta = {"name": "mine", "namespace": "default", **meta}
    meta["annotations"] = {**meta.get("annotations", {}), ANNOTATION: record}
    route = a_route([], metadata=meta)
    assert weighted_route.record_of(a_service("mine"), [route]).clusters == {}
    assert weighted_route.own_backends(a_service("mine"), (), [route]) == serve("demo")


def test_of_two_records_the_newest_holds_wherever_it_stands() -> None:
    def held(at: str, weight: int) -> HttpRoute:
        text = f'{{"clusters": {{"demo-a": {{"capacity": 100, "weight": {weight}}}}}, "changedAt": "{at}"}}'
        annotations = {ANNOTATION: text, labels.ROUTE_PERMITS: "demo"}
        return a_route(
            [], metadata={"name": "mine", "namespace": "default", "annotations": annotations}
        )

    old, new = held("2026-01-01T00:00:00Z", 100), held("2026-01-01T00:00:01Z", 25)
    for routes in ([old, new], [new, old]):
        assert weighted_route.record_of(a_service("mine"), routes).clusters["demo-a"].weight == 25


@pytest.mark.parametrize(
    ("text", "lets"),
    [
        ("demo", True),
        ("a, demo ,b", True),
        ("demo2", False),
        ("", False),
        ("*", False),
        ("dem", False),
    ],
)
def test_a_route_names_the_services_that_may_use_it(text: str, *, lets: bool) -> None:
    meta: Json = {
        "name": "mine",
        "namespace": "default",
        "annotations": {labels.ROUTE_PERMITS: text},
    }
    assert (weighted_route.refusal(a_service("mine"), a_route([], metadata=meta)) is None) is lets


def test_a_message_repeats_nothing_that_a_shell_would_run() -> None:
    annotations = {
        labels.ROUTE_PERMITS: "shop,$(reboot),a;b," + ",".join(f"n{each}" for each in range(3))
    }
    route = a_route(
        [], metadata={"name": "mine", "namespace": "default", "annotations": annotations}
    )
    why = weighted_route.refusal(a_service("mine"), route)
    assert why is not None
    assert why.message.endswith(
        "kubectl annotate httproute mine -n default raybus.io/rayservice=shop,n0,n1,n2,demo --overwrite"
    )


@pytest.mark.parametrize(
    ("others", "needed", "fits"), [(14, 2, True), (15, 1, True), (15, 2, False), (16, 1, False)]
)
def test_a_rule_holds_at_most_sixteen_backends(others: int, needed: int, *, fits: bool) -> None:
    route = a_route([*(f"other{each}" for each in range(others)), "demo-serve-svc"])
    why = weighted_route.too_many_backends(route, OURS, needed)
    assert (why is None) is fits
    if why is not None:
        assert why.message.startswith(
            f"has {others} other backends in spec.rules[0], and RayService needs room for {needed}"
        )


LIKE_OURS: list[Json] = [
    {"name": "demo-serve-svc", "namespace": "east", "port": 80, "weight": 5},
    {"name": "demo-serve-svc", "kind": "ServiceImport", "port": 80, "weight": 5},
    {
        "name": "demo-serve-svc",
        "group": "multicluster.x-k8s.io",
        "kind": "ServiceImport",
        "port": 80,
        "weight": 5,
    },
]
"""Backends of other owners with the same name as ours."""


@pytest.mark.parametrize("theirs", LIKE_OURS)
def test_a_backend_is_ours_by_group_kind_namespace_and_name(theirs: Json) -> None:
    parents: list[Json] = [{"name": "shared"}]

    def route(*backends: Json) -> HttpRoute:
        rules: list[Json] = [{"backendRefs": list(backends)}, {"backendRefs": [{"name": "other"}]}]
        return a_route(spec={"parentRefs": parents, "rules": rules})

    ours: Json = {"name": "demo-serve-svc", "port": 80, "weight": 7}
    assert weighted_route.rules_of(route(theirs), OURS) == ()
    assert weighted_route.rules_of(route(theirs, ours), OURS) == (0,)
    service = weighted_route.serve_service("default", "demo")
    assert traffic_record.weight_of(route(theirs), service) == 0
    assert traffic_record.weight_of(route(theirs, ours), service) == 7
    spelled = {**ours, "group": "", "kind": "Service", "namespace": "default"}
    assert traffic_record.weight_of(route(spelled), service) == 7


def test_a_parent_is_a_gateway_by_group_and_kind() -> None:
    parents: list[Json] = [
        {"name": "a"},
        {"name": "b", "group": "gateway.networking.k8s.io", "kind": "Gateway"},
        {"name": "c", "group": "", "kind": "Service"},
        {"name": "d", "group": "example.com"},
    ]
    route = a_route(spec={"parentRefs": parents, "rules": []})
    assert weighted_route.parents_of(a_service("mine"), route) == (
        ("default", "a"),
        ("default", "b"),
    )


@cases(
    ("route", "rules"),
    {
        "a rule that names us": (a_route(["other"], ["demo-serve-svc"], []), (1,)),
        "rules without backends": (a_route(["other"], [], []), (1, 2)),
        "the only rule": (a_route(["other"]), (0,)),
        "all are somebody else's": (a_route(["other"], ["other"]), ()),
        "a redirect takes no backend": (a_route([], filters={"type": "RequestRedirect"}), ()),
        "no rule": (a_route(), ()),
    },
)
def test_rules_that_are_for_us(route: HttpRoute, rules: tuple[int, ...]) -> None:
    assert weighted_route.rules_of(route, OURS) == rules


NOBODY = "is not accepted yet: no controller reports on Gateway infra/shared"
OLD = "old.example/gw"


def reported(text: str, about: str, *, by: str = "example.org/gw") -> str:
    return f"{text}: controller {by} reports {about} for Gateway infra/shared"


BEHIND = reported("is not Accepted yet as it is now", "generation 1 of 2")
UNSTATED = reported("is not Accepted yet as it is now", "no observedGeneration")
REFUSED = "is not Accepted (R): controller example.org/gw of Gateway infra/shared"


@pytest.mark.parametrize(
    ("parents", "problem", "settled_problem"),
    [
        ([], NOBODY, NOBODY),
        ([accepted("True")], None, None),
        ([accepted("False")], REFUSED, REFUSED),
        ([accepted("True", generation=1)], BEHIND, BEHIND),
        ([accepted("True", section="other")], NOBODY, NOBODY),
        pytest.param(
            [accepted("True"), accepted("False", by=OLD)], None, None, id="one follows the route"
        ),
        pytest.param(
            [accepted("True", generation=1, by=OLD), accepted("True")],
            None,
            None,
            id="a controller that left keeps an old report",
        ),
        pytest.param(
            [accepted("True", generation=1, by=OLD), accepted("False")],
            REFUSED,
            REFUSED,
            id="the old report does not hide the refusal of the new controller",
        ),
        pytest.param(
            [accepted("True", generation=0)], UNSTATED, None, id="no generation counts after a time"
        ),
        pytest.param(
            [accepted("False", generation=1, by=OLD), accepted("True", generation=0)],
            UNSTATED,
            None,
            id="no generation counts before an old one",
        ),
        pytest.param(
            [accepted("True", generation=0, by=OLD), accepted("False")],
            REFUSED,
            REFUSED,
            id="the present generation counts before none",
        ),
        pytest.param(
            [accepted("False", by=OLD), accepted("True", generation=0, at="2026-01-02T00:00:00Z")],
            UNSTATED,
            None,
            id="a later report without a generation counts before an old refusal",
        ),
        pytest.param(
            [accepted("True", generation=0, by=OLD), accepted("False", at="2026-01-02T00:00:00Z")],
            REFUSED,
            REFUSED,
            id="a later refusal counts before an old report without a generation",
        ),
    ],
)
def test_a_route_is_followed_when_a_controller_of_each_parent_took_it_as_it_is(
    parents: list[Json], problem: str | None, settled_problem: str | None
) -> None:
    route = a_route([], status={"parents": parents})
    for is_settled, text in ((False, problem), (True, settled_problem)):
        trouble = weighted_route.route_trouble(a_service("mine"), route, is_settled=is_settled)
        expected = None if text is None else f"HTTPRoute default/mine {text}"
        assert message_of(trouble) == expected


@pytest.mark.parametrize(
    ("parents", "is_settled", "lags"),
    [
        ([accepted("True")], False, False),
        ([accepted("True", generation=1)], True, True),
        ([accepted("True", generation=1, by=OLD), accepted("True")], False, False),
        ([accepted("True", generation=1), accepted("False", by=OLD)], True, True),
        ([accepted("True", generation=0)], False, True),
        ([accepted("True", generation=0)], True, False),
        ([accepted("False", generation=1)], True, False),
    ],
)
def test_a_gateway_lags_while_no_accepting_report_is_about_the_route_as_it_is(
    parents: list[Json], *, is_settled: bool, lags: bool
) -> None:
    route = a_route([], status={"parents": parents})
    found = lagging_parents(route, is_settled=is_settled)
    assert found == ((Reference.gateway("infra", "shared"),) if lags else ())


def test_a_gateway_that_is_missing_or_not_taken_is_named() -> None:
    service, route, place = a_service("mine"), a_route([]), ("infra", "shared")
    assert weighted_route.parents_of(service, route) == (place,)
    assert (
        message_of(weighted_route.gateway_trouble(service, route, {}))
        == "Gateway infra/shared does not exist"
    )
    gateway = msgspec.convert({"metadata": {}, "spec": {"gatewayClassName": "nope"}}, Gateway)
    text = "Gateway infra/shared is not Accepted yet (gatewayClassName nope: does a controller serve it?)"
    assert message_of(weighted_route.gateway_trouble(service, route, {place: gateway})) == text


def test_a_route_that_is_ours_hangs_on_our_gateway() -> None:
    assert weighted_route.parents_of(a_service(), None) == (("default", "demo-gateway"),)
    assert weighted_route.parents_of(a_service("mine"), None) == ()
