"""The Helm chart as Helm renders it: equal to the overlays, and each value has the effect that it documents."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.bus import nkeys
from common.settings import Settings as ServiceSettings
from generators.helm import chart
from localcluster import binaries
from localcluster.images import release
from nats_admin import key_registry
from support import manifests, openshift
from support.manifests import DEPLOY, SERVICES, Document
from support.servers.programs import prepared
from support.tables import cases

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

CHART = DEPLOY / "helm" / "raybus"
REGISTRY = "image.registry=registry.invalid/raybus"
"""The only value without a default, as the overlays have it."""
Render = Callable[..., list[Document]]
By = dict[tuple[str, str, str], Document]


@pytest.fixture(scope="module")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Helm."""
    program = str(prepared(binaries.HELM))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture(scope="module")
def render(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Render:
    """Return the objects that the chart yields for some values."""
    folder = tmp_path_factory.mktemp("values")

    def run(values: dict[str, Any] | None = None, *options: str) -> list[Document]:
        file = folder / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        done = helm(
            "template",
            "raybus",
            str(CHART),
            "--namespace",
            "raybus",
            "--skip-tests",
            *(() if "image" in (values or {}) else ("--set", REGISTRY)),
            "--values",
            str(file),
            *options,
        )
        assert done.returncode == 0, done.stderr
        return manifests.parse(done.stdout)

    return run


def by_place(documents: list[Document]) -> By:
    """Return objects by kind, namespace and name, without their namespaces' own objects."""
    plain = [chart.plain(each) for each in documents if each["kind"] != "Namespace"]
    found = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in plain
    }
    assert len(found) == len(plain)
    config = found.get(("ConfigMap", "raybus", "operator-config"))
    if config is not None:
        config["data"] = {name: yaml.safe_load(text) for name, text in config["data"].items()}
    return found


def added(given: By, wanted: By) -> By:
    """Return the objects that are only in the first set, or differ in the second."""
    return {place: each for place, each in given.items() if wanted.get(place) != each}


def test_lint_finds_nothing(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = helm("lint", "--strict", str(CHART), "--set", REGISTRY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_with_a_registry_alone_it_is_the_production_overlay(
    render: Render, overlays: Callable[[str], list[Document]]
) -> None:
    assert by_place(render()) == by_place(overlays("overlays/production"))


def test_a_release_pins_every_image_in_the_overlay_and_in_the_chart(
    render: Render, kubectl_binary: Path, tmp_path: Path
) -> None:
    digests = {name: f"sha256:{number:064x}" for number, name in enumerate(release.IMAGES)}
    component, overlay = tmp_path / "release", tmp_path / "overlay"
    component.mkdir()
    overlay.mkdir()
    (component / "kustomization.yaml").write_text(
        release.format_kustomization("reg.test/team", digests)
    )
    production = os.path.relpath(DEPLOY / "overlays/production", overlay)
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [production], "components": ["../release"]})
    )
    command = [str(kubectl_binary), "kustomize", str(overlay)]
    kustomized = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for documents in (
        manifests.parse(kustomized),
        render(yaml.safe_load(release.format_helm_values("reg.test/team", digests))),
    ):
        used = {container["image"] for container in manifests.containers(documents).values()}
        assert used == {f"reg.test/team/{name}@{digest}" for name, digest in digests.items()}


def test_it_brings_the_crds_in_the_way_that_helm_never_deletes(
    render: Render, overlays: Callable[[str], list[Document]]
) -> None:
    with_crds = by_place(render({}, "--include-crds"))
    assert added(with_crds, by_place(render())) == by_place(overlays("crds"))


def test_named_namespaces_give_the_namespaced_overlay(
    render: Render, overlays: Callable[[str], list[Document]]
) -> None:
    values = {"watchNamespace": ["default"], "priorityClass": {"create": False, "name": ""}}
    assert by_place(render(values)) == by_place(overlays("overlays/namespaced"))


def test_each_named_namespace_gets_the_rights(render: Render) -> None:
    found = render({"watchNamespace": ["team-a", "team-b"]})
    assert manifests.of_kind(found, "ClusterRole", "ClusterRoleBinding") == []
    for kind in ("Role", "RoleBinding"):
        placed = {each["metadata"]["namespace"] for each in manifests.of_kind(found, kind)}
        assert placed == {"raybus", "team-a", "team-b"}


@pytest.mark.parametrize("gate", ["RayClusterMTLS", "AllAlpha"])
def test_the_gate_of_mutual_tls_gives_its_rights(render: Render, gate: str) -> None:
    def gated(**values: Any) -> By:
        on, off = (
            by_place(render({"featureGates": [{"name": gate, "enabled": is_on}], **values}))
            for is_on in (True, False)
        )
        return {place: each for place, each in added(on, off).items() if place not in off}

    rights = by_place(manifests.read(DEPLOY / "components" / "mtls"))
    assert gated() == rights
    name = "raybus-cluster-reconciler-mtls"
    assert {*gated(watchNamespace=["a"])} == {("Role", "a", name), ("RoleBinding", "a", name)}


def test_kuberays_namespace_gives_the_migration_overlay(
    render: Render, overlays: Callable[[str], list[Document]]
) -> None:
    assert by_place(render({"kuberayNamespace": "ray-system"})) == by_place(
        overlays("overlays/migration")
    )


def test_openshift_gives_its_overlay_whose_pods_openshift_admits(
    render: Render, overlays: Callable[[str], list[Document]]
) -> None:
    rendered = render({"openshift": True})
    assert by_place(rendered) == by_place(overlays("overlays/openshift"))
    outside = {"nats": {"enabled": False, "url": "tls://bus.example.com:4222"}}
    for documents in (rendered, render({"openshift": True, **outside})):
        for name, pod in manifests.pod_specs(documents).items():
            assert openshift.violations(pod) == [], name


def test_labels_reach_the_objects_by_which_a_prometheus_selects(render: Render) -> None:
    rendered = render(
        {"monitoring": {"prometheusOperator": True, "labels": {"release": "kube-prometheus-stack"}}}
    )
    for kind in ("PodMonitor", "PrometheusRule"):
        assert manifests.named(rendered, kind, "raybus")["metadata"]["labels"] == {
            "app.kubernetes.io/part-of": "raybus",
            "release": "kube-prometheus-stack",
        }


def test_monitoring_gives_what_the_component_gives(
    render: Render, overlays: Callable[[str], list[Document]], kubectl_binary: Path, tmp_path: Path
) -> None:
    operator = by_place(overlays("monitoring/prometheus-operator"))
    rendered = render({"monitoring": {"enabled": True, "prometheusOperator": True}})
    for each in rendered:
        each["metadata"].setdefault("namespace", "raybus")
    new = added(by_place(rendered), by_place(render()))
    maps = {
        name: each
        for (kind, _, name), each in new.items()
        if kind == "ConfigMap" and name.startswith("raybus-")
    }
    assert set(maps) == {"raybus-prometheus", "raybus-dashboards"}
    assert maps["raybus-dashboards"]["metadata"]["labels"] == {"grafana_dashboard": "1"}
    texts = {name: text for each in maps.values() for name, text in each["data"].items()}
    monitoring = DEPLOY / "monitoring"
    files = {
        path.name: path
        for path in (
            *monitoring.glob("dashboards/*"),
            monitoring / "rules.yaml",
            monitoring / "scrape.yaml",
        )
    }
    assert texts == {name: path.read_text() for name, path in files.items()}
    assert {
        place: each for place, each in new.items() if place[0] in {"PodMonitor", "PrometheusRule"}
    } == operator


def test_a_nats_outside_takes_ours_away_and_is_named_to_the_services(render: Render) -> None:
    outside = {
        "nats": {
            "enabled": False,
            "url": "tls://bus.example.com:4333",
            "port": 4333,
            "streams": False,
        }
    }
    found = render(outside)
    gone = {place for place in by_place(render()) if place not in by_place(found)}
    keys = {nkeys.KEYS_PREFIX + user for user in (*key_registry.USERS, nkeys.NAMED)}
    assert {name for _, _, name in gone} == {
        "nats",
        "nats-servers",
        "nats-streams",
        "nats-subscriber",
        *keys,
    }
    reported = manifests.named(found, "ConfigMap", "raybus-config")["data"]
    read = ServiceSettings.from_environment("watcher", reported)
    assert (read.nats_url, read.nats_register_key) == ("tls://bus.example.com:4333", False)
    for name in SERVICES:
        pod = manifests.pod_specs(found)[name]
        mounted = {
            each["name"]: each["secret"]["secretName"]
            for each in pod["volumes"]
            if "secret" in each
        }
        assert mounted == {"nats-user": f"nats-user-{name}"}
        environment = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert environment["RAYBUS_NATS_SEED_FILE"] == "/etc/raybus/nats/seed"
    for name, pod in manifests.pod_specs(found).items():
        # The user of the pod is not root, which owns the files: the group reads them.
        closed = [each for each in pod["volumes"] if each.get("secret", {}).get("defaultMode")]
        assert closed, name
        assert "fsGroup" in pod["securityContext"], name
    policy = manifests.named(found, "NetworkPolicy", "nats-clients")["spec"]
    assert policy["egress"] == [{"ports": [{"protocol": "TCP", "port": 4333}]}]


def test_settings_reach_the_services_and_restart_them(render: Render) -> None:
    values = {
        "featureGates": [{"name": "RayServiceIncrementalUpgrade", "enabled": False}],
        "reconcileConcurrency": 9,
        "logLevel": "DEBUG",
        "clusterDomain": "example.internal",
        "batchScheduler": {"name": "volcano"},
    }
    found = render(values)
    reported = manifests.named(found, "ConfigMap", "raybus-config")["data"]
    read = ServiceSettings.from_environment("watcher", reported)
    assert (read.workers, read.log_level, read.cluster_domain) == (9, "DEBUG", "example.internal")
    assert reported["RAYBUS_FEATURE_GATES"] == "RayServiceIncrementalUpgrade=false"
    file = yaml.safe_load(
        manifests.named(found, "ConfigMap", "operator-config")["data"]["config.yaml"]
    )
    assert file["batchScheduler"] == "volcano"
    for name in SERVICES:
        before, after = (
            manifests.named(each, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]
            for each in (render(), found)
        )
        assert before[chart.CHECKSUM] != after[chart.CHECKSUM]


def test_images_replicas_and_places_are_as_configured(render: Render) -> None:
    digest = "sha256:" + "0" * 64
    values = {
        "image": {
            "registry": "registry.example.com/ray",
            "tag": "7",
            "digests": {"nats": digest},
            "pullPolicy": "Always",
        },
        "imagePullSecrets": [{"name": "key"}],
        "nodeSelector": {"pool": "control"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "replicas": {
            "watcher": 3,
            "clusterReconciler": 4,
            "serviceReconciler": 5,
            "trafficManager": 6,
            "jobReconciler": 7,
        },
        "nats": {"servers": 1, "maxStore": "900MB", "storage": {"size": ""}},
        "networkPolicies": {"enabled": False},
    }
    found = render(values)
    images = {each["image"] for each in manifests.containers(found).values()}
    assert images == {f"registry.example.com/ray/{name}:7" for name in SERVICES} | {
        f"registry.example.com/ray/nats@{digest}"
    }
    for pod in manifests.pod_specs(found).values():
        assert pod["imagePullSecrets"] == [{"name": "key"}]
        assert (pod["nodeSelector"], len(pod["tolerations"])) == ({"pool": "control"}, 1)
    replicas = {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in manifests.of_kind(found, "Deployment")
    }
    assert replicas == dict(zip(SERVICES, (3, 4, 5, 6, 7), strict=True))
    nats = manifests.named(found, "StatefulSet", "nats")["spec"]
    assert (nats["replicas"], "volumeClaimTemplates" in nats) == (1, False)
    assert {"name": "jetstream", "emptyDir": {"sizeLimit": "1Gi"}} in nats["template"]["spec"][
        "volumes"
    ]
    assert manifests.of_kind(found, "NetworkPolicy") == []


@cases(
    ("values", "message"),
    {
        "a field that there is not": ("replica.watcher=1", "replica"),
        "a number of servers without a majority": ("nats.servers=2", "servers"),
        "no name of a namespace": ("watchNamespace={Team_A}", "watchNamespace"),
        "an external NATS without an address": (
            "nats.enabled=false",
            "nats.url: set the address of NATS",
        ),
        "no registry for the images": ("image.registry=", "image.registry: set the registry"),
    },
)
def test_a_wrong_value_is_refused_by_name(
    values: str, message: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = helm("template", "raybus", str(CHART), "--set", REGISTRY, "--set", values)
    assert done.returncode != 0
    assert message in done.stderr
