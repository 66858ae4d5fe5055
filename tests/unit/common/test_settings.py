"""The meaning of an environment, and the one line that reports a wrong one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common import errors
from common.feature_gates import FeatureGate
from common.settings import Settings, identity_of
from support.tables import cases


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment("watcher", {}) == Settings(service="watcher")


def test_every_variable_is_read(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_text("SU…")

    settings = Settings.from_environment(
        "watcher",
        {
            "RAYBUS_NATS_URL": "tls://nats.raybus:4222",
            "RAYBUS_NATS_SEED_FILE": str(seed),
            "RAYBUS_NATS_CA_FILE": str(seed),
            "RAYBUS_KUBECONFIG": str(seed),
            "RAYBUS_HTTP_PORT": "9000",
            "RAYBUS_HTTP_PORT_FILE": str(tmp_path / "port"),
            "RAYBUS_NAMESPACE": "raybus",
            "RAYBUS_LEASE_NAMESPACE": "ray-system",
            "RAYBUS_WATCH_NAMESPACES": "team-a, team-b,team-a",
            "RAYBUS_LOG_LEVEL": "debug",
            "RAYBUS_FEATURE_GATES": "AllBeta=False,RayServiceIncrementalUpgrade=true,RayClusterMTLS=true",
            "RAYBUS_WORKERS": "8",
            "RAYBUS_CLUSTER_DOMAIN": "example.internal",
            "RAYBUS_USE_KUBERNETES_PROXY": "true",
        },
    )

    assert settings == Settings(
        service="watcher",
        nats_url="tls://nats.raybus:4222",
        nats_seed_file=seed,
        nats_ca_file=seed,
        kubeconfig=seed,
        http_port=9000,
        http_port_file=tmp_path / "port",
        namespace="raybus",
        lease_namespace="ray-system",
        watch_namespaces=("team-a", "team-b"),
        log_level="DEBUG",
        feature_gates=frozenset({FeatureGate.INCREMENTAL_UPGRADE, FeatureGate.MTLS}),
        workers=8,
        cluster_domain="example.internal",
        use_kubernetes_proxy=True,
    )


@cases(
    ("variable", "value", "remedy"),
    {
        "no scheme": (
            "RAYBUS_NATS_URL",
            "localhost",
            "expected nats://HOST:PORT or tls://HOST:PORT",
        ),
        "no such file": ("RAYBUS_NATS_SEED_FILE", "/no/such", "name a readable file"),
        "port out of range": ("RAYBUS_HTTP_PORT", "99999", "a whole number from 0 to 65535"),
        "no workers": ("RAYBUS_WORKERS", "0", "a whole number from 1 to 1000"),
        "unknown level": ("RAYBUS_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR"),
        "gate without a value": (
            "RAYBUS_FEATURE_GATES",
            "Gate",
            "expected Name=true or Name=false",
        ),
        "no switch": ("RAYBUS_USE_KUBERNETES_PROXY", "perhaps", "expected true or false"),
    },
)
def test_a_wrong_value_is_named_with_its_remedy(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        Settings.from_environment("watcher", {variable: value})

    assert variable in str(caught.value)
    assert value in str(caught.value)
    assert remedy in str(caught.value)


@cases(
    ("environment", "domain"),
    {
        "neither": ({}, "cluster.local"),
        "KubeRay's": ({"CLUSTER_DOMAIN": "k8s.local"}, "k8s.local"),
        "one empty": ({"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": ""}, "k8s.local"),
        "both alike": (
            {"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": "k8s.local"},
            "k8s.local",
        ),
    },
)
def test_the_domain_has_kuberays_name_too(environment: dict[str, str], domain: str) -> None:
    assert Settings.from_environment("watcher", environment).cluster_domain == domain


def test_two_domains_are_refused() -> None:
    given = {"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": "cluster.local"}
    with pytest.raises(errors.InvalidSpec, match=r"CLUSTER_DOMAIN='k8s\.local' differ: set one"):
        Settings.from_environment("watcher", given)


def test_a_pod_is_the_same_replica_after_a_restart() -> None:
    assert identity_of(Settings(service="watcher")) == socket.gethostname()


def test_containers_in_one_network_are_different_replicas() -> None:
    """Both have the host name of the machine, and the process id 1."""
    program = (
        "import os, pathlib; os.getpid = lambda: 1\n"
        "from common.settings import Settings, identity_of\n"
        "settings = Settings(service='watcher', kubeconfig=pathlib.Path('/kubeconfig'))\n"
        "assert identity_of(settings) == identity_of(settings)\n"
        "print(identity_of(settings))"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    )
    assert first != second
    assert first.startswith(f"{socket.gethostname()}-")
