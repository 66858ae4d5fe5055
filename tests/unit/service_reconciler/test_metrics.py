"""What is exported about a RayService: right at each moment of an upgrade, once, and gone with the service."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from common import labels
from common.api import ray_cluster, ray_service
from common.api.core import Service
from common.api.gateway import HttpRoute
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus.cache import Cache
from common.ray.serve_status import ServeDetails
from common.ray.view import Reading, Seen
from common.traffic_record import ANNOTATION
from service_reconciler.metrics import FAMILIES, OVERWRITTEN, STEP_AGE, RayServiceCollector
from service_reconciler.resources.ray_cluster import DELETE_AFTER
from support.builders.ray_service import a_ray_service
from support.fakes.clock import FakeClock
from support.fakes.serve import FakeHead

SERVICE = {"name": "demo", "namespace": "default", "uid": "u1"}
RECORD = '{"version":1,"changedAt":"%s","clusters":{"blue":{"capacity":100,"weight":60},"green":{"capacity":50,"weight":40}}}'
RECEIPT = (
    '{"from":"red","to":"blue","outcome":"RolledBack","started":"2026-01-01T11:00:00Z","finished":"2026-01-01T11:10:00Z",'
    '"seconds":{"preparing":300,"shifting":200,"draining":100},'
    '"peakSurgePercent":20,"lowestCapacityPercent":90,"requestsCut":3}'
)


class Polls:
    """What Serve said last in each cluster."""

    def __init__(self) -> None:
        self.held: dict[str, Seen] = {}

    def seen(self, cluster: RayCluster) -> Seen | None:
        return self.held.get(cluster.metadata.name)


class World:
    """A cache and what is exported of it."""

    def __init__(self) -> None:
        self.cache, self.polls, self.clock = Cache(), Polls(), FakeClock()
        self.registry = CollectorRegistry()
        self.registry.register(RayServiceCollector(self.cache, self.polls, self.clock))
        self._version = 0

    def put_service(self, *, pending: str = "", upgrading: bool = False, receipt: str | None = None) -> RayService:
        body = a_ray_service(annotations={} if receipt is None else {labels.UPGRADE_RECEIPT: receipt})
        body["metadata"] |= self._meta("u1")
        since = (self.clock.now() - timedelta(seconds=90)).isoformat()
        said: list[Json] = [a_condition("UpgradeInProgress", since)] if upgrading else []
        body["status"] = {
            "conditions": said,
            "activeServiceStatus": {"rayClusterName": "blue"},
            "pendingServiceStatus": {"rayClusterName": pending},
        }
        service = ray_service.decode(body)
        self.cache.put(service)
        return service

    def put_cluster(self, name: str, **annotations: str) -> None:
        marks = {labels.ORIGIN_NAME: "demo", labels.ORIGIN_KIND: "RayService"}
        meta = {"name": name, "namespace": "default", "labels": marks, "annotations": annotations}
        self.cache.put(ray_cluster.decode({"metadata": meta | self._meta(name), "spec": {}}))

    def put_serve_service(self, cluster: str) -> None:
        meta = {"name": "demo-serve-svc", "namespace": "default"} | self._meta("s")
        self.cache.put(msgspec.convert({"metadata": meta, "spec": {"selector": {labels.CLUSTER: cluster}}}, Service))

    def put_route(self, *, changed: datetime) -> None:
        meta = {
            "name": "demo-httproute",
            "namespace": "default",
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "demo", "uid": "u1"}],
            "annotations": {ANNOTATION: RECORD % changed.isoformat()},
        }
        self.cache.put(msgspec.convert({"metadata": meta | self._meta("r")}, HttpRoute))

    def value(self, family: str, **more: str) -> float | None:
        return self.registry.get_sample_value(family, SERVICE | more)

    def series(self) -> list[str]:
        return sorted({sample.name for metric in self.registry.collect() for sample in metric.samples})

    def _meta(self, uid: str) -> dict[str, Any]:
        self._version += 1
        return {"uid": uid, "resourceVersion": str(self._version)}


def a_condition(kind: str, since: str) -> Json:
    return {"type": kind, "status": "True", "reason": "Any", "message": "", "lastTransitionTime": since}


def a_reading(*, capacity: float | None) -> Reading:
    """Return what Serve tells that runs all that it was asked for."""
    head = FakeHead(FakeClock(), deploy_seconds=0)
    app = {"name": "app", "import_path": "app:main"}
    head.deploy({"applications": [app], "target_capacity": capacity})
    return Reading(details=msgspec.convert(head.details(), ServeDetails))


def test_an_upgrade_in_steps_shows_weights_capacities_and_its_age() -> None:
    world = World()
    world.put_service(pending="green", upgrading=True)
    world.put_cluster("blue")
    world.put_cluster("green")
    world.put_route(changed=world.clock.now() - timedelta(seconds=30))
    world.polls.held = {
        "blue": Seen(reading=a_reading(capacity=100), age=1.5),
        "green": Seen(reading=a_reading(capacity=50), age=0.5),
    }
    blue, green = {"cluster": "blue", "role": "active"}, {"cluster": "green", "role": "pending"}
    assert [world.value("raybus_service_traffic_percent", **each) for each in (blue, green)] == [60, 40]
    assert [world.value("raybus_service_target_capacity_percent", **each) for each in (blue, green)] == [100, 50]
    assert [world.value("raybus_service_ready_capacity_percent", **each) for each in (blue, green)] == [100, 50]
    assert [world.value("raybus_serve_poll_age_seconds", **each) for each in (blue, green)] == [1.5, 0.5]
    assert world.value("raybus_service_upgrade_phase", phase="Shifting") == 1
    assert world.value("raybus_service_upgrade_age_seconds") == 90
    assert world.value("raybus_service_step_age_seconds") == 30


def test_without_a_weighted_route_the_serve_service_says_who_gets_the_requests() -> None:
    world = World()
    world.put_service(pending="green", upgrading=True)
    world.put_cluster("blue")
    world.put_cluster("green")
    world.put_serve_service("blue")
    assert world.value("raybus_service_traffic_percent", cluster="blue", role="active") == 100
    assert world.value("raybus_service_traffic_percent", cluster="green", role="pending") == 0
    assert world.value("raybus_service_ready_capacity_percent", cluster="green", role="pending") == 0
    assert world.value("raybus_serve_poll_age_seconds", cluster="green", role="pending") is None
    assert world.value("raybus_service_upgrade_phase", phase="Preparing") == 1
    assert world.value("raybus_service_step_age_seconds") is None


def test_a_cluster_that_is_left_behind_drains() -> None:
    world = World()
    world.put_service()
    world.put_cluster("blue")
    world.put_cluster("red", **{DELETE_AFTER: "2026-01-01T12:00:00Z"})
    assert world.value("raybus_service_upgrade_phase", phase="Draining") == 1
    assert world.value("raybus_service_traffic_percent", cluster="red", role="active") is None


def test_the_receipt_of_the_last_upgrade_is_told_until_the_next_one() -> None:
    world = World()
    world.put_service(receipt=RECEIPT)
    outcome = {"outcome": "RolledBack"}
    took = [
        world.value("raybus_service_last_upgrade_seconds", phase=each, **outcome)
        for each in ("preparing", "shifting", "draining")
    ]
    assert took == [300, 200, 100]
    finished = datetime(2026, 1, 1, 11, 10, tzinfo=UTC).timestamp()
    assert world.value("raybus_service_last_upgrade_finished_timestamp_seconds", **outcome) == finished
    assert world.value("raybus_service_last_upgrade_requests_cut") == 3
    assert world.value("raybus_service_last_upgrade_lowest_capacity_percent") == 90
    assert world.value("raybus_service_last_upgrade_peak_surge_percent") == 20


@pytest.mark.parametrize("text", ["", "{", '{"from":"a"}'])
def test_a_receipt_that_somebody_broke_does_not_break_the_others(text: str) -> None:
    world = World()
    world.put_service(receipt=text)
    assert world.value("kuberay_service_info") == 1
    assert not any("last_upgrade" in each for each in world.series())


def test_every_series_ends_with_its_service() -> None:
    world = World()
    service = world.put_service(pending="green", upgrading=True, receipt=RECEIPT)
    world.put_cluster("blue")
    world.put_serve_service("blue")
    world.polls.held = {"blue": Seen(reading=Reading(), age=1)}
    assert world.series() == sorted({each.name for each in FAMILIES} - {STEP_AGE.name, OVERWRITTEN.name})
    world.cache.remove(type(service), "default", "demo", version=99)
    assert world.series() == []


@pytest.mark.parametrize(
    "receipt",
    ["[" * 20_000, '{"x":' * 20_000, RECEIPT.replace("11:00:00Z", "11:00:00"), RECEIPT.replace("300", "9" * 400)],
)
def test_no_annotation_of_one_service_takes_the_metrics_of_all_others_away(receipt: str) -> None:
    world = World()
    world.put_service(receipt=receipt)
    assert world.registry.get_sample_value("kuberay_service_info", SERVICE) == 1
