"""What is sent to dashboards: Serve configs, each with the capacity that its cluster has (spec rayservice §12, §8.10 G8).

While two clusters exist the active one keeps the config that it was given; in a rollback both do. So a third spec's config never
meets the first spec's image.
"""

from collections.abc import Iterable
from datetime import datetime

from common.ray import submit
from common.ray.submit import Submit
from traffic_manager import events
from traffic_manager.observed import ClusterView, Observed


def submissions(
    observed: Observed, parts: Iterable[tuple[ClusterView, int, bool]], *, now: datetime
) -> tuple[Submit, ...]:
    """Return the configs to send now; a part is a cluster, its capacity, and whether its config is frozen."""
    found = (
        submit.submission(view, observed.service, frozen=is_frozen, capacity=capacity, now=now)
        for view, capacity, is_frozen in parts
    )
    return tuple(each for each in found if each is not None)


def with_capacity(observed: Observed, view: ClusterView, capacity: int) -> Submit | None:
    """Return the PUT that changes a cluster's capacity and nothing else; None for one that was never given a config."""
    report = events.capacity_sent(view.cluster.metadata)
    return None if view.given is None else submit.sending(view, observed.service, view.given, capacity, report)


def is_put_off(view: ClusterView, *, now: datetime) -> bool:
    """Return whether the config of a cluster was refused, or sent without an answer, and is not to be sent again yet."""
    return view.refused is not None and view.refused.config == view.given and not view.refused.is_due(now)
