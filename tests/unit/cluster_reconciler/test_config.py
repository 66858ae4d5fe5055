"""The operator's configuration (spec raycluster §2.5, §3)."""

from cluster_reconciler.config import Config
from support.tables import cases


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Config.from_environment({}) == Config()


@cases(
    ("variable", "value", "expected"),
    {
        "init off": (
            "ENABLE_INIT_CONTAINER_INJECTION",
            "False",
            Config(injects_init_container=False),
        ),
        "only false switches off": ("ENABLE_INIT_CONTAINER_INJECTION", "no", Config()),
        "probes off": ("ENABLE_PROBES_INJECTION", "false", Config(injects_probes=False)),
        "cleanup off": ("ENABLE_GCS_FT_REDIS_CLEANUP", "false", Config(cleans_up_redis=False)),
        "random deletes on": ("ENABLE_RANDOM_POD_DELETE", "TRUE", Config(deletes_random_pods=True)),
        "only true switches on": ("ENABLE_RANDOM_POD_DELETE", "1", Config()),
        "cluster IP": (
            "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE",
            "true",
            Config(head_service_has_cluster_ip=True),
        ),
        "login shell": ("ENABLE_LOGIN_SHELL", "true", Config(uses_login_shell=True)),
        "fixed name": (
            "ENABLE_DETERMINISTIC_HEAD_POD_NAME",
            "true",
            Config(head_pod_name_is_fixed=True),
        ),
        "ingress": ("USE_INGRESS_ON_OPENSHIFT", "true", Config(uses_ingress_on_openshift=True)),
        "a DNS domain": ("CLUSTER_DOMAIN", "k8s.local", Config(cluster_domain="k8s.local")),
        "an empty DNS domain is none": ("CLUSTER_DOMAIN", "", Config()),
        "case 25: 10 s": (
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
            "10",
            Config(requeue_seconds=10),
        ),
        "case 25: nonsense means 300 s": (
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
            "abc",
            Config(),
        ),
        "no requeue": ("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", "-1", Config(requeue_seconds=-1)),
    },
)
def test_switches(variable: str, value: str, expected: Config) -> None:
    assert Config.from_environment({variable: value}) == expected
