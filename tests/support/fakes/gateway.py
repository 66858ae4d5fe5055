"""A Gateway controller, as far as routes and weights go: it takes Gateways and routes in after a moment, or does not."""

from typing import cast

from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE
from common.runtime.clock import Clock
from support.fakes.kube import FakeKube


class FakeGatewayController:
    """Sets the status of all Gateways and HTTPRoutes."""

    def __init__(self, kube: FakeKube, clock: Clock, *, seconds: float = 0.5) -> None:
        self._kube = kube
        self._clock = clock
        self.seconds = seconds
        """How long a new generation takes."""
        self.is_programmed = True
        self.accepts_routes = True
        self.is_asleep = False
        """With it nothing changes any more."""
        self._seen: dict[tuple[str, str, int], float] = {}

    def forget(self) -> None:
        """Look at everything anew."""
        self._seen.clear()

    def move_on(self) -> None:
        """Bring every status up to date that is due."""
        if self.is_asleep:
            return
        for body in self._kube.all(GATEWAY):
            if self._is_due(body):
                self._set(GATEWAY.kind, body)
        for body in self._kube.all(HTTP_ROUTE):
            if self._is_due(body):
                self._set(HTTP_ROUTE.kind, body)

    def _is_due(self, body: Body) -> bool:
        meta = body["metadata"]
        key = (body["kind"], meta["name"], meta["generation"])
        first = self._seen.setdefault(key, self._clock.monotonic())
        return self._clock.monotonic() - first >= self.seconds

    def _set(self, kind: str, body: Body) -> None:
        if kind == GATEWAY.kind:
            why = "Programmed" if self.is_programmed else "AddressNotAssigned"
            status: Json = {
                "conditions": self._conditions(
                    body, Accepted=("True", "Accepted"), Programmed=(_word(self.is_programmed), why)
                )
            }
            self._put(GATEWAY, body, status)
            return
        parent = body["spec"]["parentRefs"][0]
        why = "Accepted" if self.accepts_routes else "NoMatchingListenerHostname"
        held = self._conditions(body, Accepted=(_word(self.accepts_routes), why), ResolvedRefs=("True", "ResolvedRefs"))
        status = {"parents": [{"parentRef": dict(parent), "controllerName": "example.org/gw", "conditions": held}]}
        self._put(HTTP_ROUTE, body, status)

    def _put(self, resource: object, body: Body, status: Json) -> None:
        kind = GATEWAY if resource is GATEWAY else HTTP_ROUTE
        if _essence(body.get("status", {})) != _essence(status):
            meta = body["metadata"]
            self._kube.set_status(kind, meta["namespace"], meta["name"], status)

    def _conditions(self, body: Body, **words: tuple[str, str]) -> list[Json]:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "",
                "observedGeneration": body["metadata"]["generation"],
                "lastTransitionTime": now,
            }
            for kind, (status, reason) in words.items()
        ]


def _word(holds: bool) -> str:
    return "True" if holds else "False"


def _essence(value: object) -> object:
    """Return JSON without the times in it."""
    match value:
        case dict():
            return {key: _essence(each) for key, each in cast("Json", value).items() if key != "lastTransitionTime"}
        case list():
            return [_essence(each) for each in cast("list[object]", value)]
        case _:
            return value
