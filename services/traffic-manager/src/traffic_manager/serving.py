"""What is sent to dashboards: Serve configs, each with the capacity that its cluster has (spec rayservice §12, §8.10 G8).

While two clusters exist the active one keeps the config that it was given; in a rollback both do. So a third spec's config never
meets the first spec's image.
"""

from collections.abc import Iterable
from datetime import datetime

from common import labels
from common.api.opaque import Json
from common.ray import submit
from common.ray.revision import Given
from common.ray.submit import Submit
from common.runtime.actions import ActionEvents
from traffic_manager import events
from traffic_manager.actions import CONFIGS
from traffic_manager.observed import ClusterView, Observed


def submissions(
    observed: Observed, parts: Iterable[tuple[ClusterView, int, bool]], *, now: datetime
) -> tuple[Submit, ...]:
    """Return the configs to send now; a part is a cluster, its capacity, and whether its config is frozen."""
    submits: list[Submit] = []
    for view, capacity, is_frozen in parts:
        found = submit.decide(view, observed.service.serve_config, frozen=is_frozen, now=now)
        config = found.config
        if config is None and submit.has_other_capacity(view, capacity, now=now):
            config = view.given
        if config is not None:
            report = events.config_sent(view.cluster.metadata, found.drift)
            submits.append(_submit(observed, view, config, capacity, report))
    return tuple(submits)


def with_capacity(observed: Observed, view: ClusterView, capacity: int) -> Submit | None:
    """Return the PUT that changes a cluster's capacity and nothing else; None for one that was never given a config."""
    if view.given is None:
        return None
    return _submit(observed, view, view.given, capacity, events.capacity_sent(view.cluster.metadata))


def is_put_off(view: ClusterView, *, now: datetime) -> bool:
    """Return whether the config of a cluster was refused, or sent without an answer, and is not to be sent again yet."""
    return view.refused is not None and view.refused.config == view.given and not view.refused.is_due(now)


def _submit(observed: Observed, view: ClusterView, config: str, capacity: int, report: ActionEvents) -> Submit:
    strategy: Json = view.strategy or observed.service.raw_spec.get("upgradeStrategy") or {}
    spec_hash = view.cluster.metadata.annotations.get(labels.SPEC_HASH, "")
    given = Given(serve_config=config, spec_hash=spec_hash, upgrade_strategy=strategy)
    return Submit(cluster=view.cluster, given=given, after=view.record, capacity=capacity, events=report, chain=CONFIGS)
