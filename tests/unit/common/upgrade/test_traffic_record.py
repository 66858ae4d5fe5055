"""The annotations of a route that count as its record, and the state that applies without one."""

import msgspec
import pytest

from common import labels
from common.api import ray_service
from common.api.gateway import HttpRoute
from common.upgrade import traffic_record, weighted_route
from common.upgrade.traffic_record import ANNOTATION, ClusterTraffic, Record
from support.builders.ray_service import a_ray_service

SHARE = {"demo-1": {"capacity": 70, "weight": 70}}


def a_route(record: object) -> HttpRoute:
    text = record if isinstance(record, str) else msgspec.json.encode(record).decode()
    annotations = {ANNOTATION: text, labels.ROUTE_PERMITS: "demo"}
    body = {
        "metadata": {"name": "r", "namespace": "default", "annotations": annotations},
        "spec": {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=HttpRoute)


def test_a_record_without_a_number_is_of_the_first_major_and_unknown_fields_are_passed_over() -> (
    None
):
    found = traffic_record.of_route(a_route({"clusters": SHARE, "added": {"in": "1.1"}}))

    assert found.clusters == {"demo-1": ClusterTraffic(capacity=70, weight=70)}


@pytest.mark.parametrize(
    "record", [{"version": 2, "clusters": SHARE}, {"version": 2, "clusters": []}, "{"]
)
def test_a_record_of_another_major_does_not_count_and_its_mirror_does(record: object) -> None:
    mirror = {"rayClusterName": "demo-1", "targetCapacity": 40, "trafficRoutedPercent": 30}
    service = ray_service.decode(a_ray_service() | {"status": {"activeServiceStatus": mirror}})

    assert traffic_record.of_route(a_route(record)) == Record()
    assert weighted_route.record_of(service, [a_route(record)]).clusters == {
        "demo-1": ClusterTraffic(capacity=40, weight=30)
    }
