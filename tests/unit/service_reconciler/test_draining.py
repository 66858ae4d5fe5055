"""When an unneeded cluster is deleted, from the reads of one pass;
`tests/scenario/service_reconciler/test_graceful_drain.py` tests all of it.
"""

from datetime import datetime, timedelta

import msgspec
import pytest

from common import labels
from common.api.meta import rfc3339
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from service_reconciler import draining
from service_reconciler.observed import DrainingCluster, Names, Observed
from service_reconciler.settings import Config

NOW = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


def a_cluster(version: str) -> RayCluster:
    """Return a cluster that drains, after its deadline."""
    since = rfc3339(NOW - timedelta(seconds=17))
    annotations = {
        labels.DELETE_AFTER: rfc3339(NOW - timedelta(seconds=1)),
        labels.DRAINING_SINCE: since,
    }
    meta = {
        "name": "old",
        "namespace": "ns",
        "uid": "u1",
        "resourceVersion": version,
        "annotations": annotations,
    }
    return msgspec.json.decode(msgspec.json.encode({"metadata": meta, "spec": {}}), type=RayCluster)


@pytest.mark.parametrize("version", ["7", "8"])
def test_requests_in_flight_keep_a_cluster_with_a_status_changed_during_the_pass(
    version: str,
) -> None:
    body = msgspec.json.encode({"metadata": {"name": "demo", "namespace": "ns"}, "spec": {}})
    service = msgspec.json.decode(body, type=RayService)
    observed = Observed(
        service=service,
        config=Config(),
        names=Names(active="new"),
        fresh_name="demo-x",
        clusters=(a_cluster("7"),),
        draining=(DrainingCluster(cluster=a_cluster(version), pods=(), ongoing=3),),
    )
    found = draining.decide(observed, now=NOW)
    assert (found.actions, found.requeue_at) == ((), NOW + timedelta(seconds=1))
