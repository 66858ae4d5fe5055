"""The overlays as kubectl renders them and as a real API server with pod security takes them."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.deploy import confined
from support import manifests
from support.manifests import DEPLOY, SERVICES

Kubectl = Callable[..., str]

pytestmark = [pytest.mark.integration]

MEBI = {"Mi": 1, "Gi": 1024}
PASSING = {"nats-streams"}
"""Jobs, whose pods end."""


def render(kubectl_binary: Path, overlay: str | Path) -> list[manifests.Document]:
    command = [str(kubectl_binary), "kustomize", str(DEPLOY / "overlays" / overlay)]
    return manifests.parse(
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    )


def millis(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)


def mebis(memory: str) -> int:
    return int(memory[:-2]) * MEBI[memory[-2:]]


@pytest.mark.parametrize("overlay", ["local", "production", "namespaced", "migration", "openshift"])
def test_patches_keep_the_hardening(overlay: str, kubectl_binary: Path) -> None:
    for name, container in manifests.containers(render(kubectl_binary, overlay)).items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"], name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert not context["allowPrivilegeEscalation"], name


def test_the_local_overlay_is_small(kubectl_binary: Path) -> None:
    requests = [
        each["resources"]["requests"]
        for each in manifests.containers(render(kubectl_binary, "local")).values()
    ]
    assert sum(millis(each["cpu"]) for each in requests) <= 300
    assert sum(mebis(each["memory"]) for each in requests) <= 640


def test_production_limits_every_lasting_container_and_keeps_its_volume(
    kubectl_binary: Path,
) -> None:
    documents = render(kubectl_binary, "production")
    for name, container in manifests.containers(documents).items():
        assert name.split("/")[0] in PASSING or container["resources"]["limits"].keys() == {
            "cpu",
            "memory",
        }
    for name, spec in manifests.pod_specs(documents).items():
        assert name in PASSING or spec["priorityClassName"] == "raybus"
    claim = manifests.named(documents, "StatefulSet", "nats")["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["resources"] == {"requests": {"storage": "10Gi"}}


def test_production_runs_three_nats_servers_that_fall_one_at_a_time(kubectl_binary: Path) -> None:
    documents = render(kubectl_binary, "production")
    spec = manifests.named(documents, "StatefulSet", "nats")["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (
        3,
        "Parallel",
        "nats-servers",
    )
    pod = spec["template"]["spec"]
    apart = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [each["topologyKey"] for each in apart] == ["kubernetes.io/hostname"]
    assert manifests.named(documents, "PodDisruptionBudget", "nats")["spec"]["maxUnavailable"] == 1
    headless = manifests.named(documents, "Service", "nats-servers")["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    # The server leads clients away and hands its streams over before it ends, and has the time to.
    server = manifests.containers(documents)["nats/nats"]
    assert server["lifecycle"]["preStop"]["exec"]["command"] == [
        "nats-server",
        "--signal",
        "ldm=/run/nats/nats.pid",
    ]
    assert pod["terminationGracePeriodSeconds"] > 30


@pytest.mark.parametrize(("overlay", "servers"), [("local", "1"), ("production", "3")])
def test_the_nats_configuration_and_the_streams_agree_on_the_number_of_servers(
    overlay: str, servers: str, kubectl_binary: Path
) -> None:
    documents = render(kubectl_binary, overlay)
    settings = [
        each
        for each in manifests.of_kind(documents, "ConfigMap")
        if "NATS_SERVERS" in each.get("data", {})
    ]
    assert [(each["data"]["NATS_SERVERS"], each["data"]["NATS_REPLICAS"]) for each in settings] == [
        (servers, servers)
    ]
    name = settings[0]["metadata"]["name"]
    containers = manifests.containers(documents)
    for each in ("nats/configure", "nats-streams/streams", "nats/keeper"):
        assert {"configMapRef": {"name": name}} in containers[each]["envFrom"]


def rules(documents: list[manifests.Document], kind: str) -> dict[str, manifests.Document]:
    return {each["metadata"]["name"]: each["rules"] for each in manifests.of_kind(documents, kind)}


def test_the_namespaced_overlay_gives_the_same_rights_in_its_namespace_and_none_elsewhere(
    kubectl_binary: Path,
) -> None:
    production, namespaced = (
        render(kubectl_binary, "production"),
        render(kubectl_binary, "namespaced"),
    )
    everywhere = rules(production, "ClusterRole")
    for of_users in (
        "raybus-cluster-identity",
        "raybus-upgradepolicies-view",
        "raybus-upgradepolicies-edit",
    ):
        del everywhere[of_users]
    assert everywhere.items() <= rules(namespaced, "Role").items()
    assert [each["kind"] for each in namespaced if "namespace" not in each["metadata"]] == [
        "Namespace"
    ]
    bound = {
        (each["metadata"]["namespace"], each["roleRef"]["kind"], subject["name"])
        for each in manifests.of_kind(namespaced, "RoleBinding")
        if each["metadata"]["name"] in everywhere
        for subject in each["subjects"]
    }
    assert bound == {("default", "Role", name) for name in SERVICES}


def test_the_migration_overlay_adds_the_permission_for_kuberays_lease_and_names_where_it_is(
    kubectl_binary: Path,
) -> None:
    production, migration = (
        render(kubectl_binary, "production"),
        render(kubectl_binary, "migration"),
    )
    added = rules(migration, "Role").keys() - rules(production, "Role").keys()
    assert added == {"raybus-kuberay-lease"}
    role = manifests.named(migration, "Role", "raybus-kuberay-lease")
    reported = next(
        each
        for each in manifests.of_kind(migration, "ConfigMap")
        if "RAYBUS_LOG_LEVEL" in each.get("data", {})
    )
    assert (
        reported["data"]["RAYBUS_LEASE_NAMESPACE"] == role["metadata"]["namespace"] == "ray-system"
    )
    leases = [
        each
        for each in manifests.named(migration, "Role", "watcher")["rules"]
        if each["resources"] == ["leases"]
    ]
    assert role["rules"] == leases


def test_one_command_installs_everything_without_a_warning(applied: str, kubectl: Kubectl) -> None:
    reported = [
        line
        for line in applied.splitlines()
        if "Warning" in line and "last-applied-configuration" not in line
    ]
    assert reported == []
    for name in SERVICES:
        kubectl(
            "-n",
            "raybus",
            "wait",
            "--for=condition=Available",
            f"deployment/{name}",
            "--timeout=60s",
        )
    kubectl("-n", "raybus", "rollout", "status", "statefulset/nats", "--timeout=60s")


def test_a_second_time_changes_nothing(applied: str, kubectl: Kubectl) -> None:
    again = kubectl("apply", "-k", str(DEPLOY / "overlays" / "local"))
    # kubectl calls a budget configured each time, whatever it holds: its selector is patched as a whole.
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    # A Job is gone a minute after its end, and comes again.
    come_again = [
        line for line in changed if line.startswith("job.batch/") and line.endswith("created")
    ]
    assert [
        line
        for line in changed
        if not line.startswith("poddisruptionbudget") and line not in come_again
    ] == []


@pytest.mark.parametrize(
    ("account", "wanted"),
    [
        (
            "service-reconciler",
            {"own /services/proxy": {"get", "update"}, "own /pods/proxy": {"get"}},
        ),
        ("traffic-manager", {"own /services/proxy": {"get", "update"}, "own /pods/proxy": {"get"}}),
        ("job-reconciler", {"own /services/proxy": {"get", "create"}}),
    ],
)
def test_the_confined_installation_gives_the_rights_of_the_proxy_that_its_services_use(
    account: str, wanted: dict[str, set[str]], kubectl_binary: Path
) -> None:
    documents = render(kubectl_binary, confined.OVERLAY)
    found = manifests.rights(documents, account)
    assert {right: verbs for right, verbs in found.items() if "/proxy" in right} == wanted


def test_the_confined_installation_has_the_rights_of_the_proxy_in_its_namespace_alone(
    kubectl_binary: Path,
) -> None:
    namespaced = render(kubectl_binary, "namespaced")
    through_proxy = render(kubectl_binary, confined.OVERLAY)
    held = {(each["kind"], each["metadata"]["name"]) for each in namespaced}
    added = [each for each in through_proxy if (each["kind"], each["metadata"]["name"]) not in held]
    assert {
        (each["kind"], each["metadata"]["namespace"])
        for each in added
        if each["kind"] != "ConfigMap"
    } == {("Role", "default"), ("RoleBinding", "default")}
