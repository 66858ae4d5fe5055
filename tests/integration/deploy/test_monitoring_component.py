"""Alerts and dashboards as kubectl renders them: as a component of an overlay, and for the Prometheus operator."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from generators.monitoring import files
from support import manifests
from support.manifests import DEPLOY, NAMESPACE

pytestmark = [pytest.mark.integration]


def render(kubectl_binary: Path, folder: Path) -> list[manifests.Document]:
    command = [str(kubectl_binary), "kustomize", str(folder)]
    return manifests.parse(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    )


def test_an_overlay_takes_the_component_along(kubectl_binary: Path, tmp_path: Path) -> None:
    places = {
        name: os.path.relpath(DEPLOY / name, tmp_path.resolve())
        for name in ("overlays/local", "monitoring")
    }
    overlay = {
        "namespace": NAMESPACE,
        "resources": [places["overlays/local"]],
        "components": [places["monitoring"]],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    found = render(kubectl_binary, tmp_path)
    prometheus = manifests.named(found, "ConfigMap", "raybus-prometheus")
    dashboards = manifests.named(found, "ConfigMap", "raybus-dashboards")
    assert {each["metadata"]["namespace"] for each in (prometheus, dashboards)} == {NAMESPACE}
    assert yaml.safe_load(prometheus["data"]["rules.yaml"])["groups"] == files.groups()
    assert dashboards["metadata"]["labels"] == {"grafana_dashboard": "1"}
    titles = {json.loads(each)["title"] for each in dashboards["data"].values()}
    assert titles == {"raybus / Operator", "raybus / Upgrades"}


def test_what_the_prometheus_operator_gets_selects_our_pods(kubectl_binary: Path) -> None:
    found = render(kubectl_binary, files.MONITORING / "prometheus-operator")
    monitor = manifests.named(found, "PodMonitor", "raybus")["spec"]
    marks = set(monitor["selector"]["matchLabels"].items())
    pods = [
        each["spec"]["template"]
        for each in manifests.of_kind(
            render(kubectl_binary, DEPLOY / "overlays" / "local"), "Deployment"
        )
        if marks <= set(each["spec"]["template"]["metadata"]["labels"].items())
    ]
    port = monitor["podMetricsEndpoints"][0]["port"]
    scraped = {
        pod["metadata"]["labels"]["app.kubernetes.io/name"]
        for pod in pods
        for container in pod["spec"]["containers"]
        if port in {each["name"] for each in container["ports"]}
    }
    assert scraped == set(manifests.SERVICES)
