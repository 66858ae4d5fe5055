"""Every rule that a RayService may break, with KubeRay's messages and order; spec rayservice §3.2-§3.4, acceptance 3-12."""

from typing import Any, Final

import msgspec
import pytest

from common.api.opaque import Json
from common.api.ray_service import RayService
from common.errors import Problem
from common.feature_gates import BETA, FeatureGate, Gates
from service_reconciler import validation
from service_reconciler.reasons import EventReason
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service
from support.tables import cases

TIMEOUT: Final = "ray.io/initializing-timeout"
HEAD: Final[Json] = a_cluster_config()["headGroupSpec"]
STEPS: Final = {
    "maxSurgePercent": 20,
    "stepSizePercent": 5,
    "intervalSeconds": 10,
    "gatewayClassName": "eg",
}
LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def found(gates: Gates = BETA, **fields: Any) -> Problem[EventReason] | None:
    """Return the problems of a RayService; keywords are those of the builder."""
    service = msgspec.json.decode(msgspec.json.encode(a_ray_service(**fields)), type=RayService)
    return validation.violation(service, gates)


def a_head(*, env: dict[str, str] | None = None, params: Json | None = None, **fields: Any) -> Json:
    """Return a head group."""
    container = {
        "name": "ray-head",
        "image": "rayproject/ray:2.52.0",
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
    }
    return {
        "rayStartParams": params or {},
        "template": {"spec": {"containers": [container]}},
        **fields,
    }


def with_head(
    *, env: dict[str, str] | None = None, params: Json | None = None, **fields: Any
) -> Json:
    return a_cluster_config(headGroupSpec=a_head(env=env, params=params, **fields))


def in_steps(*, autoscaling: bool = True, without: str = "", **options: Any) -> Json:
    """Return the fields of a RayService that upgrades in steps."""
    given = {key: value for key, value in {**STEPS, **options}.items() if key != without}
    return {
        "config": a_cluster_config(enableInTreeAutoscaling=autoscaling),
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": given,
        },
    }


@pytest.mark.acceptance("rayservice", 3)
@pytest.mark.parametrize("name", ["a" * 47, "a", "a-1", "abc"])
def test_names_that_fit(name: str) -> None:
    assert found(name=name) is None


@pytest.mark.acceptance("rayservice", 3)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(
            "a" * 48, "RayService name should be no more than 47 characters", id="M1: one too many"
        ),
        pytest.param(
            "1" * 48,
            "RayService name should be no more than 47 characters",
            id="M1: the length is reported before M2",
        ),
        *(
            pytest.param(
                name,
                f"RayService name should be a valid DNS1035 label: [{LABEL_RULE}]",
                id=f"M2: {name}",
            )
            for name in ("1abc", "a.b", "abc-", "Abc", "a_b", "-a")
        ),
    ],
)
def test_names_that_do_not_fit(name: str, text: str) -> None:
    expected = Problem(EventReason.INVALID_METADATA, f"The RayService metadata is invalid: {text}")
    assert found(name=name, upgradeStrategy={"type": "Foo"}) == expected


NOT_POSITIVE = "must be a positive duration"
NOT_POSITIVE_NUMBER = "must be a positive integer (seconds)"


@pytest.mark.acceptance("rayservice", 5)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (value, f"annotation {TIMEOUT} {NOT_POSITIVE}, got: {value}")
            for value in ("0", "0s", "-5m", "-1h30m", "-0")
        ),
        *(
            (value, f"annotation {TIMEOUT} {NOT_POSITIVE_NUMBER}, got: {value}")
            for value in ("-100", "00", "-1")
        ),
        *(
            (
                value,
                f"annotation {TIMEOUT} has invalid format: {value}. "
                "Expected Go duration format (e.g., '5m', '1h') or positive integer seconds",
            )
            for value in (
                "5x",
                "5 m",
                "ten",
                "1.5",
                "m",
                "5m ",
                "1d",
                "٣",
                "٣s",
                "1_0",
                " 7",
                "9999999h",
                "9" * 30,
            )
        ),
    ],
)
def test_time_limits_that_cannot_be_read(value: str, text: str) -> None:
    expected = Problem(
        EventReason.INVALID_METADATA,
        f"The RayService metadata is invalid: RayService annotations is invalid: {text}",
    )
    assert found(annotations={TIMEOUT: value}) == expected


@pytest.mark.acceptance("rayservice", 5)
@pytest.mark.parametrize("value", ["", "5m", "1h30m", "300", "+5s", ".5s", "1µs", "+7"])
def test_time_limits_that_can_be_read(value: str) -> None:
    assert found(annotations={TIMEOUT: value}) is None


BROKEN_GROUP = a_group(minReplicas=3, maxReplicas=2)
NAMED = a_head(headService={"metadata": {"name": "mine"}})

OWN_RULES = [
    pytest.param(
        {"config": a_cluster_config(BROKEN_GROUP, headGroupSpec=NAMED)},
        "worker group small has minReplicas 3 greater than maxReplicas 2",
        id="S2: the cluster's rules come next",
    ),
    pytest.param(
        {"config": a_cluster_config(headGroupSpec=NAMED), "upgradeStrategy": {"type": "Foo"}},
        "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
        id="S3, case 11: a name for the head Service",
    ),
    pytest.param(
        {"upgradeStrategy": {"type": "Foo"}, "rayClusterDeletionDelaySeconds": -1},
        "Spec.UpgradeStrategy.Type value Foo is invalid, "
        "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
        id="S4, case 10: no such strategy",
    ),
    pytest.param(
        {"upgradeStrategy": {"type": ""}},
        "Spec.UpgradeStrategy.Type value  is invalid, "
        "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
        id="S4: an empty strategy",
    ),
    pytest.param(
        {**in_steps(autoscaling=False), "rayClusterDeletionDelaySeconds": -1},
        "Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got -1",
        id="S5: a delay before the start",
    ),
    pytest.param(
        in_steps(autoscaling=False, stepSizePercent=50),
        "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade",
        id="S6a, case 6: no autoscaler",
    ),
    pytest.param(
        {
            "config": a_cluster_config(enableInTreeAutoscaling=True),
            "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"},
        },
        "ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade",
        id="S6b: no options",
    ),
    *(
        pytest.param(
            in_steps(maxSurgePercent=surge, intervalSeconds=0),
            "maxSurgePercent must be between 0 and 100",
            id=f"S6c, case 9: a surge of {surge}",
        )
        for surge in (101, -1)
    ),
    *(
        pytest.param(
            in_steps(stepSizePercent=step, intervalSeconds=0),
            "stepSizePercent must be between 0 and 100",
            id=f"S6d: a step of {step}",
        )
        for step in (101, -1)
    ),
    pytest.param(
        in_steps(without="stepSizePercent"),
        "stepSizePercent must be between 0 and 100",
        id="S6d: no step",
    ),
    pytest.param(
        in_steps(stepSizePercent=50, intervalSeconds=0),
        "stepSizePercent must be less than or equal to maxSurgePercent",
        id="S6e, case 7: the step is greater than the surge",
    ),
    *(
        pytest.param(
            in_steps(intervalSeconds=interval, gatewayClassName=""),
            "intervalSeconds must be greater than 0",
            id=f"S6f, case 8: an interval of {interval}",
        )
        for interval in (0, -5)
    ),
    pytest.param(
        in_steps(without="intervalSeconds"),
        "intervalSeconds must be greater than 0",
        id="S6f: no interval",
    ),
    *(
        pytest.param(
            fields,
            "gatewayClassName is required for NewClusterWithIncrementalUpgrade",
            id=f"S6g: {what} Gateway class",
        )
        for what, fields in (
            ("an empty", in_steps(gatewayClassName="")),
            ("no", in_steps(without="gatewayClassName")),
        )
    ),
]


@pytest.mark.acceptance("rayservice", 6, 7, 8, 9, 10, 11)
@pytest.mark.parametrize(("fields", "text"), OWN_RULES)
def test_the_rules_of_services(fields: Json, text: str) -> None:
    expected = Problem(EventReason.INVALID_SPEC, f"The RayService spec is invalid: {text}")
    assert found(**fields) == expected


@pytest.mark.acceptance("rayservice", 9)
@cases(
    "fields",
    {
        "no surge is all of it": in_steps(without="maxSurgePercent"),
        "so the step may be all too": in_steps(without="maxSurgePercent", stepSizePercent=100),
        "a surge of 0, which gets a Warning": in_steps(maxSurgePercent=0, stepSizePercent=0),
        "a strategy without a type": {"upgradeStrategy": {}},
        "None": {"upgradeStrategy": {"type": "None"}},
        "no delay": {"rayClusterDeletionDelaySeconds": 0},
        "a Serve config that is no YAML": {"serve": "applications: ["},
        "no Serve config": {"serve": ""},
    },
)
def test_what_is_accepted(fields: Json) -> None:
    assert found(**fields) is None


def test_without_the_gate_the_options_of_steps_are_not_read() -> None:
    assert found(gates=frozenset(), **in_steps(autoscaling=False, stepSizePercent=50)) is None


RESOURCES = "resource fields should not be set in both rayStartParams and Resources"
FT = "when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions"
REDIS = {"redisAddress": "redis:6379"}
V2 = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}

CLUSTER_RULES: list[tuple[Json, str]] = [
    ({"headGroupSpec": {"template": {}}}, "headGroupSpec should have at least one container"),
    (
        {"headGroupSpec": a_head(params={"num-cpus": "1"}, resources={"CPU": "1"})},
        f"{RESOURCES} for Head group; please use only one",
    ),
    (
        {"headGroupSpec": a_head(params={"labels": "a=b"})},
        "rayStartParams['labels'] is not supported for Head group; please use the top-level Labels field instead",
    ),
    (
        {"workerGroupSpecs": [a_group(template={"spec": {"containers": []}})]},
        "workerGroupSpec should have at least one container",
    ),
    (
        {"workerGroupSpecs": [a_group("g", maxReplicas=None)]},
        "worker group g must set both minReplicas and maxReplicas when autoscaling is disabled",
    ),
    (
        {"workerGroupSpecs": [a_group("g", minReplicas=-1)]},
        "worker group g has negative minReplicas -1",
    ),
    (
        {"workerGroupSpecs": [a_group("g", minReplicas=0, maxReplicas=-2)]},
        "worker group g has negative maxReplicas -2",
    ),
    (
        {
            "workerGroupSpecs": [
                a_group("g", rayStartParams={"memory": "1"}, resources={"memory": "1"})
            ]
        },
        f"{RESOURCES} for g group; please use only one",
    ),
    (
        {"workerGroupSpecs": [a_group("g", idleTimeoutSeconds=-1)]},
        "worker group g: idleTimeoutSeconds must be non-negative, got -1",
    ),
    (
        {"workerGroupSpecs": [a_group("g", idleTimeoutSeconds=5)]},
        "worker group g: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set "
        ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' in "
        "the head pod if using KubeRay < 1.4.0)",
    ),
    (
        {**V2, "rayVersion": "", "workerGroupSpecs": [a_group("g", priority=1)]},
        "worker group g: priority is set, but RayVersion was not specified. Ray version 2.56.0 or later is required",
    ),
    (
        {**V2, "workerGroupSpecs": [a_group("g", priority=1)]},
        "worker group g: priority is set, but minimum Ray version is 2.56.0, got 2.52.0",
    ),
    (
        {"rayVersion": "2.56.0", "workerGroupSpecs": [a_group("g", priority=1)]},
        "worker group g: priority is set to 1, but autoscaler v2 is not enabled. "
        "Priority is only supported with autoscaler v2 enabled",
    ),
    (
        {"headGroupSpec": a_head(env={"RAY_REDIS_ADDRESS": "redis:6379"})},
        "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is not "
        "set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance",
    ),
    (
        {
            "gcsFaultToleranceOptions": REDIS,
            "headGroupSpec": a_head(params={"redis-password": "x"}),
        },
        f"cannot set `redis-password` in rayStartParams {FT}.RedisPassword instead",
    ),
    (
        {
            "gcsFaultToleranceOptions": REDIS,
            "headGroupSpec": a_head(params={"redis-username": "x"}),
        },
        "cannot set redis username in rayStartParams or environment variables - "
        "use GcsFaultToleranceOptions.RedisUsername instead",
    ),
    (
        {"enableInTreeAutoscaling": True, "workerGroupSpecs": [a_group("g", suspend=True)]},
        "worker group g cannot be suspended with Autoscaler enabled",
    ),
    (
        {"headGroupSpec": a_head(env={"RAY_enable_autoscaler_v2": "1"})},
        "environment variable RAY_enable_autoscaler_v2 cannot be set to '1' when enableInTreeAutoscaling is false. "
        "Please set enableInTreeAutoscaling: true to use autoscaler v2",
    ),
    (
        {**V2, "headGroupSpec": a_head(env={"RAY_enable_autoscaler_v2": "1"})},
        "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, "
        "please only use the former",
    ),
    (
        {
            **V2,
            "headGroupSpec": {
                "template": {
                    "spec": {"restartPolicy": "Always", "containers": [{"name": "ray-head"}]}
                }
            },
        },
        "restartPolicy for head Pod should be Never or unset when using autoscaler V2",
    ),
    (
        {
            **V2,
            "workerGroupSpecs": [
                a_group(
                    "g",
                    template={
                        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "w"}]}
                    },
                )
            ],
        },
        "restartPolicy for worker group g should be Never or unset when using autoscaler V2",
    ),
    (
        {"enableInTreeAutoscaling": True, "autoscalerOptions": {"idleTimeoutSeconds": -3}},
        "autoscalerOptions.idleTimeoutSeconds must be non-negative, got -3",
    ),
    (
        {
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {
                "env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]
            },
        },
        "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: it is managed by KubeRay and "
        "injected automatically into the autoscaler container",
    ),
    (
        {"upgradeStrategy": {"type": "Recreate"}},
        "upgradeStrategy cannot be set when RayCluster is created by RayService",
    ),
]


@pytest.mark.parametrize(
    ("config", "text"), [pytest.param(*row, id=row[1][:60]) for row in CLUSTER_RULES]
)
def test_s2_the_rules_of_clusters(config: Json, text: str) -> None:
    expected = Problem(EventReason.INVALID_SPEC, f"The RayService spec is invalid: {text}")
    assert found(config=a_cluster_config(**config), upgradeStrategy={"type": "Foo"}) == expected


@pytest.mark.parametrize(
    ("group", "config"),
    [
        ("Head", a_cluster_config(headGroupSpec=a_head(labels={"-b": "c"}))),
        ("g", a_cluster_config(a_group("g", labels={"-b": "c"}))),
    ],
)
def test_s2_labels_are_kubernetes_labels(group: str, config: Json) -> None:
    violation = found(config=config)
    assert violation is not None
    text = f"The RayService spec is invalid: invalid label key for {group} group: '-b', error: "
    assert violation.message.startswith(text)


def test_s2_a_suspended_group_needs_its_gate() -> None:
    violation = found(
        gates=BETA - {FeatureGate.DELETION_POLICY},
        config=a_cluster_config(a_group("g", suspend=True)),
    )
    text = (
        "worker group g can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
    )
    assert violation is not None
    assert violation.message == f"The RayService spec is invalid: {text}"
