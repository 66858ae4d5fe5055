"""Rules on token authentication, S37-S42 (acceptance case 13)."""

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_ray_cluster

TOKEN: Json = {"mode": "token"}
KUBERNETES: Json = {"mode": "token", "enableK8sTokenAuth": True}


@pytest.mark.parametrize(
    ("options", "version", "message"),
    [
        pytest.param(
            TOKEN,
            "",
            "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required",
            id="S37 / case 13: no version",
        ),
        pytest.param(
            TOKEN,
            "2",
            "authOptions.mode is 'token' but RayVersion format is invalid: 2, illegal version string \"2\"",
            id="S38: half a version",
        ),
        pytest.param(
            TOKEN,
            "2.51.0",
            "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.51.0",
            id="S39 / case 13: an old version",
        ),
        pytest.param(TOKEN, "2.52.0", None, id="S39: the first that knows tokens"),
        pytest.param(
            TOKEN, "v2.52.0rc1-py311", None, id="S39: what follows the numbers is ignored"
        ),
        pytest.param(
            KUBERNETES,
            "2.54.9",
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got 2.54.9",
            id="S40: Kubernetes' tokens need a newer one",
        ),
        pytest.param(
            {**KUBERNETES, "secretName": "s"},
            "2.55.0",
            "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set",
            id="S41: two sources of tokens",
        ),
        pytest.param(
            {**KUBERNETES, "secretName": ""}, "2.55.0", None, id="S41: an empty name is none"
        ),
        pytest.param(
            {"mode": "disabled", "enableK8sTokenAuth": True},
            "2.55.0",
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'",
            id="S42: Kubernetes' tokens without tokens",
        ),
        pytest.param({"mode": "disabled"}, "", None, id="no authentication needs no version"),
    ],
)
def test_spec(options: Json, version: str, message: str | None) -> None:
    assert (
        cluster_rules.spec(a_ray_cluster(auth_options=options, ray_version=version), BETA)
        == message
    )
