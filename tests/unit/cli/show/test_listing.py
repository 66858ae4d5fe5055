"""The rows of `raybus list`."""

import pytest

from common.api import ray_cluster, ray_service
from raybus_cli.output import printing
from raybus_cli.show import listing
from support.builders.snapshots import BLUE, NOW, a_cluster, a_config, a_service, at_rest, in_steps
from support.golden import Golden
from support.terminal import text_of


@pytest.mark.parametrize("wide", [False, True])
def test_rows_have_kubectls_columns(wide: bool, golden: Golden) -> None:
    other = a_service(endpoints=0)
    other["metadata"]["name"] = "another"
    services = [at_rest().service, ray_service.decode(other)]
    one = a_cluster(
        BLUE, a_config(), desiredWorkerReplicas=4, availableWorkerReplicas=2, desiredCPU="18", desiredGPU="4"
    )
    found = listing.build(services, [ray_cluster.decode(one)], now=NOW)
    text = text_of(printing.table(*listing.service_table(found.services, wide=wide, all_namespaces=not wide)))
    text += "\n" + text_of(printing.table(*listing.cluster_table(found.clusters, wide=wide, all_namespaces=not wide)))
    golden.check(f"cli/list{'-wide' if wide else ''}.txt", text)


def test_traffic_and_capacity_of_both_clusters_are_printed() -> None:
    row = listing.build([in_steps(weight=30).service], [], now=NOW).services[0]
    assert (row.phase, row.traffic, row.capacity) == ("Upgrading", "70/30", "90/30")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (5, "5s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (3599, "59m"), (10800, "3h"), (200000, "2d")],
)
def test_ages_are_kubectls(seconds: int | None, text: str) -> None:
    assert printing.age(seconds) == text
