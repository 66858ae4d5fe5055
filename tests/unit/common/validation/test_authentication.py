"""Rules on token authentication, S37-S42 (acceptance case 13)."""

from common.api.opaque import Json
from common.feature_gates import BETA
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_ray_cluster
from support.tables import cases

TOKEN: Json = {"mode": "token"}
KUBERNETES: Json = {"mode": "token", "enableK8sTokenAuth": True}


@cases(
    ("options", "version", "message"),
    {
        "S37 / case 13: no version": (
            TOKEN,
            "",
            "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required",
        ),
        "S38: half a version": (
            TOKEN,
            "2",
            "authOptions.mode is 'token' but RayVersion format is invalid: 2, illegal version string \"2\"",
        ),
        "S39 / case 13: an old version": (
            TOKEN,
            "2.51.0",
            "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.51.0",
        ),
        "S39: the first that knows tokens": (TOKEN, "2.52.0", None),
        "S39: what follows the numbers is ignored": (TOKEN, "v2.52.0rc1-py311", None),
        "S40: Kubernetes' tokens need a newer one": (
            KUBERNETES,
            "2.54.9",
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got 2.54.9",
        ),
        "S41: two sources of tokens": (
            {**KUBERNETES, "secretName": "s"},
            "2.55.0",
            "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set",
        ),
        "S41: an empty name is none": ({**KUBERNETES, "secretName": ""}, "2.55.0", None),
        "S42: Kubernetes' tokens without tokens": (
            {"mode": "disabled", "enableK8sTokenAuth": True},
            "2.55.0",
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'",
        ),
        "no authentication needs no version": ({"mode": "disabled"}, "", None),
    },
)
def test_spec(options: Json, version: str, message: str | None) -> None:
    assert (
        cluster_rules.spec(a_ray_cluster(auth_options=options, ray_version=version), BETA)
        == message
    )
