"""The operator's configuration (spec raycluster §2.5, §3)."""

import pytest

from cluster_reconciler.config import Config


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Config.from_environment({}) == Config()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        pytest.param(
            "ENABLE_INIT_CONTAINER_INJECTION",
            "False",
            Config(injects_init_container=False),
            id="init off",
        ),
        pytest.param(
            "ENABLE_INIT_CONTAINER_INJECTION", "no", Config(), id="only false switches off"
        ),
        pytest.param(
            "ENABLE_PROBES_INJECTION", "false", Config(injects_probes=False), id="probes off"
        ),
        pytest.param(
            "ENABLE_GCS_FT_REDIS_CLEANUP", "false", Config(cleans_up_redis=False), id="cleanup off"
        ),
        pytest.param(
            "ENABLE_RANDOM_POD_DELETE",
            "TRUE",
            Config(deletes_random_pods=True),
            id="random deletes on",
        ),
        pytest.param("ENABLE_RANDOM_POD_DELETE", "1", Config(), id="only true switches on"),
        pytest.param(
            "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE",
            "true",
            Config(head_service_has_cluster_ip=True),
            id="cluster IP",
        ),
        pytest.param("ENABLE_LOGIN_SHELL", "true", Config(uses_login_shell=True), id="login shell"),
        pytest.param(
            "ENABLE_DETERMINISTIC_HEAD_POD_NAME",
            "true",
            Config(head_pod_name_is_fixed=True),
            id="fixed name",
        ),
        pytest.param(
            "USE_INGRESS_ON_OPENSHIFT", "true", Config(uses_ingress_on_openshift=True), id="ingress"
        ),
        pytest.param(
            "CLUSTER_DOMAIN", "k8s.local", Config(cluster_domain="k8s.local"), id="a DNS domain"
        ),
        pytest.param("CLUSTER_DOMAIN", "", Config(), id="an empty DNS domain is none"),
        pytest.param(
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
            "10",
            Config(requeue_seconds=10),
            id="case 25: 10 s",
        ),
        pytest.param(
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
            "abc",
            Config(),
            id="case 25: nonsense means 300 s",
        ),
        pytest.param(
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
            "-1",
            Config(requeue_seconds=-1),
            id="no requeue",
        ),
    ],
)
def test_switches(variable: str, value: str, expected: Config) -> None:
    assert Config.from_environment({variable: value}) == expected
