"""What raybus reads from statuses that real Gateway controllers wrote.

`make e2e-gateways` with `--update-golden` records them in tests/golden/gateways.
"""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from common.api.gateway import (
    PERCENTAGE_MIRROR,
    Gateway,
    GatewayClass,
    HttpRoute,
    RoutingCode,
    gateway_problem,
    lagging_parents,
    mirror_problem,
    route_problem,
)
from common.api.opaque import Json

RECORDED: Final = {
    path.stem: msgspec.json.decode(path.read_bytes(), type=dict[str, Json])
    for path in sorted((Path(__file__).parents[3] / "golden" / "gateways").glob("*.json"))
}
FOLLOWED: Final = (
    "HTTPRoute at rest",
    "HTTPRoute with two weights",
    "HTTPRoute after 20 writes",
    "HTTPRoute of the preview",
)
MIRRORS: Final = {
    "contour": "ignores the percentage",
    "traefik": f"does not support {PERCENTAGE_MIRROR}",
}
"""Why raybus mirrors no requests, by controller."""


def read_route(controller: str, situation: str, *, later: int = 0) -> HttpRoute:
    """Return a route, changed `later` times since its controller wrote the status."""
    body = RECORDED[controller][situation]
    metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + later}
    return msgspec.json.decode(
        msgspec.json.encode({**body, "metadata": metadata}), type=HttpRoute, strict=False
    )


@pytest.mark.parametrize("controller", RECORDED)
def test_a_programmed_gateway_takes_requests(controller: str) -> None:
    body = msgspec.json.encode(RECORDED[controller]["Gateway"])
    assert gateway_problem(msgspec.json.decode(body, type=Gateway)) is None


@pytest.mark.parametrize("situation", FOLLOWED)
@pytest.mark.parametrize("controller", RECORDED)
def test_a_followed_route_has_no_problem(controller: str, situation: str) -> None:
    route = read_route(controller, situation)
    assert route_problem(route, is_settled=False) is None
    assert lagging_parents(route, is_settled=False) == ()


@pytest.mark.parametrize("situation", FOLLOWED)
@pytest.mark.parametrize("controller", RECORDED)
def test_an_acceptance_of_an_earlier_generation_proves_nothing(
    controller: str, situation: str
) -> None:
    route = read_route(controller, situation, later=1)
    problem = route_problem(route, is_settled=True)
    assert problem is not None
    assert problem.transient
    assert f"generation {route.metadata.generation - 1} of" in problem.message
    assert lagging_parents(route, is_settled=True) != ()


@pytest.mark.parametrize("controller", RECORDED)
def test_a_parent_that_no_controller_serves_is_named(controller: str) -> None:
    problem = route_problem(read_route(controller, "HTTPRoute with two parents"), is_settled=True)
    assert problem is not None
    assert problem.code is RoutingCode.NOT_ACCEPTED
    assert "no controller reports on Gateway background/stranger" in problem.message


@pytest.mark.parametrize("controller", RECORDED)
def test_a_missing_backend_is_named(controller: str) -> None:
    route = read_route(controller, "HTTPRoute without its backend")
    problem = route_problem(route, is_settled=True)
    assert problem is not None
    assert problem.code is RoutingCode.NOT_RESOLVED
    assert "BackendNotFound" in problem.message


@pytest.mark.parametrize("controller", RECORDED)
def test_requests_are_mirrored_unless_the_controller_is_known_not_to_copy_a_percentage(
    controller: str,
) -> None:
    body = msgspec.json.encode(RECORDED[controller]["GatewayClass"])
    gateway_class = msgspec.json.decode(body, type=GatewayClass)
    problem = mirror_problem(gateway_class, read_route(controller, "HTTPRoute at rest"))
    if controller not in MIRRORS:
        assert problem is None
        return
    assert problem is not None
    assert MIRRORS[controller] in problem
