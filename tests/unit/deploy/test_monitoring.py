"""deploy/monitoring: made files are up to date, every name is one that the code exports, every alert has its paragraph."""

import re

import pytest
import yaml

from cluster_reconciler import wiring as cluster_wiring
from generators.monitoring import catalogue, files
from generators.monitoring.dashboards import DASHBOARDS
from generators.monitoring.grafana import render
from job_reconciler import wiring as job_wiring
from service_reconciler import wiring as service_wiring
from support import manifests
from support.golden import Golden
from support.manifests import ROOT
from traffic_manager import wiring as traffic_wiring

METRIC = re.compile(
    r"\b(?:raybus|kuberay|controller_runtime|workqueue|rest_client|leader_election)_[a-z_]+\b"
)
MARKS = re.compile(r'"[^"]*"')
WIRINGS = (cluster_wiring, service_wiring, traffic_wiring, job_wiring)
ALERTS = {each["alert"]: each for each in files.alerts()}


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Golden:
    return Golden(root=files.MONITORING, update=bool(request.config.getoption("--update-golden")))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_are_up_to_date(name: str, made: Golden) -> None:
    made.check(f"dashboards/{name}.json", render(DASHBOARDS[name]))


def test_the_prometheus_operator_gets_the_same_alerts(made: Golden) -> None:
    made.check("prometheus-operator/prometheus_rule.yaml", files.prometheus_rule())


def named(expression: str) -> set[str]:
    return set(METRIC.findall(MARKS.sub("", expression)))


def test_alerts_and_dashboards_name_only_what_is_exported() -> None:
    asked = {each["expr"] for each in ALERTS.values()} | {
        query for name in DASHBOARDS for query in queries(name)
    }
    assert {name for expression in asked for name in named(expression)} - catalogue.names() == set()


def queries(name: str) -> list[str]:
    return [
        query.expr
        for row in DASHBOARDS[name].rows
        for panel in row.panels
        for query in panel.queries
    ]


def test_a_controller_without_any_replica_raises_an_alert() -> None:
    expression = ALERTS["RaybusPartitionsWithoutOwner"]["expr"]
    named = set(re.findall(r'raybus_partitions_held{controller="(\w+)"}', expression))
    assert named == {wiring.CONTROLLER for wiring in WIRINGS}


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_its_meaning_and_the_address_of_the_remedy(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert f"## {name}\n" in (ROOT / page).read_text()
    assert anchor == name.lower()


def test_each_paragraph_of_the_page_is_about_an_alert() -> None:
    titles = re.findall(r"^## (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert titles == list(ALERTS)


def test_the_scrape_example_finds_all_services_and_keeps_the_labels_of_objects() -> None:
    (job,) = yaml.safe_load(files.SCRAPE.read_text())["scrape_configs"]
    assert (job["job_name"], job["honor_labels"]) == ("raybus", True)
    found = [
        kept
        for target in targets()
        if (kept := relabelled(target, job["relabel_configs"])) is not None
    ]
    assert {each["service"] for each in found} == {*manifests.SERVICES, "nats"}
    assert {each["namespace"] for each in found} == {manifests.NAMESPACE}
    assert all(each["pod"].startswith(each["service"]) for each in found)


def targets() -> list[dict[str, str]]:
    """Return the targets that Prometheus would discover in the base: one for each port of a pod."""
    workloads = manifests.of_kind(
        manifests.read(manifests.BASE), "Deployment", "StatefulSet", "Job"
    )
    return [
        {
            "namespace": manifests.NAMESPACE,
            "pod_name": f"{each['metadata']['name']}-x7k2p",
            "pod_container_port_name": port.get("name", ""),
        }
        | {
            f"pod_label_{re.sub('[^a-zA-Z0-9]', '_', key)}": value
            for key, value in each["spec"]["template"]["metadata"].get("labels", {}).items()
        }
        for each in workloads
        for container in each["spec"]["template"]["spec"]["containers"]
        for port in container.get("ports", [{}])
    ]


def relabelled(target: dict[str, str], rules: list[files.Json]) -> dict[str, str] | None:
    """Return the labels that Prometheus would give a target, None if it drops the target."""
    labels: dict[str, str] = {}
    for rule in rules:
        value = ";".join(
            target.get(each.removeprefix("__meta_kubernetes_"), "")
            for each in rule["source_labels"]
        )
        if rule.get("action") != "keep":
            labels[rule["target_label"]] = value
        elif not re.fullmatch(rule["regex"], value):
            return None
    return labels
