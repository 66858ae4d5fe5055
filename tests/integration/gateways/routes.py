"""The history of all HTTPRoutes of a run, and the shares that requests had meanwhile."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from common.api.gateway import HttpRoute
from common.bus.messages import ObjectMessage, ObjectState
from common.kube.resources import HTTP_ROUTE
from integration.gateways.load import LoadAnswer
from integration.gateways.report import Share
from support.fakes.listener import Recorder

SETTLE_SECONDS: Final = 2.5
"""Requests so soon after a write of weights do not count: a gateway may apply it up to 2 s later.
"""
_SUFFIX: Final = "-serve-svc"


class RouteMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a route."""

    at: float
    """Seconds of the wall clock."""
    name: str
    weights: dict[str, int]
    """Weights of the clusters in the first rule; empty for a route that is gone."""


class RouteHistory(Recorder):
    """All states of the routes of a namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[RouteMoment] = []

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        super().take(message, trace=trace)
        if message.kind != HTTP_ROUTE.kind:
            return
        weights: dict[str, int] = {}
        if isinstance(message, ObjectState):
            route = msgspec.json.decode(message.body, type=HttpRoute)
            weights = {
                backend.target.place[1].removesuffix(_SUFFIX): backend.weight
                for rule in route.spec.rules[:1]
                for backend in route.backends(rule)
            }
        moment = RouteMoment(at=time.time(), name=message.name, weights=weights)  # noqa: TID251
        former = [each for each in self.moments if each.name == moment.name][-1:]
        if not former or former[0].weights != weights:
            self.moments.append(moment)

    def of(self, name: str, *, since: float = 0.0) -> list[RouteMoment]:
        """Return the states of one route from a moment on."""
        return [each for each in self.moments if each.name == name and each.at >= since]

    def life(self, name: str, *, since: float) -> tuple[float, float]:
        """Return when a route appeared and went; both are 0 if it never existed."""
        moments = self.of(name, since=since)
        if not moments:
            return 0.0, 0.0
        return moments[0].at, moments[-1].at if not moments[-1].weights else time.time()  # noqa: TID251


def find_shares(
    moments: Sequence[RouteMoment], cluster: str, answers: Sequence[LoadAnswer]
) -> list[Share]:
    """Return the share of a cluster at each weight between 0 and 100."""
    return list(_find_shares(moments, cluster, answers))


def _find_shares(
    moments: Sequence[RouteMoment], cluster: str, answers: Sequence[LoadAnswer]
) -> Iterator[Share]:
    for moment, following in itertools.pairwise(moments):
        weight = moment.weights.get(cluster, 0)
        begin = moment.at + SETTLE_SECONDS
        takers = [
            answer.cluster
            for answer in answers
            if begin <= answer.began < following.at and answer.cluster
        ]
        if 0 < weight < 100 and takers:
            measured = 100 * takers.count(cluster) / len(takers)
            yield Share(weight=weight, measured=round(measured, 1), requests=len(takers))
