"""Why a RayCluster has no logs: that it is gone, and since when, as far as a receipt of an upgrade has it. Pure."""

from collections.abc import Iterable

from common import annotation_record, errors, labels
from common.api.meta import rfc3339
from common.api.ray_service import RayService
from common.upgrade.receipt import Outcome, Receipt

ELSEWHERE = "its logs went with its pods; --bundle FILE reads those that 'raybus bundle' kept"


def problem(cluster: str, services: Iterable[RayService], instead: str = "") -> errors.Rejected | None:
    """Return the problem of a cluster that an upgrade left behind; None where no receipt names it."""
    for each in services:
        receipt = annotation_record.decode(each.metadata.annotations.get(labels.UPGRADE_RECEIPT, ""), Receipt)
        if receipt is not None and (why := _why(cluster, receipt)):
            since = f"RayCluster {cluster} is gone since {rfc3339(receipt.finished)}: {why}"
            return errors.Rejected("; ".join(filter(None, (since, instead, ELSEWHERE))))
    return None


def _why(cluster: str, receipt: Receipt) -> str:
    if cluster == receipt.old and receipt.outcome is Outcome.PROMOTED:
        return f"the upgrade to {receipt.new} replaced it"
    if cluster == receipt.new and receipt.outcome is not Outcome.PROMOTED:
        return f"the upgrade to it from {receipt.old} ended as {receipt.outcome}"
    return ""
