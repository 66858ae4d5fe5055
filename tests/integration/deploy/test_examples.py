"""The examples' manifests, applied beside raybus as a user does."""

from collections.abc import Callable

import pytest

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
