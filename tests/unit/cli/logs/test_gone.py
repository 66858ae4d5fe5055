"""The time since when a cluster is deleted, by the receipt of the last upgrade."""

import msgspec
import pytest
from msgspec import structs

from common.api import ray_service
from common.upgrade.receipt import UpgradeOutcome
from raybus_cli.logs import finding
from support.builders.snapshots import a_service
from support.upgrade_events import RECEIPT


@pytest.mark.parametrize(
    ("cluster", "outcome", "why"),
    [
        (RECEIPT.old, UpgradeOutcome.PROMOTED, f"the upgrade to {RECEIPT.new} replaced it"),
        (
            RECEIPT.new,
            UpgradeOutcome.ABORTED,
            f"the upgrade to it from {RECEIPT.old} ended as Aborted",
        ),
        (
            RECEIPT.new,
            UpgradeOutcome.ROLLED_BACK,
            f"the upgrade to it from {RECEIPT.old} ended as RolledBack",
        ),
        (RECEIPT.new, UpgradeOutcome.PROMOTED, None),
        (RECEIPT.old, UpgradeOutcome.CANCELLED, None),
        ("another", UpgradeOutcome.PROMOTED, None),
    ],
)
def test_the_cluster_that_an_upgrade_left_behind_is_gone(
    cluster: str, outcome: UpgradeOutcome, why: str | None
) -> None:
    annotations = {
        "raybus.io/upgrade-receipt": msgspec.json.encode(
            structs.replace(RECEIPT, outcome=outcome)
        ).decode()
    }
    found = finding.build_gone_error(
        cluster,
        [ray_service.decode(a_service()), ray_service.decode(a_service(annotations=annotations))],
    )
    assert (found is None) is (why is None)
    assert (
        why is None
        or f"RayCluster {cluster} is gone since 2026-01-01T12:04:20Z: {why}; its logs" in str(found)
    )
