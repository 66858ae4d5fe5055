"""The rows of `raybus list`."""

import pytest
from msgspec import structs

from common.api import ray_cluster, ray_service
from raybus_cli import printing
from raybus_cli.show import frame
from support.builders.snapshots import BLUE, NOW, a_cluster, a_config, a_service, at_rest, in_steps
from support.golden import Golden
from support.terminal import text_of

WIDTHS = (60, 80, 160, printing.PIPE_WIDTH)


def _found() -> frame.ListOutput:
    other = a_service(endpoints=0)
    other["metadata"]["name"] = "another"
    upgraded = in_steps().service
    upgraded = structs.replace(upgraded, metadata=structs.replace(upgraded.metadata, name="chat"))
    services = [at_rest().service, upgraded, ray_service.decode(other)]
    one = a_cluster(
        BLUE,
        a_config(),
        desiredWorkerReplicas=4,
        availableWorkerReplicas=2,
        desiredCPU="18",
        desiredGPU="4",
    )
    return frame.build(services, [ray_cluster.decode(one)], now=NOW)


@pytest.mark.parametrize("wide", [False, True])
def test_rows_have_kubectls_columns(wide: bool, golden: Golden) -> None:
    found, every = _found(), not wide
    services = frame.build_service_table(found.services, wide=wide, all_namespaces=every)
    clusters = frame.build_cluster_table(found.clusters, wide=wide, all_namespaces=every)
    for width in WIDTHS:
        text = f"{text_of(services, width=width)}\n{text_of(clusters, width=width)}"
        end = "pipe" if width == printing.PIPE_WIDTH else width
        golden.check(f"cli/list{'-wide' if wide else ''}-{end}.txt", text)
        assert all(len(line) <= width for line in text.splitlines())
        assert len(text.splitlines()) == len(found.services) + len(found.clusters) + 3


def test_traffic_and_capacity_of_both_clusters_are_printed() -> None:
    row = frame.build([in_steps(weight=30).service], [], now=NOW).services[0]
    assert (row.phase, row.traffic, row.capacity) == ("Upgrading", "70/30", "90/30")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3599, "59m"),
        (10800, "3h"),
        (200000, "2d"),
    ],
)
def test_ages_are_kubectls(seconds: int | None, text: str) -> None:
    assert printing.format_age(seconds) == text
