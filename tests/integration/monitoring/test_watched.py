"""A real Prometheus scrapes four real services and NATS: every panel draws, ours and KubeRay's."""

from pathlib import Path

import pytest

from generators.monitoring import kuberay
from integration.isolated import result_of
from integration.monitoring.watched import Report

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

LIMIT_SECONDS = 900
SEEN_IN_NEED_ONLY = {"raybus_state_reloads_total"}
"""Metrics without series in an upgrade: the first is counted when a stream is lost.

Its panel draws 0 until then."""


@pytest.fixture(scope="module")
def reported(promtool: Path) -> Report:
    """Run it once, in a network of its own; `promtool` shows that Prometheus is there."""
    assert promtool.is_file()
    return result_of("integration.monitoring.watched", kind=Report, within=LIMIT_SECONDS)


def test_every_service_and_nats_are_scraped(reported: Report) -> None:
    assert list(reported.targets.values()) == ["up"] * 5


def test_every_panel_of_both_dashboards_draws(reported: Report) -> None:
    assert [query for query, lines in reported.queries.items() if not lines] == []
    assert len(reported.queries) > 40


def test_no_panel_draws_only_for_want_of_its_metric(reported: Report) -> None:
    assert {
        metric for metric, series in reported.metrics.items() if not series
    } <= SEEN_IN_NEED_ONLY
    assert len(reported.metrics) > 40


def test_what_kuberays_dashboard_asks_of_clusters_and_services_draws(reported: Report) -> None:
    assert [question for question, lines in reported.asked.items() if not lines] == []


def test_what_kuberays_dashboards_read_has_their_labels(reported: Report) -> None:
    lacking = {
        metric: labels - set(reported.labels[metric]) for metric, labels in kuberay.LABELS.items()
    }
    assert {metric: labels for metric, labels in lacking.items() if labels} == {}


def test_kube_state_metrics_exports_of_head_pods_what_kuberays_dashboard_queries(
    reported: Report,
) -> None:
    assert reported.heads
    assert [
        name
        for name, owner in reported.heads.items()
        if "-head" not in name or owner != "RayCluster"
    ] == []


def test_an_objects_namespace_is_its_own_and_a_queues_that_of_the_pod(reported: Report) -> None:
    assert {
        metric: reported.namespaces[metric]
        for metric in ("kuberay_cluster_info", "workqueue_depth")
    } == {"kuberay_cluster_info": ["background"], "workqueue_depth": ["raybus"]}
