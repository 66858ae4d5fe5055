"""A real Prometheus scrapes four real services: every panel draws, KubeRay's labels are there, alerts fire on their causes."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from integration.monitoring.watched import PROVOKED, Told
from localcluster.binaries import locate
from localcluster.settings import Settings

pytestmark = [pytest.mark.integration]

TESTS = Path(__file__).parents[2]
LIMIT_SECONDS = 900
KUBERAYS_DASHBOARDS_READ = {
    "workqueue_depth": {"namespace", "pod", "controller"},
    "controller_runtime_active_workers": {"namespace", "pod", "controller"},
    "controller_runtime_reconcile_total": {"namespace", "pod", "controller", "result"},
    "controller_runtime_reconcile_time_seconds_bucket": {"namespace", "pod", "controller", "le"},
    "kuberay_cluster_info": {"namespace", "name", "owner_kind"},
    "kuberay_cluster_provisioned_duration_seconds": {"namespace", "name"},
    "kuberay_cluster_condition_provisioned": {"namespace", "name", "condition"},
    "kuberay_service_info": {"namespace", "name"},
    "kuberay_service_condition_ready": {"namespace", "name", "condition"},
    "kuberay_service_condition_upgrade_in_progress": {"namespace", "name", "condition"},
}


@pytest.fixture(scope="module")
def told(promtool: Path) -> Told:
    """Run the story once, in a network of its own; `promtool` says that Prometheus is there."""
    assert promtool.is_file()
    _, missing = locate(["gateway-crds", "kwok"], Settings.from_environment())
    if missing:
        pytest.skip(f"{missing[0]} is not built yet: `raybus cluster up` once")
    command = [sys.executable, "-m", "integration.monitoring.watched"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    return msgspec.json.decode(done.stdout, type=Told)


def test_every_service_is_scraped(told: Told) -> None:
    assert list(told.targets.values()) == ["up"] * 4


def test_every_panel_of_both_dashboards_draws(told: Told) -> None:
    assert [query for query, lines in told.queries.items() if not lines] == []
    assert len(told.queries) > 40


def test_what_kuberays_dashboards_read_has_their_labels(told: Told) -> None:
    lacking = {metric: labels - set(told.labels[metric]) for metric, labels in KUBERAYS_DASHBOARDS_READ.items()}
    assert {metric: labels for metric, labels in lacking.items() if labels} == {}


def test_an_objects_namespace_is_its_own_and_a_queues_that_of_the_pod(told: Told) -> None:
    assert {metric: told.namespaces[metric] for metric in ("kuberay_cluster_info", "workqueue_depth")} == {
        "kuberay_cluster_info": ["crowd"],
        "workqueue_depth": ["raybus"],
    }


def test_no_alert_fires_while_all_is_well(told: Told) -> None:
    assert told.quiet == []


def test_alerts_fire_when_their_cause_is_provoked(told: Told) -> None:
    assert told.fired == {
        "requests were cut": ["RaybusRequestsCut"],
        "an application that does not start": ["RaybusUpgradeStalled"],
        "an abort": ["RaybusUpgradeRolledBack"],
        "pods that are refused": ["RaybusReconcileErrors"],
        "a dashboard that fails": ["RaybusServeSilent"],
        "nats is frozen": ["RaybusNatsAway"],
        "cluster-reconciler is frozen": ["RaybusPartitionsWithoutOwner", "RaybusServiceDown"],
        "watcher is frozen": ["RaybusNoLeaderWatcher"],
    }
    assert {alert for alerts in told.fired.values() for alert in alerts} == PROVOKED
    assert [text for text in told.texts if "no value" in text or "rror" in text] == []
