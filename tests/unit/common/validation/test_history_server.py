"""Rules on the history server's collector, S32-S36 and §4.2.2."""

import pytest

from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate, Gates
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

ON = BETA | {FeatureGate.HISTORY_SERVER}
COLLECTOR = a_template(a_container(), a_container("ray-history-collector"))
X = {"STORAGE_BACKEND": "X"}
WHEN = "when history server collector options are enabled"


def a_cluster(
    env: dict[str, str], *, image: str = "collector", head: Json | None = None
) -> RayCluster:
    entries: list[Json] = [{"name": name, "value": value} for name, value in env.items()]
    options: Json = {"image": image, "env": entries}
    return a_ray_cluster(head=head, history_server_options={"collectorOptions": options})


def must_be_set(name: str, backend: str) -> str:
    return f"{name} environment variable must be set when STORAGE_BACKEND is {backend}"


@cases(
    ("cluster", "gates", "message"),
    {
        "S32: the gate is off": (
            a_cluster(X),
            BETA,
            "RayClusterHistoryServer feature gate is not enabled",
        ),
        "S33: no collector": (
            a_ray_cluster(history_server_options={}),
            ON,
            "historyServerOptions.collectorOptions must be set",
        ),
        "S34: no image": (
            a_cluster({}, image=""),
            ON,
            "historyServerOptions.collectorOptions.image must be set",
        ),
        "S35: a head container of that name": (
            a_cluster(X, head=a_head(template=COLLECTOR)),
            ON,
            f"head pod template must not define a container with name 'ray-history-collector' {WHEN}",
        ),
        "S36: a worker container of that name": (
            a_ray_cluster(
                groups=[a_group("h", template=COLLECTOR)],
                history_server_options={
                    "collectorOptions": {
                        "image": "i",
                        "env": [{"name": "STORAGE_BACKEND", "value": "X"}],
                    }
                },
            ),
            ON,
            f"worker group h pod template must not define a container with name 'ray-history-collector' {WHEN}",
        ),
    },
)
def test_collector(cluster: RayCluster, gates: Gates, message: str | None) -> None:
    assert cluster_rules.spec(cluster, gates) == message


@pytest.mark.parametrize(
    "name",
    [
        *("POD_IP", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE", "RAY_ROLE"),
        *("OWNER_KIND", "OWNER_NAME", "EVENTS_PORT"),
    ],
)
def test_env_that_we_manage(name: str) -> None:
    assert cluster_rules.spec(a_cluster({**X, name: "v"}), ON) == (
        f"historyServerOptions.collectorOptions.env must not contain {name}: "
        "it is managed by KubeRay and injected automatically into the collector container"
    )


AZURE = "environment variable must be set when STORAGE_BACKEND is AZUREBLOB"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        pytest.param(
            {},
            "STORAGE_BACKEND environment variable must be set with a literal string value in "
            "historyServerOptions.collectorOptions.env",
            id="a backend must be named",
        ),
        pytest.param({"STORAGE_BACKEND": "Other"}, None, id="an unknown backend passes"),
        pytest.param(
            {"STORAGE_BACKEND": "gcs"}, must_be_set("GCS_BUCKET", "GCS"), id="GCS needs a bucket"
        ),
        pytest.param({"STORAGE_BACKEND": "GCS", "GCS_BUCKET": "b"}, None, id="GCS with a bucket"),
        pytest.param(
            {"STORAGE_BACKEND": "s3"}, must_be_set("S3_REGION", "S3"), id="S3 needs a region"
        ),
        pytest.param(
            {"STORAGE_BACKEND": "ALIYUNOSS"},
            must_be_set("OSS_BUCKET", "ALIYUNOSS"),
            id="OSS needs a bucket",
        ),
        pytest.param(
            {"STORAGE_BACKEND": "ALIYUNOSS", "OSS_BUCKET": "b"},
            must_be_set("OSS_ENDPOINT", "ALIYUNOSS"),
            id="OSS needs an endpoint",
        ),
        pytest.param(
            {"STORAGE_BACKEND": "ALIYUNOSS", "OSS_BUCKET": "b", "OSS_ENDPOINT": "e"},
            must_be_set("OSS_REGION", "ALIYUNOSS"),
            id="OSS needs a region",
        ),
        pytest.param(
            {"STORAGE_BACKEND": "AZUREBLOB", "AZURE_STORAGE_AUTH_MODE": " Connection_String "},
            f"AZURE_STORAGE_CONNECTION_STRING {AZURE} and AZURE_STORAGE_AUTH_MODE is connection_string",
            id="Azure needs the connection string that the mode is named for",
        ),
        *(
            pytest.param(
                {"STORAGE_BACKEND": "AZUREBLOB", "AZURE_STORAGE_AUTH_MODE": mode},
                f"AZURE_STORAGE_ACCOUNT_URL {AZURE} and AZURE_STORAGE_AUTH_MODE is {mode}",
                id=f"Azure needs an account for mode {mode}",
            )
            for mode in ("workload_identity", "default")
        ),
        pytest.param(
            {"STORAGE_BACKEND": "AZUREBLOB"},
            f"either AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_URL {AZURE}",
            id="Azure needs one of them without a mode",
        ),
        pytest.param(
            {"STORAGE_BACKEND": "AZUREBLOB", "AZURE_STORAGE_ACCOUNT_URL": "u"},
            None,
            id="Azure with one",
        ),
    ],
)
def test_backend(env: dict[str, str], message: str | None) -> None:
    assert cluster_rules.spec(a_cluster(env), ON) == message


def test_a_value_from_elsewhere_counts() -> None:
    env = [
        {"name": "STORAGE_BACKEND", "value": "S3"},
        {"name": "S3_REGION", "valueFrom": {"secretKeyRef": {"key": "k"}}},
    ]
    cluster = a_ray_cluster(history_server_options={"collectorOptions": {"image": "i", "env": env}})
    assert cluster_rules.spec(cluster, ON) is None
