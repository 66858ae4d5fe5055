"""The result of an upgrade, from durable state; `tests/scenario/upgrade/test_receipt.py` tests all
of it.
"""

from datetime import datetime, timedelta

import msgspec
import pytest

from common import labels
from common.api import ray_service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.upgrade.receipt import Receipt, Seconds, UpgradeOutcome
from service_reconciler.promotion import receipt
from service_reconciler.promotion.receipt import PartialReceipt
from support.builders.ray_service import a_ray_service

START = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


SO_FAR = PartialReceipt(
    old="demo-a",
    new="demo-b",
    outcome=UpgradeOutcome.PROMOTED,
    started=START,
    moved=later(10),
    completed=later(30),
    max_capacity=150,
    min_capacity=80,
)


def a_cluster(text: str | None) -> RayCluster:
    annotations = {} if text is None else {receipt.SO_FAR: text}
    body = {
        "metadata": {"name": "demo-a", "namespace": "default", "annotations": annotations},
        "spec": {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=RayCluster)


def a_service(last: Receipt | None = None) -> RayService:
    annotations = (
        {} if last is None else {labels.UPGRADE_RECEIPT: msgspec.json.encode(last).decode()}
    )
    return ray_service.decode(a_ray_service(annotations=annotations))


def made(so_far: PartialReceipt, *, ongoing: int | None = None) -> Receipt | None:
    cluster = a_cluster(msgspec.json.encode(so_far).decode())
    return receipt.build_finished(a_service(), cluster, ongoing, now=later(92.4))


def test_the_whole_of_it() -> None:
    found = made(SO_FAR, ongoing=3)
    assert found == Receipt(
        old="demo-a",
        new="demo-b",
        outcome=UpgradeOutcome.PROMOTED,
        started=START,
        finished=later(92),
        seconds=Seconds(preparing=10, shifting=20, draining=62),
        peak_surge_percent=50,
        lowest_capacity_percent=80,
        requests_cut=3,
    )
    assert str(found) == (
        "Upgrade from demo-a to demo-b: Promoted after 92 s (preparing 10 s, shifting 20 s, draining 62 s), "
        "peak surge 50 %, lowest capacity 80 %, requests cut 3"
    )


def test_what_nobody_knows_is_null() -> None:
    found = made(msgspec.structs.replace(SO_FAR, max_capacity=None, min_capacity=None))
    assert found is not None
    assert (found.peak_surge_percent, found.lowest_capacity_percent, found.requests_cut) == (
        None,
        None,
        None,
    )
    assert str(found).endswith("peak surge unknown, lowest capacity unknown, requests cut unknown")


def test_where_no_request_moved_all_was_preparation() -> None:
    found = made(msgspec.structs.replace(SO_FAR, moved=None, outcome=UpgradeOutcome.CANCELLED))
    assert found is not None
    assert found.seconds == Seconds(preparing=30, shifting=0, draining=62)


def test_a_clock_that_jumped_back_makes_no_negative_time() -> None:
    found = made(msgspec.structs.replace(SO_FAR, completed=later(5)))
    assert found is not None
    assert found.seconds.shifting == 0


@pytest.mark.parametrize("text", [None, "", "{}", "nonsense"])
def test_a_cluster_of_no_upgrade_leaves_none(text: str | None) -> None:
    assert receipt.build_finished(a_service(), a_cluster(text), None, now=later(1)) is None


def test_a_receipt_that_is_written_is_not_made_again() -> None:
    cluster, last = a_cluster(msgspec.json.encode(SO_FAR).decode()), made(SO_FAR)
    earlier = made(msgspec.structs.replace(SO_FAR, old="demo-0"))
    assert receipt.build_finished(a_service(last), cluster, None, now=later(99)) is None
    assert receipt.build_finished(a_service(earlier), cluster, None, now=later(92.4)) == last
