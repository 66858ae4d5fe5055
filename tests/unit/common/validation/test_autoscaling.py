"""Rules on suspended groups and on the autoscaler, S24-S31 and §4.3 (acceptance cases 11, 12)."""

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

V2_ENV = "RAY_enable_autoscaler_v2"
ON: Json = {"enable_in_tree_autoscaling": True}
V1: Json = {**ON, "autoscaler_options": {"version": "v1"}}
V2: Json = {**ON, "autoscaler_options": {"version": "v2"}}
BOTH = (
    "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, "
    "please only use the former"
)


def a_head_with_v2(value: str) -> Json:
    return a_head(template=a_template(a_container(env=[{"name": V2_ENV, "value": value}])))


def a_group_that_restarts(name: str = "g", policy: str = "Always") -> Json:
    return a_group(name, template=a_template(restart_policy=policy))


def not_without_autoscaling(value: str) -> str:
    return (
        f"environment variable RAY_enable_autoscaler_v2 cannot be set to '{value}' when enableInTreeAutoscaling "
        "is false. Please set enableInTreeAutoscaling: true to use autoscaler v2"
    )


@cases(
    ("spec", "message"),
    {
        "S24: with the gate a group may be suspended": ({"groups": [a_group(suspend=True)]}, None),
        "S25: v2 as 1": ({"head": a_head_with_v2("1")}, not_without_autoscaling("1")),
        "S25: v2 as true": ({"head": a_head_with_v2("true")}, not_without_autoscaling("true")),
        "S25: v2 switched off": ({"head": a_head_with_v2("0")}, None),
        "S25: v2 with autoscaling": ({"head": a_head_with_v2("1"), **ON}, None),
        "S26 / case 11: a suspended group with autoscaling": (
            {"groups": [a_group(suspend=True)], **ON},
            "worker group g cannot be suspended with Autoscaler enabled",
        ),
        "S27: v1 and the variable": ({"head": a_head_with_v2("0"), **V1}, BOTH),
        "S27: v2 and the variable": ({"head": a_head_with_v2("1"), **V2}, BOTH),
        "S28: a head that restarts": (
            {"head": a_head(template=a_template(restart_policy="Always")), **V2},
            "restartPolicy for head Pod should be Never or unset when using autoscaler V2",
        ),
        "S29 / case 12: a group that restarts": (
            {"groups": [a_group(), a_group_that_restarts("h")], **V2},
            "restartPolicy for worker group h should be Never or unset when using autoscaler V2",
        ),
        "S29: Never is fine": ({"groups": [a_group_that_restarts(policy="Never")], **V2}, None),
        "S29 / case 12: v1 only warns": ({"groups": [a_group_that_restarts()], **V1}, None),
        "S30: a negative idle timeout": (
            {"autoscaler_options": {"idleTimeoutSeconds": -5}},
            "autoscalerOptions.idleTimeoutSeconds must be non-negative, got -5",
        ),
        "S31: our start command": (
            {
                "autoscaler_options": {
                    "env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]
                }
            },
            "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: "
            "it is managed by KubeRay and injected automatically into the autoscaler container",
        ),
    },
)
def test_spec(spec: Json, message: str | None) -> None:
    assert cluster_rules.spec(a_ray_cluster(**spec), BETA) == message


def test_case_11_a_suspended_group_needs_the_gate() -> None:
    gates = BETA - {FeatureGate.DELETION_POLICY}
    assert cluster_rules.spec(a_ray_cluster(groups=[a_group(suspend=True)]), gates) == (
        "worker group g can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
    )


@cases(
    ("spec", "message"),
    {
        "case 12: all groups that restart are named": (
            {
                **V1,
                "groups": [
                    a_group_that_restarts("a"),
                    a_group("b"),
                    a_group_that_restarts("c", "OnFailure"),
                ],
            },
            "restartPolicy for worker groups [a, c] should be Never or unset when using autoscaler V1",
        ),
        "no version named, no warning": ({**ON, "groups": [a_group_that_restarts()]}, None),
        "Never is fine": ({**V1, "groups": [a_group_that_restarts(policy="Never")]}, None),
        "without autoscaling the version means nothing": (
            {"groups": [a_group_that_restarts()], "autoscaler_options": {"version": "v1"}},
            None,
        ),
    },
)
def test_warning(spec: Json, message: str | None) -> None:
    assert list(cluster_rules.warnings(a_ray_cluster(**spec))) == (
        [] if message is None else [message]
    )
