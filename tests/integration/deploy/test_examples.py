"""The examples' manifests, applied beside raybus as a user does."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support import manifests
from support.manifests import DEPLOY

Kubectl = Callable[..., str]

pytestmark = [pytest.mark.integration]

WEBHOOK = DEPLOY.parent / "examples" / "webhook"


def test_the_webhook_forwarder_installs_without_a_warning(applied: str, kubectl: Kubectl) -> None:
    reported = kubectl("apply", "--dry-run=server", "-k", str(WEBHOOK)).splitlines()
    assert [line.partition("/")[0] for line in reported] == [
        "configmap",
        "configmap",
        "deployment.apps",
        "networkpolicy.networking.k8s.io",
    ]


def test_the_overlay_with_notifications_refers_to_what_it_makes(kubectl_binary: Path) -> None:
    command = [str(kubectl_binary), "kustomize", str(DEPLOY.parent / "examples" / "notifications")]
    rendered = manifests.parse(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    )
    maps = {each["metadata"]["name"]: each for each in manifests.of_kind(rendered, "ConfigMap")}
    pod = manifests.pod_specs(rendered)["notifications"]
    (container,) = pod["containers"]
    assert pod["volumes"][0]["configMap"]["name"] in maps
    assert container["envFrom"][0]["configMapRef"]["name"] in maps
    assert container["image"] == "registry.invalid/raybus/notifications:0.1.0"
    config = next(each for name, each in maps.items() if name.startswith("nats-config-"))
    assert (config["data"]["NATS_SUBSCRIBERS"], config["data"]["NATS_SERVERS"]) == ("slack", "3")
