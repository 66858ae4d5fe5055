"""The operator's configuration file and the choice of a batch scheduler (spec raycluster §17, §18.1; case 118)."""

from pathlib import Path

import pytest

from cluster_reconciler import settings
from cluster_reconciler.config import Config
from common.errors import InvalidSpec
from common.feature_gates import BETA, FeatureGate
from common.settings import Settings
from support.tables import cases

HEADER = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n"
SETTINGS = Settings(service="cluster-reconciler")
FULL = """
headSidecarContainers:
- {name: fluentbit, image: "fluent/fluent-bit:3"}
workerSidecarContainers:
- {name: w, image: i}
defaultContainerEnvs:
- {name: A, value: "1"}
defaultPodAnnotations: {a: b}
defaultPodLabels: {team: x}
batchScheduler: yunikorn
metricsAddr: ":8080"
aFieldOfTomorrow: 1
"""


def configured(tmp_path: Path, text: str, settings_: Settings = SETTINGS) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return settings.configure(settings_, {"RAYBUS_OPERATOR_CONFIG": str(path)})


def test_a_file_made_for_kuberay_works(tmp_path: Path) -> None:
    assert configured(tmp_path, HEADER + FULL) == Config(
        head_sidecars=({"name": "fluentbit", "image": "fluent/fluent-bit:3"},),
        worker_sidecars=({"name": "w", "image": "i"},),
        default_container_envs=({"name": "A", "value": "1"},),
        default_pod_annotations={"a": "b"},
        default_pod_labels={"team": "x"},
        batch_scheduler="yunikorn",
    )


def test_a_file_with_nothing_in_it_changes_nothing(tmp_path: Path) -> None:
    assert configured(tmp_path, HEADER) == Config()


@cases(
    ("text", "fault"),
    {
        "no version": ("kind: Configuration\n", "missing required field `apiVersion`"),
        "another version": (
            HEADER.replace("v1alpha1", "v1"),
            "Invalid enum value 'config.ray.io/v1'",
        ),
        "a Pod": (HEADER.replace("Configuration", "Pod"), "Invalid enum value 'Pod' - at `$.kind`"),
        "no list": (
            HEADER + "headSidecarContainers: {}\n",
            "Expected `array`, got `object` - at `$.headSidecarC",
        ),
        "a label of a number": (
            HEADER + "defaultPodLabels: {a: 1}\n",
            "at `$.defaultPodLabels[...]`",
        ),
        "a field without effect, of a wrong type": (HEADER + "qps: many\n", "at `$.qps`"),
        "no name": (
            HEADER + "defaultContainerEnvs: [{value: x}]\n",
            "defaultContainerEnvs[0].name",
        ),
        "no amount": (
            HEADER + "headSidecarContainers: [{name: s, resources: {limits: {cpu: many}}}]\n",
            "headSidecarContainers[0].resources.limits[cpu]",
        ),
        "no YAML": ("{", "failed to decode config file"),
        "case 118: in a file": (
            HEADER + "batchScheduler: foo\n",
            "scheduler is not supported, name=foo",
        ),
        "both": (
            HEADER + "batchScheduler: volcano\nenableBatchScheduler: true\n",
            "Please use batch-scheduler only",
        ),
    },
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        configured(tmp_path, text)
    assert fault in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        InvalidSpec,
        match=r"RAYBUS_OPERATOR_CONFIG='/no/such/file'.*name a readable file or unset it",
    ):
        settings.configure(SETTINGS, {"RAYBUS_OPERATOR_CONFIG": "/no/such/file"})


def test_what_has_no_effect_is_named_with_what_to_set() -> None:
    file = settings.parse(HEADER + "watchNamespace: a\nqps: 5\n", path="f")
    assert settings.find_ineffective_fields(file) == (
        "watchNamespace (set RAYBUS_WATCH_NAMESPACES)",
        "qps",
    )


@pytest.mark.parametrize("name", ["foo", "default", "Volcano"])
def test_case_118_an_unknown_scheduler_ends_the_start(name: str) -> None:
    with pytest.raises(InvalidSpec, match=f"scheduler is not supported, name={name}"):
        settings.configure(SETTINGS, {"RAYBUS_BATCH_SCHEDULER": name})


def test_the_old_switch_means_volcano(tmp_path: Path) -> None:
    config = configured(tmp_path, HEADER + "enableBatchScheduler: true\n")
    assert config.batch_scheduler == "volcano"


def test_gate_and_scheduler_exclude_each_other() -> None:
    gated = Settings(
        service="cluster-reconciler", feature_gates=BETA | {FeatureGate.KUBERNETES_WAS}
    )
    with pytest.raises(InvalidSpec, match="cannot be combined with --batch-scheduler"):
        settings.configure(gated, {"RAYBUS_BATCH_SCHEDULER": "volcano"})
    assert settings.configure(gated, {}).batch_scheduler == ""


def test_the_variable_counts_where_the_file_names_no_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text, found in ((HEADER, "volcano"), (HEADER + "batchScheduler: yunikorn\n", "yunikorn")):
        path.write_text(text)
        environ = {"RAYBUS_OPERATOR_CONFIG": str(path), "RAYBUS_BATCH_SCHEDULER": "volcano"}
        assert settings.configure(SETTINGS, environ).batch_scheduler == found


def test_the_file_that_is_deployed_changes_nothing() -> None:
    path = Path(__file__).parents[3] / "deploy/base/cluster-reconciler/operator_config.yaml"
    assert settings.configure(SETTINGS, {"RAYBUS_OPERATOR_CONFIG": str(path)}) == Config()
