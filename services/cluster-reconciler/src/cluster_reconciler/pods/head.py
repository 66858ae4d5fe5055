"""Whether the head pod is created, replaced or kept (spec raycluster §9.4; acceptance cases 43-50)."""

from enum import StrEnum

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import deletion
from cluster_reconciler.reasons import ConditionType
from common import labels
from common.api.core import Pod


class HeadMove(StrEnum):
    """What is done about the head."""

    KEEP = "keep"
    CREATE = "create"
    DELETE = "delete"
    STOP = "stop"
    """Neither head nor workers are touched."""
    FAIL = "fail"
    """A user must resolve it."""


class HeadDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about the head, and why; `pod` is the one to delete."""

    move: HeadMove
    note: str
    pod: Pod | None = None


def decide(observed: Observed) -> HeadDecision:
    """Return what is done about the head now."""
    heads = observed.heads
    if observed.is_waiting_for(heads):
        return HeadDecision(move=HeadMove.KEEP, note="the old head is still going")
    if len(heads) > 1:
        found = " ".join(pod.metadata.name for pod in heads)
        note = f"{len(heads)} head pods found [{found}]. Please delete extra head pods"
        return HeadDecision(move=HeadMove.FAIL, note=note)
    if not heads:
        return _without_head(observed)
    if deletion.is_due(heads[0]):
        return HeadDecision(move=HeadMove.DELETE, note=deletion.reason(heads[0]) or "", pod=heads[0])
    return HeadDecision(move=HeadMove.KEEP, note="there is a head")


def _without_head(observed: Observed) -> HeadDecision:
    cluster = observed.cluster
    stays_dead = cluster.metadata.annotations.get(labels.DISABLE_PROVISIONED_HEAD_RESTART) == "true"
    if stays_dead and observed.holds(ConditionType.PROVISIONED):
        return HeadDecision(move=HeadMove.STOP, note="a head that is lost stays lost in this cluster")
    return HeadDecision(move=HeadMove.CREATE, note="there is no head")
