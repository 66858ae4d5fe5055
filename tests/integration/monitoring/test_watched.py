"""A real Prometheus scrapes four real services and NATS: every panel draws, ours and KubeRay's."""

from pathlib import Path

import pytest

from integration.monitoring.watched import Told
from integration.story import heard
from support.monitoring import kuberay

pytestmark = [pytest.mark.integration, pytest.mark.story]

LIMIT_SECONDS = 900
SEEN_IN_NEED_ONLY = {"raybus_state_reloads_total"}
"""Begins when a stream is lost, which no upgrade does; its panel draws 0 until then."""


@pytest.fixture(scope="module")
def told(promtool: Path) -> Told:
    """Run the story once, in a network of its own; `promtool` says that Prometheus is there."""
    assert promtool.is_file()
    return heard("integration.monitoring.watched", kind=Told, within=LIMIT_SECONDS)


def test_every_service_and_nats_are_scraped(told: Told) -> None:
    assert list(told.targets.values()) == ["up"] * 5


def test_every_panel_of_both_dashboards_draws(told: Told) -> None:
    assert [query for query, lines in told.queries.items() if not lines] == []
    assert len(told.queries) > 40


def test_no_panel_draws_only_for_want_of_its_metric(told: Told) -> None:
    assert {metric for metric, series in told.metrics.items() if not series} <= SEEN_IN_NEED_ONLY
    assert len(told.metrics) > 40


def test_what_kuberays_dashboard_asks_of_clusters_and_services_draws(told: Told) -> None:
    assert [question for question, lines in told.asked.items() if not lines] == []


def test_what_kuberays_dashboards_read_has_their_labels(told: Told) -> None:
    lacking = {metric: labels - set(told.labels[metric]) for metric, labels in kuberay.LABELS.items()}
    assert {metric: labels for metric, labels in lacking.items() if labels} == {}


def test_kube_state_metrics_can_tell_of_head_pods_what_kuberays_dashboard_asks(told: Told) -> None:
    assert told.heads
    assert [name for name, owner in told.heads.items() if "-head" not in name or owner != "RayCluster"] == []


def test_an_objects_namespace_is_its_own_and_a_queues_that_of_the_pod(told: Told) -> None:
    assert {metric: told.namespaces[metric] for metric in ("kuberay_cluster_info", "workqueue_depth")} == {
        "kuberay_cluster_info": ["crowd"],
        "workqueue_depth": ["raybus"],
    }
