"""A Gateway controller that handles only routes and their weights: it accepts Gateways and routes
after a delay, or not at all.
"""

from typing import cast

from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.clock import Clock
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource
from support.fakes.kube import FakeKube

RESOURCES = {each.kind: each for each in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE)}


def a_gateway_class(*features: str) -> Body:
    """Return the GatewayClass `fast` of a controller that lists these features."""
    return {
        "metadata": {"name": "fast", "namespace": ""},
        "status": {"supportedFeatures": [{"name": name} for name in features]},
    }


class FakeGatewayController:
    """Controller that writes the status of all Gateways and routes."""

    def __init__(self, kube: FakeKube, clock: Clock, *, seconds: float = 0.5) -> None:
        self._kube = kube
        self._clock = clock
        self.seconds = seconds
        """Seconds until the controller applies a new generation."""
        self.is_programmed = True
        self.accepts_routes = True
        self.classes = {"fast"}
        """Names of the GatewayClasses that the controller serves."""
        self.refused_kinds: set[str] = set()
        """Kinds of routes that the controller does not accept."""
        self.name = "example.org/gw"
        """Controller name in the entries that it writes to the status; it does not change entries
        of other controllers."""
        self.states_generations = True
        """Whether its conditions have an `observedGeneration`."""
        self.others_in_status: tuple[str, ...] = ()
        """Positions of the other controllers' entries in each route's status: `before`, `after`,
        `elsewhere`."""
        self.routed: dict[str, int] = {}
        """Generation of each route that the controller applies, by the route's uid."""
        self.is_asleep = False
        """Whether the controller has stopped, so that no status changes."""
        self._seen: dict[tuple[str, int], float] = {}
        self._accepted: dict[str, tuple[object, ...]] = {}
        """By uid: the inputs for which the object's status was last found to be up to date."""

    def forget(self) -> None:
        """Discard everything remembered, so that all objects are read again."""
        self._seen.clear()
        self._accepted.clear()

    def move_on(self) -> None:
        """Update every status whose delay is over."""
        if self.is_asleep:
            return
        for place, body in list(self._kube.objects.items()):
            kind = place[0]
            if (
                kind in RESOURCES
                and not self._is_right(body)
                and self._is_served(body)
                and self._is_due(body)
            ):
                self._set(RESOURCES[kind], body)
                self._accepted[body["metadata"]["uid"]] = self._mind(self._kube.objects[place])

    def _is_right(self, body: Body) -> bool:
        return self._accepted.get(body["metadata"]["uid"]) == self._mind(body)

    def _mind(self, body: Body) -> tuple[object, ...]:
        """Return all inputs of an object's status."""
        version = body["metadata"]["resourceVersion"]
        refused = frozenset(self.refused_kinds)
        return version, self.name, self.is_programmed, self.accepts_routes, refused

    def _is_served(self, body: Body) -> bool:
        return body["spec"].get("gatewayClassName", "fast") in self.classes

    def _is_due(self, body: Body) -> bool:
        meta = body["metadata"]
        key = (meta["uid"], meta["generation"])
        first = self._seen.setdefault(key, self._clock.monotonic())
        return self._clock.monotonic() - first >= self.seconds

    def _set(self, resource: Resource, body: Body) -> None:
        if resource is GATEWAY:
            why = "Programmed" if self.is_programmed else "AddressNotAssigned"
            held = self._conditions(
                body, Accepted=("True", "Accepted"), Programmed=(_status(self.is_programmed), why)
            )
            self._put(resource, body, {"conditions": held})
            return
        is_refused = resource.kind in self.refused_kinds or not self.accepts_routes
        why = "NoMatchingListenerHostname" if is_refused else "Accepted"
        held = self._conditions(
            body, Accepted=(_status(not is_refused), why), ResolvedRefs=("True", "ResolvedRefs")
        )
        if not is_refused:
            self.routed[body["metadata"]["uid"]] = body["metadata"]["generation"]
        reports: list[Json] = body.get("status", {}).get("parents", [])
        others = [each for each in reports if each["controllerName"] != self.name]
        own = [
            {"parentRef": dict(parent), "controllerName": self.name, "conditions": held}
            for parent in body["spec"].get("parentRefs", [])
        ]
        first, last = self._others(own)
        kept = [each for each in others if each not in (*first, *last)]
        self._put(resource, body, {"parents": [*kept, *first, *own, *last]})

    def _others(self, own: list[Json]) -> tuple[list[Json], list[Json]]:
        """Return the entries in `others_in_status`: those before ours and those after ours."""
        stale = {
            "type": "Accepted",
            "status": "False",
            "reason": "NoMatchingParent",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        left = [
            {**each, "controllerName": "example.org/old", "conditions": [stale]} for each in own
        ]
        mesh = {"group": "", "kind": "Service", "name": "mesh"}
        beside: Json = {"parentRef": mesh, "controllerName": "example.org/mesh"}
        elsewhere = [{**beside, "conditions": [stale]}]
        asked = self.others_in_status
        first = (elsewhere if "elsewhere" in asked else []) + (left if "before" in asked else [])
        return first, left if "after" in asked else []

    def _put(self, resource: Resource, body: Body, status: Json) -> None:
        if _essence(body.get("status", {})) != _essence(status):
            meta = body["metadata"]
            self._kube.set_status(resource, meta["namespace"], meta["name"], status)

    def _conditions(self, body: Body, **statuses: tuple[str, str]) -> list[Json]:
        now = rfc3339(self._clock.now())
        stated = (
            {"observedGeneration": body["metadata"]["generation"]}
            if self.states_generations
            else {}
        )
        return [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "",
                **stated,
                "lastTransitionTime": now,
            }
            for kind, (status, reason) in statuses.items()
        ]


def _status(holds: bool) -> str:
    return "True" if holds else "False"


def _essence(value: object) -> object:
    """Return JSON without its times."""
    match value:
        case dict():
            return {
                key: _essence(each)
                for key, each in cast("Json", value).items()
                if key != "lastTransitionTime"
            }
        case list():
            return [_essence(each) for each in cast("list[object]", value)]
        case _:
            return value
