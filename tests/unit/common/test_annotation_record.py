"""A record in an annotation that somebody has overwritten is no record; its content is not used."""

from datetime import UTC, datetime

import msgspec
import pytest

from common import annotation_record, labels
from common.api import ray_cluster
from common.api.gateway import HttpRoute
from common.upgrade import traffic_record
from common.upgrade.receipt import Receipt
from common.upgrade.traffic_record import ClusterTraffic, Record
from service_reconciler.promotion import cleanup_schedule, receipt

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OURS = Record(
    clusters={"blue": ClusterTraffic(uid="u", capacity=100, weight=60, moved_at=NOW)},
    changed_at=NOW,
)
DEEP = 20_000
SPOILED = (
    '{"version":' * DEEP,
    '{"clusters":' + "[" * DEEP + "]" * DEEP + "}",
    '{"unknown":' + "[" * DEEP + "]" * DEEP + "}",
    '{"changedAt":"2026-01-01T12:00:00"}',
    '{"changedAt":"9999-12-31T23:59:59Z"}',
    '{"changedAt":"0001-01-01T00:00:00+23:59"}',
    '{"clusters":{"blue":{"capacity":-5,"weight":1}}}',
    '{"clusters":{"blue":{"capacity":1,"weight":' + "9" * 400 + "}}}",
    '{"clusters":{"blue":{"capacity":1,"weight":1,"movedAt":"2026-01-01T12:00:00"}}}',
    '{"overwritten":{"at":"2026-01-01T12:00:00Z","by":"' + "x" * 100_000 + '"}}',
    '{"clusters":null}',
    "\ud800",
    "[]",
    "",
)


def test_what_raybus_wrote_is_read() -> None:
    assert annotation_record.decode(msgspec.json.encode(OURS).decode(), Record) == OURS


@pytest.mark.parametrize("text", SPOILED, ids=lambda text: text[:60])
def test_a_record_that_somebody_wrote_over_is_none(text: str) -> None:
    assert annotation_record.decode(text, Record) is None
    assert annotation_record.decode(text, Receipt) is None


@pytest.mark.parametrize("text", SPOILED, ids=lambda text: text[:60])
def test_a_writer_of_a_route_or_a_cluster_can_break_no_reader(text: str) -> None:
    route = msgspec.convert(
        {"metadata": {"name": "r", "annotations": {traffic_record.ANNOTATION: text}}}, HttpRoute
    )
    assert traffic_record.of_route(route) == Record()
    assert receipt.parse_record({receipt.SO_FAR: text}) is None


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "yesterday",
        "",
        "1" * 100_000,
    ],
)
def test_a_moment_that_cannot_be_meant_is_none(text: str) -> None:
    marks = {labels.DELETE_AFTER: text, labels.DRAINING_SINCE: text}
    cluster = ray_cluster.decode({"metadata": {"name": "c", "annotations": marks}, "spec": {}})
    assert (cleanup_schedule.due_at(cluster), cleanup_schedule.draining_since(cluster)) == (
        None,
        None,
    )


def test_a_moment_with_a_time_zone_is_read() -> None:
    assert annotation_record.moment("2026-01-01T12:00:00Z") == NOW
