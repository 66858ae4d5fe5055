"""Rules on RayJobs, M1-M2, V1-V23 and §3.7 of spec rayjob (acceptance cases 8-13)."""

from typing import Any

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_job as job_rules
from support.builders.ray_cluster import a_container, a_group, a_head, a_template
from support.builders.ray_job import SUBMITTING_MODES, a_cluster_spec, a_ray_job

INVALID = "The RayJob spec is invalid: "
SELECTOR = {"ray.io/cluster": "shared"}
SUBMITTER = a_template(a_container("submitter"), restartPolicy="Never")
AUTOSCALING = a_cluster_spec(enableInTreeAutoscaling=True)
ALWAYS = a_cluster_spec(headGroupSpec=a_head(template=a_template(restartPolicy="Always")))
NO_CONTAINER: Json = {"spec": {"containers": []}}
KUBERNETES_TOKEN = a_cluster_spec(
    authOptions={"mode": "token", "enableK8sTokenAuth": True},
    headGroupSpec=a_head(template=NO_CONTAINER),
)
NO_HEAD = a_cluster_spec(headGroupSpec=a_head(template=NO_CONTAINER))


def _violation(**spec: Any) -> str | None:
    return job_rules.spec(a_ray_job(**spec), BETA)


def _policies(success: str | None, failure: str | None) -> Json:
    named = {"onSuccess": success, "onFailure": failure}
    return {field: {"policy": policy} for field, policy in named.items() if policy is not None}


def _rule(policy: str, ttl: int = 0, **condition: str) -> Json:
    return {
        "policy": policy,
        "condition": {"ttlSeconds": ttl, **(condition or {"jobStatus": "FAILED"})},
    }


def _rules(*rules: Json) -> Json:
    return {"deletionRules": list(rules)}


def test_a_plain_job_is_valid() -> None:
    job = a_ray_job()
    assert job_rules.metadata(job.metadata) is None
    assert job_rules.spec(job, BETA) is None
    assert job_rules.status(job) is None


def test_a_name_has_at_most_47_characters() -> None:
    assert job_rules.metadata(a_ray_job("a" * 47).metadata) is None
    assert (
        job_rules.metadata(a_ray_job("a" * 48).metadata)
        == "The RayJob metadata is invalid: RayJob name should be no more than 47 characters"
    )


def test_a_name_is_a_dns_1035_label() -> None:
    message = job_rules.metadata(a_ray_job("1abc").metadata)
    assert message is not None
    assert message.startswith(
        "The RayJob metadata is invalid: RayJob name should be a valid DNS1035 label: ["
        "a DNS-1035 label must consist of"
    )


@pytest.mark.acceptance("rayjob", 8)
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"suspend": True},
            "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended",
        ),
        (
            {"ttlSecondsAfterFinished": -5},
            "TTLSecondsAfterFinished must be a non-negative integer",
        ),
        (
            {"ttlSecondsAfterFinished": 5},
            "a RayJob with shutdownAfterJobFinishes set to false cannot have "
            "TTLSecondsAfterFinished",
        ),
    ],
)
def test_suspension_and_delay_need_a_shutdown(spec: Json, message: str) -> None:
    assert _violation(**spec) == INVALID + message


def test_suspension_and_delay_are_valid_with_a_shutdown() -> None:
    assert (
        _violation(suspend=True, shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=5) is None
    )


@pytest.mark.acceptance("rayjob", 9)
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"rayClusterSpec": None},
            f"{INVALID}one of RayClusterSpec or ClusterSelector must be set",
        ),
        (
            {"clusterSelector": {"x": "y"}},
            "cluster name in ClusterSelector should not be empty",
        ),
        (
            {"clusterSelector": SELECTOR, "submissionMode": "SidecarMode"},
            "ClusterSelector is not supported in SidecarMode",
        ),
        (
            {"clusterSelector": SELECTOR, "backoffLimit": 1},
            f"{INVALID}BackoffLimit is incompatible with ClusterSelector mode",
        ),
        (
            {"submissionMode": "InteractiveMode", "backoffLimit": 1},
            f"{INVALID}BackoffLimit is incompatible with InteractiveMode",
        ),
        ({"submissionMode": "InteractiveMode", "backoffLimit": 0}, None),
        ({"clusterSelector": SELECTOR, "rayClusterSpec": None}, None),
        (
            {"clusterSelector": SELECTOR, "suspend": True, "shutdownAfterJobFinishes": True},
            f"{INVALID}the ClusterSelector mode doesn't support the suspend operation",
        ),
    ],
)
def test_the_cluster_is_chosen_in_one_way(spec: Json, message: str | None) -> None:
    assert _violation(**spec) == message


@pytest.mark.acceptance("rayjob", 10)
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"submitterPodTemplate": SUBMITTER},
            "Currently, SidecarMode doesn't support SubmitterPodTemplate",
        ),
        ({"submitterConfig": {}}, "Currently, SidecarMode doesn't support SubmitterConfig"),
        (
            {"rayClusterSpec": ALWAYS},
            "restartPolicy for head Pod should be Never or unset when using SidecarMode",
        ),
        ({}, None),
    ],
)
def test_a_sidecar_cannot_be_configured(spec: Json, message: str | None) -> None:
    assert _violation(submissionMode="SidecarMode", **spec) == message


@pytest.mark.acceptance("rayjob", 11)
def test_kubernetes_tokens_are_refused_before_any_rule_of_clusters() -> None:
    assert (
        _violation(rayClusterSpec=KUBERNETES_TOKEN)
        == f"{INVALID}K8s token auth mode is currently not supported for RayJob"
    )


@pytest.mark.parametrize("selector", [None, SELECTOR])
def test_the_rules_of_clusters_hold_even_if_a_selector_replaces_it(selector: Json | None) -> None:
    assert (
        _violation(rayClusterSpec=NO_HEAD, clusterSelector=selector)
        == f"{INVALID}headGroupSpec should have at least one container"
    )


def test_the_annotations_of_the_job_count_for_its_cluster() -> None:
    cluster = a_cluster_spec(gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
    job = a_ray_job(annotations={"ray.io/ft-enabled": "true"}, rayClusterSpec=cluster)
    message = job_rules.spec(job, BETA)
    assert message is not None
    assert message.startswith(
        f"{INVALID}ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set."
    )


@pytest.mark.acceptance("rayjob", 7)
@pytest.mark.parametrize("text", ["invalid_yaml_string", "[a]", "a: [", "3"])
def test_a_runtime_environment_is_a_mapping(text: str) -> None:
    message = _violation(runtimeEnvYAML=text)
    assert message is not None
    assert message.startswith(f"failed to unmarshal RuntimeEnvYAML: {text}: ")
    assert not message.endswith(": ")


@pytest.mark.parametrize("text", ["", "  \n", "# nothing", "null", "pip: [torch]"])
def test_a_runtime_environment_may_be_empty(text: str) -> None:
    assert _violation(runtimeEnvYAML=text) is None


def test_a_message_quotes_only_the_start_of_a_long_runtime_environment() -> None:
    message = _violation(runtimeEnvYAML="x" * 100_000)
    assert message is not None
    assert 1000 < len(message) < 1200


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("activeDeadlineSeconds", 0, "activeDeadlineSeconds must be a positive integer"),
        ("activeDeadlineSeconds", 1, None),
        ("preRunningDeadlineSeconds", 0, "preRunningDeadlineSeconds must be a positive integer"),
        ("preRunningDeadlineSeconds", 1, None),
        ("backoffLimit", -1, "backoffLimit must be a positive integer"),
        ("backoffLimit", 3, None),
    ],
)
def test_limits_are_positive(field: str, value: int, message: str | None) -> None:
    assert _violation(**{field: value}) == (message and INVALID + message)


@pytest.mark.acceptance("rayjob", 13)
def test_a_deletion_strategy_needs_its_gate() -> None:
    job = a_ray_job(deletionStrategy=_rules(_rule("DeleteSelf")))
    assert job_rules.spec(job, BETA) is None
    assert (
        job_rules.spec(job, BETA - {FeatureGate.DELETION_POLICY})
        == "RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {
                "deletionStrategy": _rules(_rule("DeleteSelf")),
                "shutdownAfterJobFinishes": True,
            },
            f"{INVALID}spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are "
            "mutually exclusive",
            id="V5",
        ),
        pytest.param(
            {"deletionStrategy": {**_rules(_rule("DeleteSelf")), **_policies("DeleteSelf", None)}},
            f"{INVALID}Cannot use both legacy onSuccess/onFailure fields and deletionRules "
            "simultaneously",
            id="V6",
        ),
        pytest.param(
            {"deletionStrategy": {}},
            f"{INVALID}DeletionStrategy requires either BOTH onSuccess and onFailure, OR the "
            "deletionRules field (cannot be empty)",
            id="V8",
        ),
        pytest.param(
            {"deletionStrategy": _policies("DeleteSelf", None)},
            "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using "
            "the legacy deletion policy fields of DeletionStrategy",
            id="only onSuccess",
        ),
        pytest.param(
            {"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}, "onFailure": {}}},
            "the DeletionPolicyType field of DeletionStrategy.OnFailure cannot be unset when "
            "DeletionStrategy is enabled",
            id="onFailure without a policy",
        ),
        pytest.param(
            {
                "deletionStrategy": _policies("DeleteSelf", "DeleteCluster"),
                "clusterSelector": SELECTOR,
            },
            "the ClusterSelector mode doesn't support DeletionStrategy=DeleteCluster on failure",
            id="DeleteCluster with a selector",
        ),
        pytest.param(
            {
                "deletionStrategy": _policies("DeleteWorkers", "DeleteSelf"),
                "rayClusterSpec": AUTOSCALING,
            },
            "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling "
            "enabled",
            id="DeleteWorkers with the autoscaler",
        ),
        pytest.param(
            {
                "deletionStrategy": _policies("DeleteNone", "DeleteSelf"),
                "shutdownAfterJobFinishes": True,
            },
            f"{INVALID}shutdownAfterJobFinshes is set to 'true' while deletion policy is "
            "'DeleteNone'",
            id="DeleteNone with a shutdown",
        ),
        pytest.param(
            {
                "deletionStrategy": _policies("DeleteCluster", "DeleteWorkers"),
                "shutdownAfterJobFinishes": True,
            },
            None,
            id="legal policies",
        ),
        pytest.param(
            {
                "deletionStrategy": _rules(
                    _rule("DeleteWorkers", 15), _rule("DeleteCluster", 35), _rule("DeleteSelf", 55)
                )
            },
            None,
            id="legal rules",
        ),
        pytest.param(
            {
                "deletionStrategy": _rules(
                    _rule("DeleteSelf", jobStatus="FAILED", jobDeploymentStatus="Failed"),
                    {"policy": "DeleteSelf", "condition": {}},
                    _rule("DeleteSelf", -1),
                )
            },
            "deletionRules[0]: cannot set both JobStatus and JobDeploymentStatus at the same time\n"
            "deletionRules[1]: exactly one of JobStatus and JobDeploymentStatus must be set\n"
            "deletionRules[2]: TTLSeconds must be non-negative",
            id="rules without a legal condition",
        ),
        pytest.param(
            {"deletionStrategy": _rules(_rule("DeleteWorkers")), "clusterSelector": SELECTOR},
            "deletionRules[0]: DeletionPolicyType 'DeleteWorkers' not supported when "
            "ClusterSelector is set",
            id="a rule with a selector",
        ),
        pytest.param(
            {
                "deletionStrategy": _rules(
                    _rule("DeleteSelf", 1, jobDeploymentStatus="Failed"), _rule("DeleteCluster", 9)
                )
            },
            None,
            id="rules on both statuses are not compared",
        ),
    ],
)
def test_a_deletion_strategy_has_one_legal_form(spec: Json, message: str | None) -> None:
    assert _violation(**spec) == message


@pytest.mark.acceptance("rayjob", 12)
def test_all_violations_of_rules_are_listed() -> None:
    strategy = _rules(
        _rule("DeleteCluster", 10),
        _rule("DeleteCluster", 20),
        _rule("DeleteWorkers", 0),
        _rule("DeleteSelf", 5),
    )
    assert _violation(deletionStrategy=strategy, rayClusterSpec=AUTOSCALING) == (
        "deletionRules[1]: duplicate rule for DeletionPolicyType 'DeleteCluster' and "
        "JobStatus 'FAILED'\n"
        "deletionRules[2]: DeletionPolicyType 'DeleteWorkers' not supported with autoscaling "
        "enabled\n"
        "for JobStatus 'FAILED': DeleteSelf TTL (5) must be >= DeleteCluster TTL (10)"
    )


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
def test_only_an_interactive_job_waits(mode: str) -> None:
    waiting: Json = {"jobDeploymentStatus": "Waiting"}
    interactive = a_ray_job(status=waiting, submissionMode="InteractiveMode")
    assert job_rules.status(interactive) is None
    assert (
        job_rules.status(a_ray_job(status=waiting, submissionMode=mode))
        == "The RayJob status is invalid: JobDeploymentStatus cannot be `Waiting` when "
        "SubmissionMode is not InteractiveMode"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"submissionMode": "Foo"},
            "spec.submissionMode is 'Foo', expected one of K8sJobMode, HTTPMode, InteractiveMode, "
            "SidecarMode",
        ),
        (
            {"jobId": "a; rm -rf /"},
            "spec.jobId may contain letters, digits, '.', '_' and '-', and must start and end with "
            "a letter or digit",
        ),
        (
            {"submitterPodTemplate": NO_CONTAINER},
            "spec.submitterPodTemplate should have at least one container",
        ),
        (
            {"metadata": {"team": "a"}, "rayClusterSpec": a_cluster_spec(rayVersion="2.5.0")},
            "spec.metadata is set, but minimum Ray version is 2.6.0, got 2.5.0",
        ),
        (
            {"rayClusterSpec": a_cluster_spec(upgradeStrategy={"type": "Recreate"})},
            "spec.rayClusterSpec.upgradeStrategy cannot be set when RayCluster is created by "
            "RayJob",
        ),
        (
            {"rayClusterSpec": a_cluster_spec(suspend=True)},
            "spec.rayClusterSpec.suspend cannot be true, because the job would never start; use "
            "spec.suspend",
        ),
    ],
)
def test_a_job_that_could_never_run_is_refused(spec: Json, message: str) -> None:
    assert _violation(**spec) == INVALID + message


@pytest.mark.acceptance("rayjob", 51)
@pytest.mark.parametrize("version", ["2.5.0", "not-a-version"])
def test_metadata_need_a_ray_that_takes_them(version: str) -> None:
    spec = {"metadata": {"team": "a"}, "rayClusterSpec": a_cluster_spec(rayVersion=version)}
    message = _violation(**spec)
    assert message is not None
    assert message.startswith(f"{INVALID}spec.metadata is set, but ")
    assert _violation(**{**spec, "metadata": {}}) is None


@pytest.mark.acceptance("rayjob", 43)
def test_an_upgrade_strategy_of_the_cluster_is_refused() -> None:
    message = _violation(rayClusterSpec=a_cluster_spec(upgradeStrategy={"type": "Recreate"}))
    assert message is not None
    assert "upgradeStrategy cannot be set when RayCluster is created by RayJob" in message


@pytest.mark.parametrize("text", ["R1=2", '["R1"]', '{"R1": "x"}', '{"R1": 2'])
def test_resources_are_a_json_object_of_numbers(text: str) -> None:
    message = _violation(entrypointResources=text)
    assert message is not None
    assert message.startswith(
        f"{INVALID}spec.entrypointResources should be a JSON object of numbers"
    )
    assert _violation(entrypointResources=text, submissionMode="InteractiveMode") is None


@pytest.mark.parametrize(
    "spec",
    [
        {"jobId": "train-1.a_b"},
        {"entrypointResources": '{"R1": 2, "R2": 0.5}'},
        {"metadata": {"team": "a"}},
        {"metadata": {"team": "a"}, "rayClusterSpec": a_cluster_spec(rayVersion="2.6.0")},
        {"submitterPodTemplate": SUBMITTER},
        {"rayClusterSpec": a_cluster_spec(workerGroupSpecs=[a_group("g", num_of_hosts=2)])},
    ],
)
def test_a_job_that_can_run_is_valid(spec: Json) -> None:
    assert _violation(**spec) is None


def test_a_field_of_the_wrong_type_is_named() -> None:
    message = _violation(backoffLimit="many")
    assert message is not None
    assert message.startswith(INVALID)
    assert "backoffLimit" in message
