"""Does an upgrade wait for Ray's autoscaler? traffic-manager sends a cluster no more than its replicas carry (ADR 11)."""

from datetime import datetime, timedelta
from typing import Final

from common import labels
from common.ray import parity
from common.upgrade import controls as upgrade_controls
from service_reconciler.observed import Observed
from service_reconciler.reasons import EventReason, Reason
from service_reconciler.serve.problems import ServiceProblem

FOLLOWS_WITHIN: Final = timedelta(seconds=10)
"""The autoscaler follows a move of traffic after some seconds."""


def find(observed: Observed, *, is_back: bool, now: datetime) -> ServiceProblem | None:
    """Return that a step waits for replicas of the cluster that is to get more traffic; `is_back`: that is the active one.

    The text has no numbers, so that it stays the same while the autoscaler works.
    """
    source, growing = (observed.pending, observed.active) if is_back else (observed.active, observed.pending)
    if source is None or growing is None or not observed.is_incremental:
        return None
    held, share = (observed.record.clusters.get(each.name) for each in (source, growing))
    before, after = source.serve.details, growing.serve.details
    if held is None or share is None or before is None or after is None:
        return None
    is_bound = share.weight < share.capacity and upgrade_controls.of(observed.service).parity
    changed = observed.record.changed_at
    if (
        not is_bound
        or changed is None
        or now < changed + FOLLOWS_WITHIN + upgrade_controls.interval_of(observed.service)
    ):
        return None
    deployment = parity.lacking(before, held.weight, after, share.weight)
    if deployment is None:
        return None
    text = (
        f"waiting: RayCluster {growing.name} runs too few replicas of {deployment} to get more of the traffic, by the number that "
        f"RayCluster {source.name} runs for its part; Ray's autoscaler starts more as load comes. For a faster step raise "
        f'min_replicas in serveConfigV2, or set {labels.CAPACITY_PARITY}: "false"'
    )
    return ServiceProblem(event=EventReason.INSUFFICIENT_REPLICAS, message=text, code=Reason.INSUFFICIENT_REPLICAS)
