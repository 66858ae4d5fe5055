"""Names, upgrade strategy and status (acceptance cases 5, 6, 15, 16)."""

from common import labels
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_ray_cluster
from support.tables import cases

DNS_1035 = (
    "RayCluster name should be a valid DNS1035 label: [a DNS-1035 label must consist of lower case alphanumeric "
    "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  "
    "or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]"
)
SUSPENDING_AND_SUSPENDED = (
    "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions "
    "should not be both true"
)


@cases(
    ("name", "message"),
    {
        "53 characters fit": ("c" * 53, None),
        "M1 / case 5: 54 are too many": (
            "c" * 54,
            "RayCluster name should be no more than 53 characters",
        ),
        "M2 / case 6: a name starts with a letter": ("1abc", DNS_1035),
        "M2: a name has no dots": ("a.b", DNS_1035),
        "M2: a name ends with a letter or digit": ("c-", DNS_1035),
        "letters, digits and dashes are fine": ("c-1", None),
    },
)
def test_metadata(name: str, message: str | None) -> None:
    assert cluster_rules.metadata(a_ray_cluster(name)) == message


@cases(
    ("strategy", "creator", "message"),
    {
        "no strategy is fine for everyone": (None, "RayJob", None),
        "a strategy without a type too": ({}, "RayJob", None),
        "a user's own cluster may be recreated": ({"type": "Recreate"}, "", None),
        "a foreign creator counts as the user": ({"type": "None"}, "Other", None),
        "only Recreate and None are known": (
            {"type": "Rolling"},
            "",
            "The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value Rolling is invalid, "
            "valid options are Recreate or None",
        ),
        "case 15: a RayJob decides for its cluster": (
            {"type": "Recreate"},
            "RayJob",
            "upgradeStrategy cannot be set when RayCluster is created by RayJob",
        ),
        "a RayService decides for its cluster": (
            {"type": "None"},
            "RayService",
            "upgradeStrategy cannot be set when RayCluster is created by RayService",
        ),
    },
)
def test_upgrade_options(
    strategy: dict[str, str] | None, creator: str, message: str | None
) -> None:
    cluster = a_ray_cluster(labels={labels.ORIGIN_KIND: creator}, upgrade_strategy=strategy)
    assert cluster_rules.upgrade_options(cluster) == message


@cases(
    ("suspending", "suspended", "message"),
    {
        "case 16: both at once never happen": ("True", "True", SUSPENDING_AND_SUSPENDED),
        "suspending": ("True", "False", None),
        "suspended": ("False", "True", None),
    },
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
