"""What is written while an unneeded cluster drains: marks on its pods, and an Event at the beginning and at the end."""

from datetime import datetime

from common import labels
from common.api.event import Event, normal, warning
from common.api.meta import rfc3339
from common.kube.resources import POD
from service_reconciler.actions import Action, Change
from service_reconciler.observed import Leaving, Observed, drains
from service_reconciler.promotion import drain
from service_reconciler.reasons import EventReason


def marks(observed: Observed, *, going: frozenset[str]) -> list[Action]:
    """Return the marks of pods that can drain and are not told to yet; clusters that go now, by uid, need none."""
    return [
        Change(
            resource=POD,
            name=pod.metadata.name,
            patch={
                "metadata": {
                    "resourceVersion": pod.metadata.resource_version,
                    "annotations": {labels.DRAINING: "true"},
                }
            },
        )
        for leaving in observed.leaving
        if leaving.cluster.metadata.uid not in going
        for pod in leaving.pods
        if drains(pod)
        and pod.metadata.annotations.get(labels.DRAINING) != "true"
        and pod.metadata.deletion_timestamp is None
    ]


def began(observed: Observed, leaving: Leaving, due: datetime) -> Event:
    """Tell that a cluster drains, and what ends that."""
    cap = due + drain.timeout_of(observed.service)
    how = "its proxies close connections between requests" if leaving.is_told else "no route sends it requests any more"
    end = f"after {rfc3339(due)} once nothing is in flight, at {rfc3339(cap)} at the latest"
    text = f"RayCluster {_where(leaving)} drains: {how}. It is deleted {end}"
    odd = drain.odd_timeout(observed.service)
    if odd is not None:
        return warning(EventReason.DRAIN_STARTED, "Drain", f"{text}; {odd}, so 60 s hold")
    return normal(EventReason.DRAIN_STARTED, "Drain", text)


def ended(leaving: Leaving) -> Event:
    """Tell how a drain ended."""
    note = f"RayCluster {_where(leaving)} was deleted with {drain.in_flight(leaving.ongoing)}"
    is_quiet = leaving.ongoing == 0 or (leaving.is_silent and not leaving.is_told)
    tell = normal if is_quiet else warning
    return tell(EventReason.DRAIN_ENDED, "Drain", note)


def _where(leaving: Leaving) -> str:
    meta = leaving.cluster.metadata
    return f"{meta.namespace}/{meta.name}"
