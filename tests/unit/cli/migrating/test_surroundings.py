"""The circumstances of a take-over: both operators running at once, webhooks."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from raybus_cli.doctor.facts import Lease
from raybus_cli.doctor.operator import InstalledOperator
from raybus_cli.migrating import check
from raybus_cli.migrating.survey import (
    ClusterSurroundings,
    InstalledOperators,
    WebhookConfiguration,
)
from support.builders.snapshots import NOW
from support.tables import cases


def an_operator(
    name: str,
    namespace: str,
    *,
    ready: int = 1,
    environment: dict[str, str] | None = None,
    **flags: str,
) -> InstalledOperator:
    return InstalledOperator(
        namespace=namespace,
        name=name,
        image=f"{name}:v1",
        version="v1",
        replicas=ready,
        ready=ready,
        flags={key.replace("_", "-"): value for key, value in flags.items()},
        environment=environment or {},
    )


KUBERAY = an_operator("kuberay-operator", "ray-system")
WATCHER = an_operator("watcher", "raybus")
BESIDE = an_operator("watcher", "raybus", environment={"RAYBUS_LEASE_NAMESPACE": "ray-system"})
LEASE = msgspec.convert(
    {
        "metadata": {"name": "ray-operator-leader", "namespace": "ray-system"},
        "spec": {
            "holderIdentity": "kuberay-0",
            "renewTime": (NOW - timedelta(seconds=2)).isoformat(),
        },
    },
    Lease,
    strict=False,
)


@cases(
    ("kuberay", "watcher", "expected", "text"),
    {
        "both, each on its own": ([KUBERAY], WATCHER, "change", "share no Lease"),
        "both, on one Lease": ([KUBERAY], BESIDE, "note", "held by kuberay-0"),
        "KubeRay without a Lease": (
            [an_operator("kuberay-operator", "ray-system", enable_leader_election="false")],
            BESIDE,
            "change",
            "share no Lease",
        ),
        "in namespaces of their own": (
            [an_operator("kuberay-operator", "ray-system", watch_namespace="batch, jobs")],
            an_operator("watcher", "raybus", environment={"RAYBUS_WATCH_NAMESPACES": "serving"}),
            "note",
            "KubeRay in batch, jobs, raybus in serving",
        ),
        "with a common namespace": (
            [an_operator("kuberay-operator", "ray-system", watch_namespace="batch,serving")],
            an_operator("watcher", "raybus", environment={"RAYBUS_WATCH_NAMESPACES": "serving"}),
            "change",
            "share no Lease",
        ),
        "KubeRay at 0": ([an_operator("kuberay-operator", "ray-system", ready=0)], WATCHER, "", ""),
        "raybus is not there yet": ([KUBERAY], None, "", ""),
        "neither": ([], None, "note", "no KubeRay operator"),
        "no permission to list": (None, None, "unread", "may not be listed"),
    },
)
def test_both_operators(
    kuberay: list[InstalledOperator] | None,
    watcher: InstalledOperator | None,
    expected: str,
    text: str,
) -> None:
    installed = InstalledOperators(
        kuberay=kuberay, raybus={"watcher": watcher} if watcher else {}, leases=[LEASE]
    )
    found = list(check.check_operators(installed, now=NOW))
    assert [each.level.value for each in found] == ([expected] if expected else [])
    assert all(text in each.text for each in found)


def hooks(
    *, policy: str = "Fail", resources: tuple[str, ...] = ("rayclusters",), service: bool = True
) -> ClusterSurroundings:
    client: dict[str, Any] = (
        {"service": {"name": "s"}} if service else {"url": "https://example.org"}
    )
    hook = {
        "name": "h",
        "failurePolicy": policy,
        "clientConfig": client,
        "rules": [{"apiGroups": ["ray.io"], "resources": list(resources)}],
    }
    body = {"metadata": {"name": "kuberay"}, "webhooks": [hook]}
    return ClusterSurroundings(
        webhooks=[("ValidatingWebhookConfiguration", msgspec.convert(body, WebhookConfiguration))]
    )


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        pytest.param(hooks(), ["change"], id="KubeRay's"),
        pytest.param(hooks(policy="Ignore"), [], id="one that is ignored when it is away"),
        pytest.param(hooks(resources=("rayjobs",)), ["change"], id="of jobs alone"),
        pytest.param(hooks(service=False), [], id="somebody else's, elsewhere"),
        pytest.param(ClusterSurroundings(webhooks=None), ["unread"], id="no permission to list"),
        pytest.param(ClusterSurroundings(webhooks=[]), [], id="none"),
    ],
)
def test_webhooks(around: ClusterSurroundings, expected: list[str]) -> None:
    assert [each.level.value for each in check.check_webhooks(around)] == expected
