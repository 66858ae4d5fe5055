"""The metrics of a RayService: right at each moment of an upgrade, exported once, and removed with
the service.
"""

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
from common.ray.serve_status import ServeDetails
from common.runtime.cache import Cache
from common.upgrade.traffic_record import ANNOTATION
from service_reconciler.metrics import FAMILIES, OVERWRITTEN, STEP_AGE, RayServiceCollector
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
    """The last status of Serve in each cluster."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[ServeDetails | None, float]] = {}

    def seen(self, cluster: RayCluster) -> tuple[ServeDetails | None, float] | None:
        return self.held.get(cluster.metadata.name)


class Harness:
    """A cache and the metrics that are exported from it."""

    def __init__(self) -> None:
        self.cache, self.polls, self.clock = Cache(), Polls(), FakeClock()
        self.registry = CollectorRegistry()
        self.registry.register(RayServiceCollector(self.cache, self.polls.seen, self.clock))
        self._version = 0

    def put_service(
        self, *, pending: str = "", upgrading: bool = False, receipt: str | None = None
    ) -> RayService:
        body = a_ray_service(
            annotations={} if receipt is None else {labels.UPGRADE_RECEIPT: receipt}
        )
        body["metadata"] |= self._meta("u1")
        since = (self.clock.now() - timedelta(seconds=90)).isoformat()
        conditions: list[Json] = [a_condition("UpgradeInProgress", since)] if upgrading else []
        body["status"] = {
            "conditions": conditions,
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
        self.cache.put(
            msgspec.convert(
                {"metadata": meta, "spec": {"selector": {labels.CLUSTER: cluster}}}, Service
            )
        )

    def put_route(self, *, changed: datetime) -> None:
        meta = {
            "name": "demo-httproute",
            "namespace": "default",
            "ownerReferences": [
                {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "demo", "uid": "u1"}
            ],
            "annotations": {ANNOTATION: RECORD % changed.isoformat()},
        }
        self.cache.put(msgspec.convert({"metadata": meta | self._meta("r")}, HttpRoute))

    def value(self, family: str, **more: str) -> float | None:
        return self.registry.get_sample_value(family, SERVICE | more)

    def series(self) -> list[str]:
        return sorted(
            {sample.name for metric in self.registry.collect() for sample in metric.samples}
        )

    def _meta(self, uid: str) -> dict[str, Any]:
        self._version += 1
        return {"uid": uid, "resourceVersion": str(self._version)}


def a_condition(kind: str, since: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": "Any",
        "message": "",
        "lastTransitionTime": since,
    }


def serving(*, capacity: float | None) -> ServeDetails:
    """Return the status of a Serve all of whose applications run."""
    head = FakeHead(FakeClock(), deploy_seconds=0)
    app = {"name": "app", "import_path": "app:main"}
    head.deploy({"applications": [app], "target_capacity": capacity})
    return msgspec.convert(head.details(), ServeDetails)


def test_an_upgrade_in_steps_shows_weights_capacities_and_its_age() -> None:
    harness = Harness()
    harness.put_service(pending="green", upgrading=True)
    harness.put_cluster("blue")
    harness.put_cluster("green")
    harness.put_route(changed=harness.clock.now() - timedelta(seconds=30))
    harness.polls.held = {
        "blue": (serving(capacity=100), 1.5),
        "green": (serving(capacity=50), 0.5),
    }
    blue, green = {"cluster": "blue", "role": "active"}, {"cluster": "green", "role": "pending"}
    assert [harness.value("raybus_service_traffic_percent", **each) for each in (blue, green)] == [
        60,
        40,
    ]
    assert [
        harness.value("raybus_service_target_capacity_percent", **each) for each in (blue, green)
    ] == [100, 50]
    assert [
        harness.value("raybus_service_ready_capacity_percent", **each) for each in (blue, green)
    ] == [100, 50]
    assert [harness.value("raybus_serve_poll_age_seconds", **each) for each in (blue, green)] == [
        1.5,
        0.5,
    ]
    assert harness.value("raybus_service_upgrade_phase", phase="Shifting") == 1
    assert harness.value("raybus_service_upgrade_age_seconds") == 90
    assert harness.value("raybus_service_step_age_seconds") == 30


def test_without_a_weighted_route_the_serve_service_decides_where_requests_go() -> None:
    harness = Harness()
    harness.put_service(pending="green", upgrading=True)
    harness.put_cluster("blue")
    harness.put_cluster("green")
    harness.put_serve_service("blue")
    assert harness.value("raybus_service_traffic_percent", cluster="blue", role="active") == 100
    assert harness.value("raybus_service_traffic_percent", cluster="green", role="pending") == 0
    assert (
        harness.value("raybus_service_ready_capacity_percent", cluster="green", role="pending") == 0
    )
    assert harness.value("raybus_serve_poll_age_seconds", cluster="green", role="pending") is None
    assert harness.value("raybus_service_upgrade_phase", phase="Preparing") == 1
    assert harness.value("raybus_service_step_age_seconds") is None


def test_a_cluster_that_is_left_behind_drains() -> None:
    harness = Harness()
    harness.put_service()
    harness.put_cluster("blue")
    harness.put_cluster("red", **{labels.DELETE_AFTER: "2026-01-01T12:00:00Z"})
    assert harness.value("raybus_service_upgrade_phase", phase="Draining") == 1
    assert harness.value("raybus_service_traffic_percent", cluster="red", role="active") is None


def test_the_receipt_of_the_last_upgrade_stays_until_the_next_one() -> None:
    harness = Harness()
    harness.put_service(receipt=RECEIPT)
    outcome = {"outcome": "RolledBack"}
    took = [
        harness.value("raybus_service_last_upgrade_seconds", phase=each, **outcome)
        for each in ("preparing", "shifting", "draining")
    ]
    assert took == [300, 200, 100]
    finished = datetime(2026, 1, 1, 11, 10, tzinfo=UTC).timestamp()
    assert (
        harness.value("raybus_service_last_upgrade_finished_timestamp_seconds", **outcome)
        == finished
    )
    assert harness.value("raybus_service_last_upgrade_requests_cut") == 3
    assert harness.value("raybus_service_last_upgrade_lowest_capacity_percent") == 90
    assert harness.value("raybus_service_last_upgrade_peak_surge_percent") == 20


@pytest.mark.parametrize("text", ["", "{", '{"from":"a"}'])
def test_a_receipt_that_somebody_broke_does_not_break_the_others(text: str) -> None:
    harness = Harness()
    harness.put_service(receipt=text)
    assert harness.value("kuberay_service_info") == 1
    assert not any("last_upgrade" in each for each in harness.series())


def test_every_series_ends_with_its_service() -> None:
    harness = Harness()
    service = harness.put_service(pending="green", upgrading=True, receipt=RECEIPT)
    harness.put_cluster("blue")
    harness.put_serve_service("blue")
    harness.polls.held = {"blue": (None, 1)}
    assert harness.series() == sorted(
        {each.name for each in FAMILIES} - {STEP_AGE.name, OVERWRITTEN.name}
    )
    harness.cache.remove(type(service), "default", "demo", version=99)
    assert harness.series() == []


@pytest.mark.parametrize(
    "receipt",
    [
        "[" * 20_000,
        '{"x":' * 20_000,
        RECEIPT.replace("11:00:00Z", "11:00:00"),
        RECEIPT.replace("300", "9" * 400),
    ],
)
def test_no_annotation_of_one_service_takes_the_metrics_of_all_others_away(receipt: str) -> None:
    harness = Harness()
    harness.put_service(receipt=receipt)
    assert harness.registry.get_sample_value("kuberay_service_info", SERVICE) == 1
