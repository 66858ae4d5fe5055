"""What an environment means, and the one line that a wrong one gets."""

from pathlib import Path

import pytest

from common import errors
from common.feature_gates import Gate
from common.settings import Settings


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
        namespace="raybus",
        lease_namespace="ray-system",
        watch_namespaces=("team-a", "team-b"),
        log_level="DEBUG",
        feature_gates=frozenset({Gate.INCREMENTAL_UPGRADE, Gate.MTLS}),
        workers=8,
        cluster_domain="example.internal",
        use_kubernetes_proxy=True,
    )


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        pytest.param(
            "RAYBUS_NATS_URL",
            "localhost",
            "expected nats://HOST:PORT or tls://HOST:PORT",
            id="no scheme",
        ),
        pytest.param(
            "RAYBUS_NATS_SEED_FILE", "/no/such", "name a readable file", id="no such file"
        ),
        pytest.param(
            "RAYBUS_HTTP_PORT", "99999", "a whole number from 0 to 65535", id="port out of range"
        ),
        pytest.param("RAYBUS_WORKERS", "0", "a whole number from 1 to 1000", id="no workers"),
        pytest.param("RAYBUS_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR", id="unknown level"),
        pytest.param(
            "RAYBUS_FEATURE_GATES",
            "Gate",
            "expected Name=true or Name=false",
            id="gate without a value",
        ),
        pytest.param(
            "RAYBUS_USE_KUBERNETES_PROXY", "perhaps", "expected true or false", id="no switch"
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        Settings.from_environment("watcher", {variable: value})

    assert variable in str(caught.value)
    assert value in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "domain"),
    [
        pytest.param({}, "cluster.local", id="neither"),
        pytest.param({"CLUSTER_DOMAIN": "k8s.local"}, "k8s.local", id="KubeRay's"),
        pytest.param(
            {"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": ""},
            "k8s.local",
            id="one empty",
        ),
        pytest.param(
            {"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": "k8s.local"},
            "k8s.local",
            id="both alike",
        ),
    ],
)
def test_the_domain_has_kuberays_name_too(environment: dict[str, str], domain: str) -> None:
    assert Settings.from_environment("watcher", environment).cluster_domain == domain


def test_two_domains_are_refused() -> None:
    given = {"CLUSTER_DOMAIN": "k8s.local", "RAYBUS_CLUSTER_DOMAIN": "cluster.local"}
    with pytest.raises(errors.InvalidSpec, match=r"CLUSTER_DOMAIN='k8s\.local' differ: set one"):
        Settings.from_environment("watcher", given)
