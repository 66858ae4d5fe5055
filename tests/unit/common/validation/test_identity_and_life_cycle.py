"""Names, upgrade strategy and status (acceptance cases 5, 6, 15, 16)."""

import pytest

from common import labels
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_ray_cluster

DNS_1035 = (
    "RayCluster name should be a valid DNS1035 label: [a DNS-1035 label must consist of lower case alphanumeric "
    "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  "
    "or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]"
)
SUSPENDING_AND_SUSPENDED = (
    "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions "
    "should not be both true"
)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("c" * 53, None, id="53 characters fit"),
        pytest.param(
            "c" * 54,
            "RayCluster name should be no more than 53 characters",
            id="M1 / case 5: 54 are too many",
        ),
        pytest.param("1abc", DNS_1035, id="M2 / case 6: a name starts with a letter"),
        pytest.param("a.b", DNS_1035, id="M2: a name has no dots"),
        pytest.param("c-", DNS_1035, id="M2: a name ends with a letter or digit"),
        pytest.param("c-1", None, id="letters, digits and dashes are fine"),
    ],
)
def test_metadata(name: str, message: str | None) -> None:
    assert cluster_rules.metadata(a_ray_cluster(name)) == message


@pytest.mark.parametrize(
    ("strategy", "creator", "message"),
    [
        pytest.param(None, "RayJob", None, id="no strategy is fine for everyone"),
        pytest.param({}, "RayJob", None, id="a strategy without a type too"),
        pytest.param({"type": "Recreate"}, "", None, id="a user's own cluster may be recreated"),
        pytest.param({"type": "None"}, "Other", None, id="a foreign creator counts as the user"),
        pytest.param(
            {"type": "Rolling"},
            "",
            "The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value Rolling is invalid, "
            "valid options are Recreate or None",
            id="only Recreate and None are known",
        ),
        pytest.param(
            {"type": "Recreate"},
            "RayJob",
            "upgradeStrategy cannot be set when RayCluster is created by RayJob",
            id="case 15: a RayJob decides for its cluster",
        ),
        pytest.param(
            {"type": "None"},
            "RayService",
            "upgradeStrategy cannot be set when RayCluster is created by RayService",
            id="a RayService decides for its cluster",
        ),
    ],
)
def test_upgrade_options(
    strategy: dict[str, str] | None, creator: str, message: str | None
) -> None:
    cluster = a_ray_cluster(labels={labels.ORIGIN_KIND: creator}, upgrade_strategy=strategy)
    assert cluster_rules.upgrade_options(cluster) == message


@pytest.mark.parametrize(
    ("suspending", "suspended", "message"),
    [
        pytest.param(
            "True", "True", SUSPENDING_AND_SUSPENDED, id="case 16: both at once never happen"
        ),
        pytest.param("True", "False", None, id="suspending"),
        pytest.param("False", "True", None, id="suspended"),
    ],
)
def test_status(suspending: str, suspended: str, message: str | None) -> None:
    conditions = [
        _condition("RayClusterSuspending", suspending),
        _condition("RayClusterSuspended", suspended),
    ]
    assert cluster_rules.status(a_ray_cluster(status={"conditions": conditions})) == message


def _condition(kind: str, status: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": kind,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
