"""What users see of an upgrade, recorded at every change, and the rules that must hold at every
moment.
"""

from typing import TYPE_CHECKING

import msgspec

from common.kube.resources import GRPC_ROUTE, HTTP_ROUTE
from support.laws import routes as route_laws

if TYPE_CHECKING:
    from support.simulator.simulator import Simulator


class View(msgspec.Struct, frozen=True):
    """Capacities and weights of the active and the pending cluster, as the status shows them."""

    capacities: tuple[int | None, int | None]
    weights: tuple[int | None, int | None]

    def __str__(self) -> str:
        return f"TC {_pair(self.capacities)}  TR {_pair(self.weights)}"


class Observer:
    """Observer that records each view that differs from the previous one."""

    def __init__(self, sim: "Simulator") -> None:
        self._sim = sim
        self.trace: list[tuple[float, View]] = []
        self._seen_clusters: set[str] = set()
        """Names of all clusters that ever existed."""
        self._dead_since: dict[tuple[str, str], float] = {}
        """By route and deleted cluster: the time since when the route sends requests to the
        cluster."""
        self._noted = 0
        """Number of the last recorded change."""

    def note(self) -> None:
        """Record what users see now, and check the rules."""
        sim = self._sim
        if self._noted == sim.kube.version and not self._dead_since:
            return
        self._noted = sim.kube.version
        if not sim.has_service:
            return
        view = sim.view
        if not self.trace or self.trace[-1][1] != view:
            self.trace.append((sim.clock.monotonic(), view))
        self._check()

    def _check(self) -> None:
        sim = self._sim
        weights, now = sim.weights, sim.clock.monotonic()
        assert not weights or sum(weights.values()) == 100, weights
        self._seen_clusters.update(sim.clusters)
        routes = [*sim.kube.all(HTTP_ROUTE), *sim.kube.all(GRPC_ROUTE)]
        deleted = self._seen_clusters.difference(sim.clusters)
        dead = route_laws.dead_backends(routes, deleted)
        self._dead_since = {each: self._dead_since.get(each, now) for each in dead}
        for (route, cluster), since in self._dead_since.items():
            assert now - since <= 1, f"{cluster} is gone and {route} sends requests to it"

    def trace_since(self, since: float) -> str:
        """Return as text what users saw since a moment, with the times."""
        return "".join(f"t+{at - since:6.2f}  {view}\n" for at, view in self.trace)


def _pair(numbers: tuple[int | None, int | None]) -> str:
    return "/".join("-" if each is None else str(each) for each in numbers)
