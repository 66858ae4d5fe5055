"""A real API server takes our CRDs and does with them what KubeRay's users expect (spec raycluster §25, cases 1, 3, 4)."""

from typing import Any

import pytest

from common.api.opaque import Json
from integration.crds.conftest import CRDS, Kubectl
from support.builders.ray_cluster import a_group, a_head, a_template
from support.builders.ray_service import a_strategy
from support.tables import cases
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

INSTALLED = (
    "rayclusters.ray.io",
    "rayservices.ray.io",
    "rayjobs.ray.io",
    "raycronjobs.ray.io",
    "upgradepolicies.raybus.io",
)
MANAGED_BY = "the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'"


def a_cluster(name: str, *, version: str = "v1", group: Json | None = None, **spec: Any) -> Json:
    full = {"headGroupSpec": a_head(), "workerGroupSpecs": [group or a_group()], **spec}
    return {
        "apiVersion": f"ray.io/{version}",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": full,
    }


def a_service(name: str, **spec: Any) -> Json:
    config = {"headGroupSpec": a_head(), "workerGroupSpecs": [a_group()]}
    full = {"rayClusterConfig": config, **spec}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": name},
        "spec": full,
    }


@pytest.mark.parametrize("crd", INSTALLED)
def test_client_side_apply_fits_its_annotation(kubectl: Kubectl, crd: str) -> None:
    annotations: dict[str, str] = kubectl.stored("crd", crd)["metadata"]["annotations"]
    assert len(annotations["kubectl.kubernetes.io/last-applied-configuration"]) < 262_144
    assert kubectl.ok("apply", "-k", str(CRDS)).count("unchanged") == len(INSTALLED)


def test_server_side_apply_works_after_client_side_apply(kubectl: Kubectl) -> None:
    applied = kubectl.ok("apply", "--server-side", "--force-conflicts", "-k", str(CRDS))
    assert applied.count("serverside-applied") == len(INSTALLED)


@pytest.mark.parametrize("crd", INSTALLED)
def test_the_schemas_are_structural(kubectl: Kubectl, crd: str) -> None:
    conditions = kubectl.stored("crd", crd)["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {
        "NamesAccepted": "True",
        "Established": "True",
    }


async def test_a_stored_object_that_the_schema_refuses_by_now_loses_a_finalizer(
    kubectl: Kubectl,
) -> None:
    too_long = a_cluster("old", rayVersion="2" * 200)
    too_long["metadata"]["finalizers"] = ["raybus.io/test"]
    crd = kubectl.stored("crd", "rayclusters.ray.io")
    for version in crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del spec["properties"]["rayVersion"]["maxLength"]
    kubectl.ok("replace", "-f", "-", obj=crd)

    def stored() -> bool:
        return kubectl.run("create", "-f", "-", obj=too_long).returncode == 0

    def refused() -> bool:
        return "Too long" in kubectl.run("create", "-f", "-", obj=too_long).stderr

    await eventually(stored, within=30, what="the schema without a limit")
    kubectl.ok("apply", "--server-side", "--force-conflicts", "-k", str(CRDS))
    too_long["metadata"]["name"] = "new"
    await eventually(refused, within=30, what="the schema with its limit")
    kubectl.ok("delete", "raycluster", "old", "--wait=false")
    kubectl.ok("patch", "raycluster", "old", "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    assert "NotFound" in kubectl.run("get", "raycluster", "old").stderr


@pytest.mark.acceptance("raycluster", 1)
def test_an_unknown_manager_is_rejected(kubectl: Kubectl) -> None:
    done = kubectl.run("create", "-f", "-", obj=a_cluster("managed", managedBy="example.com/x"))
    assert done.returncode != 0
    assert MANAGED_BY in done.stderr


@pytest.mark.acceptance("raycluster", 3)
def test_the_manager_cannot_be_changed(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_cluster("fixed", managedBy="ray.io/kuberay-operator"))
    done = kubectl.run(
        "apply", "-f", "-", obj=a_cluster("fixed", managedBy="kueue.x-k8s.io/multikueue")
    )
    assert done.returncode != 0
    assert "the managedBy field is immutable" in done.stderr


@pytest.mark.acceptance("raycluster", 4)
def test_a_group_gets_its_defaults(kubectl: Kubectl) -> None:
    kubectl.ok(
        "apply",
        "-f",
        "-",
        obj=a_cluster("plain", group={"groupName": "g", "template": a_template()}),
    )
    group = kubectl.stored("raycluster", "plain")["spec"]["workerGroupSpecs"][0]
    defaults = {
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": 2147483647,
        "numOfHosts": 1,
        "priority": 0,
    }
    assert group == {"groupName": "g", "template": a_template(), **defaults}


@cases(
    ("spec", "fault"),
    {
        "enum": (
            {"upgradeStrategy": {"type": "Sometimes"}},
            'supported values: "Recreate", "None"',
        ),
        "required": ({"headGroupSpec": {}}, "spec.headGroupSpec.template: Required value"),
        "type": ({"rayVersion": 2}, "spec.rayVersion"),
        "no containers": (
            {"headGroupSpec": {"template": {"spec": {}}}},
            "containers: Required value",
        ),
        "unknown field": ({"workerGroups": []}, 'unknown field "spec.workerGroups"'),
        "unknown field in a pod template": (
            {
                "headGroupSpec": {
                    "template": {"spec": {"containers": [{"name": "a", "imgae": "b"}]}}
                }
            },
            'unknown field "spec.headGroupSpec.template.spec.containers[0].imgae"',
        ),
    },
)
def test_a_wrong_spec_is_rejected_by_name(kubectl: Kubectl, spec: Json, fault: str) -> None:
    done = kubectl.run("create", "--validate=strict", "-f", "-", obj=a_cluster("wrong", **spec))
    assert done.returncode != 0
    assert fault in done.stderr


def test_a_service_has_defaults_in_its_ports_and_upgrade_options(kubectl: Kubectl) -> None:
    serve = {"spec": {"ports": [{"port": 8000}]}}
    kubectl.ok(
        "apply",
        "-f",
        "-",
        obj=a_service("s", upgradeStrategy=a_strategy(surge=None), serveService=serve),
    )
    spec = kubectl.stored("rayservice", "s")["spec"]
    assert spec["upgradeStrategy"]["clusterUpgradeOptions"]["maxSurgePercent"] == 100
    assert spec["serveService"]["spec"]["ports"] == [{"port": 8000, "protocol": "TCP"}]


def test_a_negative_deletion_delay_is_rejected(kubectl: Kubectl) -> None:
    done = kubectl.run(
        "create", "-f", "-", obj=a_service("negative", rayClusterDeletionDelaySeconds=-1)
    )
    assert "should be greater than or equal to 0" in done.stderr


@cases(
    ("arguments", "columns"),
    {
        "clusters": (
            ["rayclusters"],
            [
                *("NAME", "DESIRED WORKERS", "AVAILABLE WORKERS", "CPUS", "MEMORY", "GPUS"),
                *("STATUS", "AGE"),
            ],
        ),
        "clusters, wide": (
            ["rayclusters", "-o", "wide"],
            [
                *("NAME", "DESIRED WORKERS", "AVAILABLE WORKERS", "CPUS", "MEMORY", "GPUS"),
                *("TPUS", "STATUS", "AGE"),
                *("HEAD POD IP", "HEAD SERVICE IP"),
            ],
        ),
        "services": (["rayservices"], ["NAME", "SERVICE STATUS", "NUM SERVE ENDPOINTS"]),
    },
)
@pytest.mark.acceptance("rayservice", 91)
def test_kubectl_get_shows_kuberays_columns(
    kubectl: Kubectl, arguments: list[str], columns: list[str]
) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_cluster("shown"))
    kubectl.ok("apply", "-f", "-", obj=a_service("shown"))
    header = kubectl.ok("get", *arguments).splitlines()[0]
    assert header.split("   ")[0] == "NAME"
    assert [column.strip() for column in header.split("   ") if column.strip()] == columns


def test_the_status_is_a_subresource(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj={**a_cluster("statused"), "status": {"state": "ready"}})
    assert "status" not in kubectl.stored("raycluster", "statused")
    patch = '{"status":{"state":"ready","desiredCPU":"0","head":{}}}'
    kubectl.ok(
        "patch", "raycluster", "statused", "--subresource=status", "--type=merge", "-p", patch
    )
    assert kubectl.stored("raycluster", "statused")["status"] == {
        "state": "ready",
        "desiredCPU": "0",
        "head": {},
    }


def test_the_old_version_is_served_with_a_warning_and_stored_as_the_new_one(
    kubectl: Kubectl,
) -> None:
    head = a_head(rayStartParams={})
    group = a_group(num_of_hosts=None, rayStartParams={})
    done = kubectl.run(
        "apply",
        "-f",
        "-",
        obj=a_cluster("old", version="v1alpha1", group=group, headGroupSpec=head),
    )
    assert done.returncode == 0, done.stderr
    assert (
        "Warning: ray.io/v1alpha1 RayCluster is deprecated; use ray.io/v1 RayCluster."
        in done.stderr
    )
    stored = kubectl.stored("raycluster.v1.ray.io", "old")
    assert stored["apiVersion"] == "ray.io/v1"
    assert stored["spec"]["headGroupSpec"] == head
    assert stored["spec"]["workerGroupSpecs"][0]["numOfHosts"] == 1


def test_kubectl_get_all_lists_them(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_cluster("listed"))
    assert "raycluster.ray.io/listed" in kubectl.ok("get", "all", "-o", "name")
