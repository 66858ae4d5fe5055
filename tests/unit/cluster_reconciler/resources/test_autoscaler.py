"""The autoscaler beside the head and its rights (spec raycluster §11.12, §12.7; acceptance cases 20, 98)."""

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import autoscaler, owner
from common.api.opaque import Body, Json
from common.kube.resources import ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from support.builders.ray_cluster import IMAGE, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import (
    containers_of,
    env_of,
    head_of,
    ray_container_of,
    ray_start_of,
    worker_of,
)
from support.tables import cases

COMMAND = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
SIZE = {"cpu": "500m", "memory": "512Mi"}
ENV: list[Json] = [
    {
        "name": "RAY_CLUSTER_NAME",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}},
    },
    {
        "name": "RAY_CLUSTER_NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    },
    {"name": "RAY_HEAD_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "KUBERAY_CRD_VER", "value": "v1"},
    {"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": COMMAND},
]
DEFAULT: Json = {
    "name": "autoscaler",
    "image": IMAGE,
    "imagePullPolicy": "IfNotPresent",
    "command": ["/bin/bash", "-c", "--"],
    "args": [COMMAND],
    "env": ENV,
    "resources": {"limits": SIZE, "requests": SIZE},
    "volumeMounts": [{"name": "ray-logs", "mountPath": "/tmp/ray"}],
}
EXTRA: Json = {"name": "X", "value": "y"}
MOUNT: Json = {"name": "m", "mountPath": "/m"}


def a_head_pod(options: Json | None = None) -> Body:
    return head_of(a_ray_cluster(enable_in_tree_autoscaling=True, autoscaler_options=options))


@cases(
    ("options", "differences"),
    {
        "the default": (None, {}),
        "an image": ({"image": "mine:1"}, {"image": "mine:1"}),
        "a pull policy": ({"imagePullPolicy": "Always"}, {"imagePullPolicy": "Always"}),
        "resources": (
            {"resources": {"limits": {"cpu": "1"}}},
            {"resources": {"limits": {"cpu": "1"}}},
        ),
        "security": ({"securityContext": {"runAsUser": 1}}, {"securityContext": {"runAsUser": 1}}),
        "case 98: args, the variable with ours stays": ({"args": ["$X"]}, {"args": ["$X"]}),
        "a command; no args are no wish": ({"command": ["sh"], "args": []}, {"command": ["sh"]}),
        "env is appended": ({"env": [EXTRA]}, {"env": [*ENV, EXTRA]}),
        "envFrom": (
            {"envFrom": [{"secretRef": {"name": "s"}}]},
            {"envFrom": [{"secretRef": {"name": "s"}}]},
        ),
        "mounts come before logs": (
            {"volumeMounts": [MOUNT]},
            {"volumeMounts": [MOUNT, *DEFAULT["volumeMounts"]]},
        ),
    },
)
def test_case_98_container(options: Json | None, differences: Json) -> None:
    assert containers_of(a_head_pod(options))["autoscaler"] == {**DEFAULT, **differences}


def test_case_98_head_has_no_monitor_and_the_right_account() -> None:
    pod = a_head_pod()
    assert " --no-monitor " in ray_start_of(pod)
    assert pod["spec"]["serviceAccountName"] == "c"


def test_login_shell_holds_for_the_autoscaler_too() -> None:
    pod = head_of(a_ray_cluster(enable_in_tree_autoscaling=True), Config(uses_login_shell=True))
    assert containers_of(pod)["autoscaler"]["command"] == ["/bin/bash", "-cl", "--"]


def test_the_operators_sidecars_come_after_the_autoscaler() -> None:
    config = Config(head_sidecars=({"name": "side"},), worker_sidecars=({"name": "worker-side"},))
    cluster = a_ray_cluster(enable_in_tree_autoscaling=True)
    assert list(containers_of(head_of(cluster, config))) == ["ray-head", "autoscaler", "side"]
    assert list(containers_of(worker_of(cluster, config))) == ["ray-worker", "worker-side"]


@pytest.mark.parametrize(
    ("version", "env", "policy"),
    [
        pytest.param("v2", "true", "Never", id="case 98: v2 forbids restarts"),
        pytest.param("v1", "false", "Always", id="case 98: only v1 sets it"),
        pytest.param(None, None, "Always", id="no version: Ray decides"),
    ],
)
def test_case_98_versions(version: str | None, env: str | None, policy: str) -> None:
    template = a_template(restart_policy="Always")
    cluster = a_ray_cluster(
        head=a_head(template=template),
        groups=[a_group(template=template)],
        enable_in_tree_autoscaling=True,
        autoscaler_options={"version": version} if version else None,
    )
    head, worker = head_of(cluster), worker_of(cluster)
    assert env_of(ray_container_of(head)).get("RAY_enable_autoscaler_v2") == env
    assert "RAY_enable_autoscaler_v2" not in env_of(ray_container_of(worker))
    assert (head["spec"]["restartPolicy"], worker["spec"]["restartPolicy"]) == (policy, policy)


def test_a_version_means_nothing_without_autoscaling() -> None:
    cluster = a_ray_cluster(autoscaler_options={"version": "v2"})
    assert list(containers_of(head_of(cluster))) == ["ray-head"]
    assert "restartPolicy" not in worker_of(cluster)["spec"]


def test_rights() -> None:
    cluster = a_ray_cluster()
    metadata = {
        "name": "c",
        "namespace": "ns",
        "labels": {
            "ray.io/cluster": "c",
            "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        },
        "ownerReferences": owner.build_references(cluster),
    }
    rbac = "rbac.authorization.k8s.io"
    assert autoscaler.build_identity(cluster)[SERVICE_ACCOUNT] == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata,
    }
    assert autoscaler.build_identity(cluster)[ROLE] == {
        "apiVersion": f"{rbac}/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ],
    }
    assert autoscaler.build_identity(cluster)[ROLE_BINDING] == {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "subjects": [{"kind": "ServiceAccount", "name": "c", "namespace": "ns"}],
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "c"},
    }


def test_names_of_rights_are_cut_and_the_users_account_is_used() -> None:
    cluster = a_ray_cluster(
        "a" + "b" * 52, head=a_head(template=a_template(service_account_name="custom"))
    )
    assert autoscaler.get_template_service_account(cluster) == "custom"
    assert autoscaler.get_service_account_name(cluster) == "custom"
    assert autoscaler.build_identity(cluster)[ROLE]["metadata"]["name"] == "b" * 50
