"""The options of KubeRay as options of raybus: the services' own readers make the configuration."""

import pytest
import yaml

from common import errors
from common.feature_gates import FeatureGate
from raybus_cli.doctor.operator import InstalledOperator
from raybus_cli.migrating import switches
from support.manifests import ROOT

FILE = """
apiVersion: config.ray.io/v1alpha1
kind: Configuration
batchScheduler: yunikorn
watchNamespace: one,two
defaultContainerEnvs: [{name: A, value: b}]
"""


def an_operator(environment: dict[str, str] | None = None, **flags: str) -> InstalledOperator:
    held = {name.replace("_", "-"): value for name, value in flags.items()}
    return InstalledOperator(
        namespace="ray-system",
        name="kuberay-operator",
        image="kuberay/operator:v1.5.1",
        version="v1.5.1",
        replicas=1,
        ready=1,
        flags=held,
        environment=environment or {},
    )


def test_flags_gates_and_variables_are_translated() -> None:
    found, findings = switches.translate_settings(
        an_operator(
            {"ENABLE_LOGIN_SHELL": "true", "SOMETHING": "else"},
            feature_gates="RayServiceIncrementalUpgrade=false",
            watch_namespace="one",
            enable_batch_scheduler="true",
            use_kubernetes_proxy="true",
        ),
        None,
    )
    assert found == {
        "ENABLE_LOGIN_SHELL": "true",
        "RAYBUS_FEATURE_GATES": "RayServiceIncrementalUpgrade=false",
        "RAYBUS_WATCH_NAMESPACES": "one",
        "RAYBUS_BATCH_SCHEDULER": "volcano",
        "RAYBUS_USE_KUBERNETES_PROXY": "true",
    }
    assert findings == []
    made = switches.build_configuration(found, None)
    assert made.clusters.uses_login_shell
    assert FeatureGate.INCREMENTAL_UPGRADE not in made.services.gates
    assert made.clusters.batch_scheduler == made.jobs.batch_scheduler == "volcano"
    assert made.namespaces == ("one",)


def test_a_file_counts_and_the_flags_beside_it_do_not() -> None:
    found, _ = switches.translate_settings(
        an_operator(config="/f", batch_scheduler="volcano", watch_namespace="x"), FILE
    )
    assert found == {"RAYBUS_WATCH_NAMESPACES": "one,two"}
    made = switches.build_configuration(found, FILE)
    assert made.clusters.batch_scheduler == made.jobs.batch_scheduler == "yunikorn"
    assert made.clusters.default_container_envs == ({"name": "A", "value": "b"},)


@pytest.mark.parametrize(
    ("gates", "text"),
    [
        pytest.param("RayCronJob=true", "", id="of schedules"),
        pytest.param("Tomorrow=true", "Tomorrow=true is not known here", id="of a newer operator"),
        pytest.param("RayJobDeletionPolicy=true", "", id="of jobs alone"),
    ],
)
def test_gates_that_raybus_cannot_have(gates: str, text: str) -> None:
    found, notes = switches.translate_settings(an_operator(feature_gates=gates), None)
    assert [text in each.text for each in notes] == ([True] if text else [])
    assert "Tomorrow" not in found.get("RAYBUS_FEATURE_GATES", "")


def test_what_an_installed_raybus_decides_otherwise() -> None:
    wanted = switches.build_configuration(
        {"ENABLE_LOGIN_SHELL": "true", "RAYBUS_BATCH_SCHEDULER": "volcano"}, None
    )
    held = switches.build_configuration(
        {"RAYBUS_FEATURE_GATES": "RayServiceIncrementalUpgrade=false"}, None
    )
    assert switches.find_differences(wanted, wanted) == []
    notes = switches.find_differences(wanted, held)
    assert "uses login shell: KubeRay True, raybus False" in notes
    assert "batch scheduler: KubeRay volcano, raybus none" in notes
    assert [each for each in notes if each.startswith("gates: ")] != []


def test_a_wrong_file_is_refused_with_its_name() -> None:
    with pytest.raises(errors.InvalidSpec, match="failed to decode config file"):
        switches.build_configuration({}, "kind: Nothing")


def test_the_names_of_settings_here() -> None:
    found = switches.list_settings(
        an_operator(
            {"ENABLE_ZERO_DOWNTIME": "false", "CLUSTER_DOMAIN": "k8s.local", "MINE": "1"},
            qps="10",
            feature_gates="A=true",
            strange="x",
        )
    )
    assert {each.kuberay: each.here for each in found} == {
        "--feature-gates": "RAYBUS_FEATURE_GATES",
        "--qps": "needs nothing here",
        "--strange": "unknown here",
        "ENABLE_ZERO_DOWNTIME": "the same",
        "CLUSTER_DOMAIN": "RAYBUS_CLUSTER_DOMAIN",
        "MINE": "no variable of raybus",
    }


def test_the_variables_that_stand_for_flags_are_read_by_the_services() -> None:
    named = {
        each.partition("=")[0]
        for each in switches.FLAGS.values()
        if each != switches.NO_EQUIVALENT_NEEDED
    }
    assert named <= switches.list_variables()


def test_the_environment_of_kuberay_works_beside_the_installed_one() -> None:
    operator = an_operator({"CLUSTER_DOMAIN": "k8s.local"}, reconcile_concurrency="9")
    found, _ = switches.translate_settings(operator, None)
    assert found == {"RAYBUS_CLUSTER_DOMAIN": "k8s.local", "RAYBUS_WORKERS": "9"}
    base = yaml.safe_load((ROOT / "deploy" / "base" / "kustomization.yaml").read_text())
    (shared,) = base["configMapGenerator"]
    installed = dict(literal.split("=", 1) for literal in shared["literals"])
    for environment in (installed | found, installed | operator.environment):
        made = switches.build_configuration(environment, None)
        assert made.clusters.cluster_domain == "k8s.local"


def test_an_unknown_flag_is_a_finding() -> None:
    _, notes = switches.translate_settings(an_operator(tomorrow="true"), None)
    assert ["the flag --tomorrow is not known here" in each.text for each in notes] == [True]


def test_variables_of_kuberay_are_read_under_their_names_or_not_at_all() -> None:
    read = switches.list_variables()
    named = {switches.SAME_IN_RAYBUS: True, switches.ADMISSION: False}
    for name, here in switches.VARIABLES.items():
        assert named.get(here, here in read) is (name in read), name
