"""The receipt of an upgrade: a final record of its outcome, durations and capacities.

It is an annotation of the RayService, and part of the event that reports the completed upgrade.
"""

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from common import annotation_record, labels
from common.annotation_record import AnnotationRecord
from common.api.ray_service import RayService
from common.upgrade import gate_record


class UpgradeOutcome(StrEnum):
    """How an upgrade ended."""

    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    """Part of the traffic had moved to the new cluster, and was moved back."""
    CANCELLED = "Cancelled"
    """The upgrade ended before any traffic had moved."""
    ABORTED = "Aborted"
    """The user or a deadline ended the upgrade."""


class Seconds(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """Duration of each phase of an upgrade."""

    preparing: int
    """Seconds from the start of the upgrade until the first traffic moved."""
    shifting: int
    """Seconds from the first move of traffic to the last one, forward or back."""
    draining: int
    """Seconds from the last move of traffic until the replaced or abandoned cluster was deleted."""


class Receipt(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The final record of an upgrade; unknown values are null."""

    old: str = msgspec.field(name="from")
    new: str = msgspec.field(name="to")
    outcome: UpgradeOutcome
    started: datetime
    finished: datetime
    seconds: Seconds
    peak_surge_percent: int | None
    """Maximum surge: percentage points of both clusters' total capacity above 100 %."""
    lowest_capacity_percent: int | None
    requests_cut: int | None
    """Number of requests in flight when the replaced or abandoned cluster was deleted."""
    steps: tuple[gate_record.StepVerdicts, ...] | UnsetType = UNSET
    """The weights at which gates were evaluated, with their verdicts."""

    @property
    def gated_steps(self) -> tuple[gate_record.StepVerdicts, ...]:
        """Return `steps` fit for display: limited in size and without control characters."""
        return () if isinstance(self.steps, UnsetType) else gate_record.bounded(self.steps)

    def __str__(self) -> str:
        spent, percents = self.seconds, (self.peak_surge_percent, self.lowest_capacity_percent)
        surge, least = ("unknown" if percent is None else f"{percent} %" for percent in percents)
        return (
            f"Upgrade from {self.old} to {self.new}: {self.outcome} after "
            f"{span(self.started, self.finished)} s "
            f"(preparing {spent.preparing} s, shifting {spent.shifting} s, draining "
            f"{spent.draining} s), "
            f"peak surge {surge}, lowest capacity {least}, "
            f"requests cut {'unknown' if self.requests_cut is None else self.requests_cut}"
        )


def receipt_of(service: RayService) -> Receipt | None:
    """Return the receipt of a RayService's last upgrade; None if there is no readable one."""
    return annotation_record.decode(
        service.metadata.annotations.get(labels.UPGRADE_RECEIPT, ""), Receipt
    )


def span(since: datetime, until: datetime) -> int:
    """Return the whole seconds between two times; 0 if the clock was set back in between."""
    return max(0, round((until - since).total_seconds()))
