"""Token authentication (spec raycluster §8.3, §11.14; acceptance cases 99, 100)."""

import pytest

from cluster_reconciler.resources import auth, owner
from common.api.opaque import Body, Json
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import containers_of, head_of, worker_of

TOKEN: Json = {"mode": "token"}
KUBERNETES: Json = {"mode": "token", "enableK8sTokenAuth": True}
MODE: Json = {"name": "RAY_AUTH_MODE", "value": "token"}
MOUNT: Json = {
    "name": "ray-token",
    "mountPath": "/var/run/secrets/ray.io/serviceaccount",
    "readOnly": True,
}


def token_from(secret: str) -> Json:
    return {
        "name": "RAY_AUTH_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": secret, "key": "auth_token"}},
    }


def auth_env(container: Json) -> list[Json]:
    names = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_K8S_TOKEN_AUTH"}
    return [env for env in container.get("env", []) if env["name"] in names]


def every_container(options: Json) -> dict[str, Json]:
    """Build head and worker with a user's container and init container each."""
    template = a_template(
        a_container("ray"), a_container("user"), init_containers=[a_container("user-init")]
    )
    cluster = a_ray_cluster(
        head=a_head(template=template),
        groups=[a_group(template=template)],
        enable_in_tree_autoscaling=True,
        auth_options=options,
    )
    head, worker = head_of(cluster), worker_of(cluster)
    found = {f"head/{name}": container for name, container in _all_of(head).items()}
    return found | {f"worker/{name}": container for name, container in _all_of(worker).items()}


def _all_of(pod: Body) -> dict[str, Json]:
    return containers_of(pod) | containers_of(pod, "initContainers")


@pytest.mark.parametrize(
    ("options", "secret"),
    [
        pytest.param(TOKEN, "c", id="case 99: our Secret"),
        pytest.param({**TOKEN, "secretName": "mine"}, "mine", id="case 99: the user's Secret"),
    ],
)
def test_case_99_the_containers_that_get_the_token(options: Json, secret: str) -> None:
    ours = [MODE, token_from(secret)]
    assert {name: auth_env(container) for name, container in every_container(options).items()} == {
        "head/ray": ours,
        "head/user": [],
        "head/autoscaler": ours,
        "head/user-init": [],
        "worker/ray": ours,
        "worker/user": [],
        "worker/user-init": [],
        "worker/wait-gcs-ready": ours,
    }


def test_case_100_kubernetes_tokens_come_in_a_volume() -> None:
    found = every_container(KUBERNETES)
    ours = [MODE, {"name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "true"}]
    with_token = [
        name for name, container in found.items() if MOUNT in container.get("volumeMounts", [])
    ]
    assert with_token == ["head/ray", "head/autoscaler", "worker/ray", "worker/wait-gcs-ready"]
    assert all(auth_env(found[name]) == ours for name in with_token)


def test_case_100_the_volume() -> None:
    volume: Json = {
        "name": "ray-token",
        "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
    }
    shared: Json = {"name": "shared-mem", "emptyDir": {"medium": "Memory"}}
    assert worker_of(a_ray_cluster(auth_options=KUBERNETES))["spec"]["volumes"] == [volume, shared]


def test_what_the_template_names_is_kept() -> None:
    own = {"name": "RAY_AUTH_MODE", "value": "theirs"}
    template = a_template(a_container(env=[own]))
    cluster = a_ray_cluster(groups=[a_group(template=template)], auth_options=TOKEN)
    assert auth_env(worker_of(cluster)["spec"]["containers"][0]) == [own, token_from("c")]


@pytest.mark.parametrize(
    ("options", "is_needed"),
    [
        pytest.param(None, False, id="no options"),
        pytest.param({"mode": "disabled"}, False, id="switched off"),
        pytest.param(TOKEN, True, id="case 99: tokens"),
        pytest.param({}, True, id="an empty mode makes a Secret that no pod uses"),
        pytest.param({**TOKEN, "secretName": "mine"}, False, id="case 99: the user has one"),
        pytest.param({**TOKEN, "secretName": ""}, True, id="an empty name is none"),
        pytest.param(KUBERNETES, False, id="case 100: Kubernetes makes the tokens"),
    ],
)
def test_is_needed(options: Json | None, *, is_needed: bool) -> None:
    assert (
        auth.build_secret(a_ray_cluster(auth_options=options), token="t") is not None
    ) == is_needed


def test_case_99_the_secret() -> None:
    cluster = a_ray_cluster(auth_options=TOKEN)
    assert auth.build_secret(cluster, token="t" * 44) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "labels": {"ray.io/cluster": "c"},
            "ownerReferences": owner.build_references(cluster),
        },
        "stringData": {"auth_token": "t" * 44},
    }
