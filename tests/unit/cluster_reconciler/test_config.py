"""The operator's configuration (spec raycluster §2.5, §3)."""

import pytest

from cluster_reconciler.config import BETA, Config, Gate, parse_gates
from common.errors import InvalidSpec


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Config.from_environment({}) == Config()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        pytest.param("ENABLE_INIT_CONTAINER_INJECTION", "False", Config(injects_init_container=False), id="init off"),
        pytest.param("ENABLE_INIT_CONTAINER_INJECTION", "no", Config(), id="only false switches off"),
        pytest.param("ENABLE_PROBES_INJECTION", "false", Config(injects_probes=False), id="probes off"),
        pytest.param("ENABLE_GCS_FT_REDIS_CLEANUP", "false", Config(cleans_up_redis=False), id="cleanup off"),
        pytest.param("ENABLE_RANDOM_POD_DELETE", "TRUE", Config(deletes_random_pods=True), id="random deletes on"),
        pytest.param("ENABLE_RANDOM_POD_DELETE", "1", Config(), id="only true switches on"),
        pytest.param(
            "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "true", Config(head_service_has_cluster_ip=True), id="cluster IP"
        ),
        pytest.param("ENABLE_LOGIN_SHELL", "true", Config(uses_login_shell=True), id="login shell"),
        pytest.param(
            "ENABLE_DETERMINISTIC_HEAD_POD_NAME", "true", Config(head_pod_name_is_fixed=True), id="fixed name"
        ),
        pytest.param("USE_INGRESS_ON_OPENSHIFT", "true", Config(uses_ingress_on_openshift=True), id="ingress"),
        pytest.param("CLUSTER_DOMAIN", "k8s.local", Config(cluster_domain="k8s.local"), id="a DNS domain"),
        pytest.param("CLUSTER_DOMAIN", "", Config(), id="an empty DNS domain is none"),
        pytest.param("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "10", Config(requeue_seconds=10), id="case 25: 10 s"),
        pytest.param("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "abc", Config(), id="case 25: nonsense means 300 s"),
        pytest.param("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "-1", Config(requeue_seconds=-1), id="no requeue"),
    ],
)
def test_switches(variable: str, value: str, expected: Config) -> None:
    assert Config.from_environment({variable: value}) == expected


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param("", BETA, id="beta gates are on"),
        pytest.param("RayClusterMTLS=true", BETA | {Gate.MTLS}, id="an alpha gate is switched on"),
        pytest.param(
            " RayJobDeletionPolicy = False ,", BETA - {Gate.DELETION_POLICY}, id="a beta gate is switched off"
        ),
        pytest.param("AllAlpha=true", frozenset(Gate), id="all alpha gates"),
        pytest.param("AllBeta=false", BETA - BETA, id="no beta gates"),
        pytest.param("RayClusterMTLS=true,AllAlpha=false", BETA | {Gate.MTLS}, id="a named gate wins over its stage"),
        pytest.param("AsyncJobInfoQuery=true", BETA, id="a gate of older operators is passed over"),
    ],
)
def test_gates(text: str, gates: frozenset[Gate]) -> None:
    assert parse_gates(text) == gates


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("Nope=true", "--feature-gates: there is no gate 'Nope'; known gates: GCSFault", id="unknown gate"),
        pytest.param("RayClusterMTLS", "'RayClusterMTLS' is not of the form Name=true or Name=false", id="no value"),
        pytest.param("RayClusterMTLS=yes", "'RayClusterMTLS=yes' is not of the form", id="no boolean"),
    ],
)
def test_gates_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        parse_gates(text)
