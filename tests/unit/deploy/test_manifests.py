"""The manifests of deploy/: hardened pods, private credentials, closed networks."""

import pytest
import yaml

from common.bus import nkeys
from common.runtime import process
from common.settings import Settings
from nats_admin import key_registry
from support import manifests
from support.manifests import BASE, DEPLOY, NAMESPACE, SERVICES, Document
from watcher import leadership

ALL = manifests.read(BASE)
CONTAINERS = manifests.containers(ALL)
PODS = manifests.pod_specs(ALL)
COMPONENTS = {
    name: manifests.read(DEPLOY / "components" / name) for name in ("dashboard", "notifications")
}
"""Manifests of the components with a pod of their own."""
HARDENED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_cannot_gain_rights_or_write_to_their_image(name: str) -> None:
    assert CONTAINERS[name]["securityContext"] == HARDENED


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_container_of_a_component_cannot_gain_rights_or_write_to_its_image_and_is_limited(
    name: str,
) -> None:
    (container,) = manifests.containers(COMPONENTS[name]).values()
    assert container["securityContext"] == HARDENED
    assert manifests.pod_specs(COMPONENTS[name])[name]["securityContext"]["runAsNonRoot"] is True
    assert container["resources"].keys() == {"requests", "limits"}
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}


@pytest.mark.parametrize("name", PODS)
def test_pods_run_as_nobody_in_particular_under_the_default_seccomp_profile(name: str) -> None:
    context = PODS[name]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (10001, 10001)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & PODS[name].keys()


@pytest.mark.parametrize("name", PODS)
def test_pods_have_no_volume_that_the_restricted_pod_security_forbids(name: str) -> None:
    for volume in PODS[name].get("volumes", []):
        assert volume.keys() - {"name"} <= RESTRICTED_VOLUMES


def test_the_namespace_enforces_restricted_pod_security() -> None:
    labels = manifests.named(ALL, "Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_ask_for_resources_and_never_pull_needlessly(name: str) -> None:
    assert CONTAINERS[name]["resources"]["requests"].keys() == {"cpu", "memory"}
    assert CONTAINERS[name]["imagePullPolicy"] == "IfNotPresent"
    assert CONTAINERS[name]["image"].startswith("registry.invalid/raybus/")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_probed_and_given_time_to_end(name: str) -> None:
    container = CONTAINERS[f"{name}/{name}"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert PODS[name]["terminationGracePeriodSeconds"] > 10


def test_a_watcher_has_time_to_hand_over() -> None:
    longest = leadership.PREPARE_SECONDS + process.CLEANUP_SECONDS
    assert PODS["watcher"]["terminationGracePeriodSeconds"] > longest


def test_the_sidecar_of_nats_exports_the_metrics_of_the_server_on_the_scraped_port() -> None:
    keeper = CONTAINERS["nats/keeper"]
    assert "--metrics" in keeper["command"]
    assert keeper["ports"] == [{"name": "http", "containerPort": 8080}]
    assert {"name": "RAYBUS_HTTP_PORT", "value": "8080"} in keeper["env"]


def test_no_key_for_nats_comes_from_an_api_object() -> None:
    secrets = {
        volume["secret"]["secretName"]
        for spec in PODS.values()
        for volume in spec.get("volumes", [])
        if "secret" in volume
    }
    assert secrets == {"nats-certificate"}
    assert not manifests.of_kind(ALL, "Secret")


def test_each_user_has_a_configmap_for_its_keys_that_applying_again_leaves_alone() -> None:
    maps = [
        each
        for each in manifests.of_kind(ALL, "ConfigMap")
        if key_registry.LABEL in each["metadata"]["labels"]
    ]
    users = (*key_registry.USERS, nkeys.NAMED)
    wanted = {nkeys.SERVERS, *(f"{nkeys.KEYS_PREFIX}{user}" for user in users)}
    assert {each["metadata"]["name"] for each in maps} == wanted
    assert [each for each in maps if "data" in each] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_account_service_and_budget(name: str) -> None:
    assert PODS[name]["serviceAccountName"] == name
    assert manifests.named(ALL, "Service", name)["spec"]["ports"][0]["targetPort"] == "http"
    assert manifests.named(ALL, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("name", SERVICES)
def test_a_new_replica_is_ready_before_the_old_one_goes(name: str) -> None:
    strategy = manifests.named(ALL, "Deployment", name)["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"watcher"}))
def test_a_replica_is_known_by_its_pod(name: str) -> None:
    identity = next(
        each for each in CONTAINERS[f"{name}/{name}"]["env"] if each["name"] == "RAYBUS_IDENTITY"
    )
    assert identity["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_in_production_any_replica_may_be_away() -> None:
    patch: list[Document] = yaml.safe_load(
        (DEPLOY / "overlays" / "production" / "service.yaml").read_text()
    )
    assert {"op": "replace", "path": "/spec/replicas", "value": 2} in patch


def test_only_pods_that_talk_to_the_api_server_get_a_token() -> None:
    with_token = {name for name, spec in PODS.items() if spec["automountServiceAccountToken"]}
    assert with_token == {*SERVICES, "nats", "nats-streams"}
    for account in manifests.of_kind(ALL, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_the_shared_settings_are_ones_that_services_understand() -> None:
    generated = yaml.safe_load((BASE / "kustomization.yaml").read_text())["configMapGenerator"][0]
    values = dict(literal.split("=", 1) for literal in generated["literals"])
    assert generated["name"] == "raybus-config"
    read = Settings.from_environment("watcher", values)
    assert (read.nats_url, read.nats_register_key) == ("tls://nats:4222", True)


def test_the_network_is_closed_but_for_what_is_named() -> None:
    policies = {
        each["metadata"]["name"]: each["spec"] for each in manifests.of_kind(ALL, "NetworkPolicy")
    }
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert set(policies) == {
        "deny-all",
        "dns",
        "api-server",
        "nats",
        "nats-clients",
        "ray-dashboards",
        "metrics",
    }
    scraped = policies["metrics"]["podSelector"]["matchExpressions"][0]["values"]
    assert scraped == [*SERVICES, "nats"]
    asking = policies["api-server"]["podSelector"]["matchExpressions"][0]["values"]
    assert asking == [*SERVICES, "nats", "nats-streams"]
    dashboards = policies["ray-dashboards"]["podSelector"]["matchExpressions"][0]["values"]
    assert dashboards == ["service-reconciler", "traffic-manager", "job-reconciler"]


@pytest.mark.parametrize("overlay", ["local", "production"])
def test_overlays_patch_only_files_that_exist(overlay: str) -> None:
    folder = DEPLOY / "overlays" / overlay
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert [
        folder / entry["path"]
        for entry in kustomization["patches"]
        if not (folder / entry["path"]).is_file()
    ] == []


def test_the_production_overlay_names_every_image_that_base_uses() -> None:
    folder = DEPLOY / "overlays" / "production"
    images: list[Document] = yaml.safe_load((folder / "kustomization.yaml").read_text())["images"]
    assert {image["name"] for image in images} == {
        each["image"].rsplit(":", 1)[0] for each in CONTAINERS.values()
    }


def test_nothing_is_deployed_outside_our_namespace() -> None:
    assert {each["metadata"].get("namespace", NAMESPACE) for each in ALL} == {NAMESPACE}


def test_no_deletion_of_an_overlay_takes_the_crds_and_with_them_every_ray_service() -> None:
    folders = [path for path in (DEPLOY / "overlays").iterdir() if path.is_dir()]
    assert {each.name for each in folders} >= {
        "local",
        "production",
        "namespaced",
        "migration",
        "openshift",
    }
    for folder in folders:
        assert manifests.of_kind(manifests.read(folder), "CustomResourceDefinition") == []
