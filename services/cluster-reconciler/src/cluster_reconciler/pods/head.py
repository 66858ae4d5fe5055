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


class HeadDecision(msgspec.Struct, frozen=True):
    """What is done about the head, and why; `pod` is the one to delete."""

    move: HeadMove
    note: str
    pod: Pod | None = None


def decide(observed: Observed) -> HeadDecision:
    """Return what is done about the head now."""
    heads = observed.heads
    if observed.is_waiting_for(heads):
        return HeadDecision(HeadMove.KEEP, "the old head is still going")
    if len(heads) > 1:
        found = " ".join(pod.metadata.name for pod in heads)
        return HeadDecision(HeadMove.FAIL, f"{len(heads)} head pods found [{found}]. Please delete extra head pods")
    if heads and (reason := deletion.reason(heads[0])):
        return HeadDecision(HeadMove.DELETE, reason, heads[0])
    if heads:
        return HeadDecision(HeadMove.KEEP, "there is a head")
    stays_dead = observed.cluster.metadata.annotations.get(labels.DISABLE_PROVISIONED_HEAD_RESTART) == "true"
    if stays_dead and observed.holds(ConditionType.PROVISIONED):
        return HeadDecision(HeadMove.STOP, "a head that is lost stays lost in this cluster")
    return HeadDecision(HeadMove.CREATE, "there is no head")
