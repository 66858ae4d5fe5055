"""The CRDs state what users of KubeRay rely on, and stay small (spec raycluster §1; spec rayservice §2; spec rayjob §2, §20)."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from common.api import go_types
from crd_generator import __main__ as command
from crd_generator import definitions, upgrade_policy
from crd_generator.schema import Schema
from support.crds import shapes
from support.tables import cases

FOLDER = Path(__file__).parents[3] / "deploy" / "crds"
GOLDEN = Path(__file__).parents[2] / "golden"
ALL = definitions.all_definitions()
VERSIONS = [
    (file, number) for file, each in ALL.items() for number in range(len(each["spec"]["versions"]))
]
WITHOUT_TEMPLATES = {
    *(".spec.rayClusterSpec.headGroupSpec", ".spec.rayClusterSpec.workerGroupSpecs[]"),
    *(".spec.submitterPodTemplate", ".spec.submitterPodTemplate.metadata"),
    ".spec.submitterPodTemplate.spec",
}
"""Places where the old version of the CRD of RayJob does not describe a pod template or a
Service."""


def _spec(file: str, version: int = 0) -> Schema:
    properties = ALL[file]["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]
    return properties["spec"]


def _at(schema: Schema, path: str) -> Any:
    for step in path.split("."):
        inner = {"[]": "items", "{}": "additionalProperties"}.get(step)
        schema = schema[inner] if inner else schema["properties"][step]
    return schema


def test_the_files_match_the_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--check", "--out", str(FOLDER)]) == 0, capsys.readouterr().err


def test_a_stale_file_fails_the_check_and_names_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--out", str(tmp_path)]) == 0
    (tmp_path / "ray.io_rayclusters.yaml").write_text("old")
    (tmp_path / "ray.io_rayservices.yaml").unlink()
    assert command.main(["--check", "--out", str(tmp_path)]) == 1
    faults = capsys.readouterr().err
    assert "ray.io_rayclusters.yaml is stale; run: python -m crd_generator" in faults
    assert "ray.io_rayservices.yaml is missing; run: python -m crd_generator" in faults


@pytest.mark.parametrize("file", list(ALL))
def test_a_definition_fits_the_annotation_of_client_side_apply(file: str) -> None:
    assert command.compact_size(ALL[file]) < command.ANNOTATION_LIMIT


@pytest.mark.parametrize("file", list(ALL))
def test_every_field_and_depth_is_kuberays_in_both_versions(file: str) -> None:
    kuberays = msgspec.json.decode((GOLDEN / "kuberay" / "crd_shapes.json").read_bytes())
    ours = shapes.of(ALL[file])
    assert ours.keys() == kuberays[file].keys()
    for version, wanted in kuberays[file].items():
        differing = {
            path
            for path in wanted.keys() | ours[version].keys()
            if wanted.get(path) != ours[version].get(path)
        }
        is_shortened = (file, version) == ("ray.io_rayjobs.yaml", "v1alpha1")
        assert differing == (WITHOUT_TEMPLATES if is_shortened else set())


@pytest.mark.parametrize(("file", "version"), VERSIONS)
def test_no_field_takes_what_no_schema_describes(file: str, version: int) -> None:
    schema = ALL[file]["spec"]["versions"][version]["schema"]["openAPIV3Schema"]
    is_shortened = (file, version) == ("ray.io_rayjobs.yaml", 1)
    templates = [
        ".spec.rayClusterSpec.headGroupSpec.headService",
        ".spec.rayClusterSpec.headGroupSpec.template",
        ".spec.rayClusterSpec.workerGroupSpecs[].template",
        ".spec.submitterPodTemplate",
    ]
    found = [path for path, kind in shapes.fields(schema) if kind == "open"]
    assert sorted(found) == (templates if is_shortened else [])


def test_all_definitions_are_installed() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {*listed} == {*ALL, upgrade_policy.FILE}


@pytest.mark.parametrize("file", list(ALL))
def test_the_yaml_reads_back_as_the_definition(file: str) -> None:
    assert yaml.load((FOLDER / file).read_text(), Loader=yaml.CSafeLoader) == ALL[file]


@cases(
    ("path", "schema"),
    {
        "replicas": ("replicas", {"type": "integer", "format": "int32", "default": 0}),
        "no upper bound": (
            "maxReplicas",
            {"type": "integer", "format": "int32", "default": 2147483647},
        ),
        "one host": ("numOfHosts", {"type": "integer", "format": "int32", "default": 1}),
        "a list-map key": (
            "template.spec.containers.[].ports.[].protocol",
            {"type": "string", "default": "TCP"},
        ),
    },
)
def test_a_worker_group_has_the_defaults_of_the_specification(path: str, schema: Schema) -> None:
    group = _at(_spec("ray.io_rayclusters.yaml"), "workerGroupSpecs.[]")
    assert group["required"] == ["groupName", "maxReplicas", "minReplicas", "template"]
    assert _at(group, path) == schema


@pytest.mark.parametrize("file", list(ALL))
def test_managed_by_is_bounded_and_immutable(file: str) -> None:
    is_cron = file == "ray.io_raycronjobs.yaml"
    rules = _at(_spec(file), "jobTemplate.managedBy" if is_cron else "managedBy")[
        "x-kubernetes-validations"
    ]
    assert [rule["message"] for rule in rules] == [
        "the managedBy field is immutable",
        "the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'",
    ]


NO_DECISION_READS: Final = {
    *("AutoscalerOptions.image", "AutoscalerOptions.imagePullPolicy"),
    *("AutoscalerOptions.command", "AutoscalerOptions.args"),
    *("CollectorOptions.image", "CollectorOptions.imagePullPolicy"),
    *("RedisCredential.value", "RayClusterSpec.headServiceAnnotations"),
    *("HeadInfo.podIP", "HeadInfo.serviceIP", "RayClusterStatus.state", "RayClusterStatus.reason"),
    *("RayClusterStatus.endpoints", "RayServiceStatus.serviceStatus"),
    *("AppStatus.status", "AppStatus.message"),
    *("ServeDeploymentStatus.status", "ServeDeploymentStatus.message"),
    *("RayJobStatus.dashboardURL", "RayJobStatus.reason", "RayJobStatus.message"),
}
"""Fields that are copied to a pod or a Service, or that only raybus writes and never reads."""


def test_every_text_that_a_decision_reads_has_a_limit() -> None:
    unbounded = {
        f"{name.removeprefix(go_types.PREFIX)}.{field.name}"
        for name, kind in go_types.known().items()
        if name.startswith(go_types.PREFIX)
        for field in kind.fields
        if field.type.endswith("string") and field.rules.keys().isdisjoint({"MaxLength", "Enum"})
        if not field.cel
    }
    assert unbounded == NO_DECISION_READS


@pytest.mark.parametrize(
    ("file", "path", "most"),
    [
        ("ray.io_rayclusters.yaml", "rayVersion", 128),
        ("ray.io_rayservices.yaml", "rayClusterConfig.rayVersion", 128),
        ("ray.io_rayservices.yaml", "serveConfigV2", 2**20),
        ("ray.io_rayclusters.yaml", "workerGroupSpecs.[].groupName", 253),
        ("ray.io_rayclusters.yaml", "workerGroupSpecs.[].scaleStrategy.workersToDelete.[]", 253),
        ("ray.io_rayclusters.yaml", "headGroupSpec.rayStartParams.{}", 32_768),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_limit_stands_in_the_schema_of_both_versions(
    file: str, path: str, most: int, version: int
) -> None:
    assert _at(_spec(file, version), path)["maxLength"] == most


def test_the_old_version_lacks_what_came_later_and_warns() -> None:
    version = ALL["ray.io_rayclusters.yaml"]["spec"]["versions"][1]
    assert (version["name"], version["served"], version["storage"], version["deprecated"]) == (
        "v1alpha1",
        True,
        False,
        True,
    )
    assert "managedBy" not in _spec("ray.io_rayclusters.yaml", 1)["properties"]
    assert _at(_spec("ray.io_rayclusters.yaml", 1), "headGroupSpec")["required"] == [
        "rayStartParams",
        "template",
    ]
    assert "required" not in _spec("ray.io_rayservices.yaml", 1)


def test_the_columns_of_kubectl_get_come_in_kuberays_order() -> None:
    columns = ALL["ray.io_rayclusters.yaml"]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        *("desired workers", "available workers", "cpus", "memory", "gpus", "status", "age")
    ]


@pytest.mark.acceptance("rayjob", 140)
@pytest.mark.parametrize(
    ("file", "names"),
    [
        (
            "ray.io_rayjobs.yaml",
            "job status|deployment status|ray cluster name|start time|end time|age",
        ),
        ("ray.io_raycronjobs.yaml", "schedule|timezone|last schedule|age|suspend"),
    ],
)
def test_jobs_have_kuberays_columns(file: str, names: str) -> None:
    (newest, *_) = ALL[file]["spec"]["versions"]
    columns = newest["additionalPrinterColumns"]
    assert "|".join(column["name"] for column in columns) == names
    assert [column for column in columns if column.get("priority")] == []


def test_a_cron_job_has_one_version_and_two_required_fields() -> None:
    spec = ALL["ray.io_raycronjobs.yaml"]["spec"]
    assert [version["name"] for version in spec["versions"]] == ["v1"]
    assert _spec("ray.io_raycronjobs.yaml")["required"] == ["jobTemplate", "schedule"]
    assert _at(_spec("ray.io_raycronjobs.yaml"), "timeZone")["minLength"] == 1


def test_a_deletion_strategy_has_kuberays_rules() -> None:
    strategy = _at(_spec("ray.io_rayjobs.yaml"), "deletionStrategy")
    assert [rule["message"] for rule in strategy["x-kubernetes-validations"]] == [
        "legacy policies (onSuccess/onFailure) and deletionRules cannot be used together within the same deletionStrategy",
        "deletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be empty)",
    ]
    rules = _at(strategy, "deletionRules")
    assert (rules["minItems"], rules["x-kubernetes-list-type"]) == (1, "atomic")
    assert rules["items"]["required"] == ["condition", "policy"]
    condition = _at(rules, "[].condition")
    assert [rule["message"] for rule in condition["x-kubernetes-validations"]] == [
        "JobStatus and JobDeploymentStatus cannot be used together within the same deletion condition.",
        "the deletion condition requires either the JobStatus or the JobDeploymentStatus field.",
    ]
    assert _at(condition, "ttlSeconds") == {
        "type": "integer",
        "format": "int32",
        "default": 0,
        "minimum": 0,
    }


def test_the_old_job_requires_an_entrypoint_and_lacks_the_submission_mode() -> None:
    old = _spec("ray.io_rayjobs.yaml", 1)
    assert old["required"] == ["entrypoint"]
    assert "submissionMode" not in old["properties"]
    assert "required" not in _spec("ray.io_rayjobs.yaml")
    assert _at(_spec("ray.io_rayjobs.yaml"), "submissionMode")["default"] == "K8sJobMode"
