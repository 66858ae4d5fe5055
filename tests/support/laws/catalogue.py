"""All laws, by the evidence that they are checked against."""

from collections.abc import Sequence
from typing import Any, Final

from chaos.checker import laws as chaos_laws
from support.laws import (
    Law,
    clusters,
    event_order,
    jobs,
    published_events,
    tenancies,
    upgrade_moments,
    upgrade_requests,
    upgrade_states,
)

LAWS: Final[dict[str, Sequence[Law[Any]]]] = {
    "a request about a pod": clusters.REQUEST_LAWS,
    "any moment of a RayCluster": clusters.MOMENT_LAWS,
    "a RayCluster at rest": (*clusters.REST_LAWS, *clusters.LOST_NODE_LAWS, *clusters.SILENCE_LAWS),
    "a change of an upgrade whose passes alternate": upgrade_moments.ALTERNATING,
    "a write of an interleaved upgrade": upgrade_states.CHANGE_LAWS,
    "a request of an interleaved upgrade": upgrade_requests.REQUEST_LAWS,
    "time in an interleaved upgrade": (
        *upgrade_states.TIME_LAWS,
        *upgrade_states.SIDE_ROUTE_LAWS,
        *upgrade_states.SERVING_LAWS,
    ),
    "the events of one upgrade": event_order.LAWS,
    "all upgrade events of a run": published_events.LAWS,
    "the RayJobs of a run": jobs.LAWS,
    "a hostile tenant": tenancies.LAWS,
    "a chaos run": chaos_laws.LAWS,
}
