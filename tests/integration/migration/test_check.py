"""`raybus migrate check` on the objects that KubeRay left.

Nothing would change; and each change that the tests prepare is found and reported.
"""

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from common.api.opaque import Body
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from integration.migration import cast_of
from integration.migration.conftest import KubeRayNamespace
from localcluster.control_plane import ControlPlane
from raybus_cli import main
from raybus_cli.migrating import check
from raybus_cli.migrating.report import MigrationReport, MigrationVerdict
from support.kuberay import goldens, restoring
from support.kuberay.settings import of_name

pytestmark = [pytest.mark.integration]
RAY_JOB = Resource(group="ray.io", kind="RayJob", plural="rayjobs")
HOOKS = Resource(
    group="admissionregistration.k8s.io",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
)


async def checked(legacy: KubeRayNamespace) -> MigrationReport:
    """Check the namespace, with the fake Serve in place of dashboards behind the API server."""
    kube = await KubeClient.connect(
        kubeconfig=legacy.control_plane.kubeconfig, user_agent="raybus-test"
    )
    try:
        return await check.check(
            kube,
            raybus_namespace="raybus",
            namespace=legacy.namespace,
            dashboard=legacy.serve,
            clock=legacy.clock,
        )
    finally:
        await kube.close()


def reported(report: MigrationReport) -> dict[str, list[str]]:
    """Return the findings above the level of a note, by object."""
    return {
        f"{each.kind} {each.name}": [
            f"{found.level}: {found.text}" for found in each.findings if found.level != "note"
        ]
        for each in report.objects
        if each.verdict != "nothing"
    }


@pytest.mark.parametrize("name", cast_of.RECORDED)
async def test_a_service_that_kuberay_left_is_ready(legacy: KubeRayNamespace, name: str) -> None:
    before = await legacy.inherit(name)
    report = await checked(legacy)
    assert reported(report) == {}
    assert report.verdict is MigrationVerdict.READY
    assert [each["metadata"] for each in await legacy.read()] == [
        each["metadata"] for each in before
    ], "it only reads"
    kinds = [each.kind for each in report.objects]
    assert kinds.count("RayService") == 1
    assert kinds.count("RayCluster") == (2 if name == cast_of.MOVING else 1)


async def test_clusters_that_kuberay_left_are_ready(legacy: KubeRayNamespace) -> None:
    setting = of_name("plain")
    await restoring.leave(legacy.kube, legacy.namespace, setting)
    report = await checked(legacy)
    assert reported(report) == {}
    assert sorted(each.name for each in report.objects) == sorted(goldens.clusters(setting))


async def a_changed_spec(legacy: KubeRayNamespace) -> None:
    service = PatchRequest(
        body={"spec": {"rayClusterConfig": cast_of.config("rayproject/ray:2.54.0")}}
    )
    await legacy.kube.patch(RAY_SERVICE, legacy.namespace, cast_of.BLUE_GREEN, service)


async def more_workers(legacy: KubeRayNamespace) -> None:
    clusters = [each for each in await legacy.read() if each["kind"] == "RayCluster"]
    change: list[Body] = [
        {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}
    ]
    patch = PatchRequest(body=change, content_type="application/json-patch+json")
    await legacy.kube.patch(RAY_CLUSTER, legacy.namespace, clusters[0]["metadata"]["name"], patch)


async def a_silent_dashboard(legacy: KubeRayNamespace) -> None:
    for head in legacy.serve.heads.values():
        head.behaviour = "silent"


@pytest.mark.parametrize(
    ("spoil", "verdict", "text"),
    [
        pytest.param(
            a_changed_spec,
            MigrationVerdict.NOT_READY,
            "the status would name other clusters",
            id="a changed spec",
        ),
        pytest.param(
            more_workers,
            MigrationVerdict.NOT_READY,
            "raybus would create Pod",
            id="workers to come",
        ),
        pytest.param(
            a_silent_dashboard,
            MigrationVerdict.UNREAD,
            "does not report its state",
            id="a silent dashboard",
        ),
    ],
)
async def test_planned_changes_are_printed(
    legacy: KubeRayNamespace,
    spoil: Callable[[KubeRayNamespace], Awaitable[None]],
    verdict: MigrationVerdict,
    text: str,
) -> None:
    await legacy.inherit(cast_of.BLUE_GREEN)
    await spoil(legacy)
    report = await checked(legacy)
    assert report.verdict is verdict
    assert any(text in each for some in reported(report).values() for each in some), reported(
        report
    )
    assert all(
        found.remedy for each in report.objects for found in each.findings if found.level != "note"
    )


async def test_a_webhook_of_kuberays_operator_is_found(legacy: KubeRayNamespace) -> None:
    name = f"validating-{uuid4().hex[:8]}"
    rule = {
        "apiGroups": ["ray.io"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["rayclusters"],
    }
    hook: Body = {
        "name": "vraycluster.kb.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"name": "webhook-service", "namespace": "ray-system"}},
        "namespaceSelector": {"matchLabels": {"nobody": name}},
        "rules": [rule],
    }
    await legacy.kube.create(HOOKS, None, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        report = await checked(legacy)
    finally:
        await legacy.kube.delete(HOOKS, None, name)
    found = [each for each in report.findings if name in each.text]
    assert [each.level for each in found] == ["change"]
    assert f"kubectl delete validatingwebhookconfiguration {name}" in found[0].remedy


def raybus(kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command line, in a thread of its own, for it has an event loop of its own."""
    env = {"KUBECONFIG": str(kubeconfig), "COLUMNS": "160", "NO_COLOR": "1"}

    def run() -> Any:
        return CliRunner().invoke(main.build("migrate"), ["migrate", "check", *arguments], env=env)

    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(run).result()
    return done.exit_code, done.stdout, done.stderr


async def test_an_empty_namespace_is_ready(legacy: KubeRayNamespace) -> None:
    code, out, _ = raybus(legacy.control_plane.kubeconfig, "-n", legacy.namespace, "-o", "json")
    report = json.loads(out)
    assert (code, report["verdict"], report["objects"]) == (0, "ready", [])
    assert "no KubeRay operator is installed" in out


async def test_what_may_not_be_read_ends_with_2(
    legacy: KubeRayNamespace, control_plane: ControlPlane
) -> None:
    account = Resource(kind="ServiceAccount", plural="serviceaccounts")
    await legacy.kube.create(account, legacy.namespace, {"metadata": {"name": "stranger"}})
    stranger = await control_plane.kubeconfig_for_service_account(legacy.namespace, "stranger")
    code, out, err = raybus(stranger, "-n", legacy.namespace)
    assert code == 2, (out, err)
    assert "rayclusters" in out + err


def test_a_kubeconfig_that_is_none_ends_with_2(tmp_path: Path) -> None:
    code, out, err = raybus(tmp_path / "nothing")
    assert (code, out) == (2, "")
    assert "there is no kubeconfig" in err
