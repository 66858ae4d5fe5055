"""The rights of each ServiceAccount, written out: a change of the manifests must also change this
table.
"""

import pytest

from common.bus import nkeys
from common.ray.dashboard_token import ACCOUNT
from nats_admin import key_registry
from support import manifests
from support.manifests import BASE, DEPLOY

ALL = [
    *manifests.read(BASE),
    *manifests.read(DEPLOY / "rights" / "everywhere"),
    *manifests.read(DEPLOY / "components" / "notifications"),
    *manifests.read(DEPLOY / "components" / "dashboard"),
]
MTLS = manifests.read(DEPLOY / "components" / "mtls")
READ = {"get", "list", "watch"}
GATEWAY = "cluster gateway.networking.k8s.io"

LEASES_OF_REPLICAS: dict[str, set[str]] = {
    "own coordination.k8s.io/leases": {"list", "create", "update", "delete"}
}

PROVISIONERS = ("provisioner", "provisioner-outside")


def keys(*users: str) -> dict[str, set[str]]:
    """Return the rights of the process that registers the keys of some users of NATS."""
    own = {f"own /configmaps={nkeys.KEYS_PREFIX}{user}": {"get", "patch"} for user in users}
    return {**own, f"own /configmaps={nkeys.SERVERS}": {"get"}}


IDENTITY = {"cluster /namespaces=kube-system": {"get"}}

EXPECTED: dict[str, dict[str, set[str]]] = {
    "notifications": keys(nkeys.NAMED),
    "dashboard": {
        **keys("subscriber"),
        "cluster authentication.k8s.io/tokenreviews": {"create"},
        "cluster authorization.k8s.io/subjectaccessreviews": {"create"},
        "cluster ray.io/rayservices": {"get", "list"},
        "cluster ray.io/rayclusters": {"get", "list"},
        "cluster ray.io/rayjobs": {"list"},
        "cluster ray.io/raycronjobs": {"list"},
        "cluster /pods": {"list"},
        "cluster /pods/log": {"get"},
        "cluster /services": {"list"},
        "cluster /services/proxy": {"get"},
        "cluster /resourcequotas": {"list"},
        "cluster apps/controllerrevisions": {"list"},
        "cluster events.k8s.io/events": {"list"},
        f"{GATEWAY}/gateways": {"get"},
        f"{GATEWAY}/httproutes": {"get"},
        f"{GATEWAY}/grpcroutes": {"get"},
    },
    "watcher": {
        **IDENTITY,
        **keys("watcher"),
        "cluster ray.io/rayclusters": READ,
        "cluster ray.io/rayservices": READ,
        "cluster ray.io/rayjobs": READ,
        "cluster ray.io/raycronjobs": READ,
        "cluster /pods": READ,
        "cluster /services": READ,
        "cluster apps/controllerrevisions": READ,
        "cluster batch/jobs": READ,
        "cluster discovery.k8s.io/endpointslices": READ,
        f"{GATEWAY}/gateways": READ,
        f"{GATEWAY}/httproutes": READ,
        f"{GATEWAY}/grpcroutes": READ,
        "own coordination.k8s.io/leases=ray-operator-leader": {"get", "update"},
        "own coordination.k8s.io/leases": {"create"},
    },
    "cluster-reconciler": {
        **IDENTITY,
        **keys("cluster-reconciler"),
        **LEASES_OF_REPLICAS,
        "cluster ray.io/rayclusters": {"get", "patch"},
        "cluster ray.io/rayclusters/status": {"update"},
        "cluster ray.io/rayclusters/finalizers": {"update"},
        "cluster /pods": {*READ, "create", "patch", "delete", "deletecollection"},
        "cluster /pods/resize": {"patch"},
        "cluster /services": {"get", "create", "patch"},
        "cluster /serviceaccounts": {"get", "create"},
        "cluster /persistentvolumeclaims": {"get", "create", "update"},
        "cluster /secrets": {"get", "create"},
        "cluster /configmaps": {"get", "create"},
        "cluster rbac.authorization.k8s.io/roles": {"get", "create"},
        "cluster rbac.authorization.k8s.io/rolebindings": {"get", "create"},
        "cluster networking.k8s.io/ingresses": {"get", "create", "update"},
        "cluster networking.k8s.io/networkpolicies": {"get", "list", "create", "update", "delete"},
        "cluster policy/poddisruptionbudgets": {"get", "list", "create", "update", "delete"},
        "cluster route.openshift.io/routes": {"get", "create"},
        "cluster scheduling.volcano.sh/podgroups": {"get", "create", "update", "delete"},
        "cluster scheduling.x-k8s.io/podgroups": {"get", "create", "delete"},
        "cluster scheduling.k8s.io/workloads": {"get", "create", "delete"},
        "cluster scheduling.k8s.io/podgroups": {"get", "create", "update", "delete"},
        "cluster batch/jobs": {"get", "create"},
        "cluster events.k8s.io/events": {"create", "patch"},
    },
    "service-reconciler": {
        **IDENTITY,
        **keys("service-reconciler"),
        **LEASES_OF_REPLICAS,
        "cluster ray.io/rayservices": {"get", "patch"},
        "cluster ray.io/rayservices/status": {"update"},
        "cluster ray.io/rayservices/finalizers": {"update"},
        "cluster ray.io/rayclusters/finalizers": {"update"},
        "cluster ray.io/rayclusters": {"get", "create", "patch", "delete"},
        "cluster raybus.io/upgradepolicies": READ,
        "cluster raybus.io/upgradepolicies/status": {"patch"},
        "cluster /services": {"get", "create", "patch", "delete"},
        "cluster /pods": {"get", "patch"},
        "cluster /secrets": {"get"},
        f"cluster /serviceaccounts/token={ACCOUNT}": {"create"},
        "cluster apps/controllerrevisions": {"get", "list", "create", "patch", "delete"},
        f"{GATEWAY}/gateways": {"get"},
        f"{GATEWAY}/httproutes": {"get"},
        f"{GATEWAY}/grpcroutes": {"get"},
        "cluster events.k8s.io/events": {"create", "patch"},
    },
    "traffic-manager": {
        **IDENTITY,
        **keys("traffic-manager"),
        **LEASES_OF_REPLICAS,
        "cluster ray.io/rayservices": {"get"},
        "cluster ray.io/rayclusters": {"get"},
        "cluster ray.io/rayservices/finalizers": {"update"},
        "cluster ray.io/rayclusters/finalizers": {"update"},
        f"{GATEWAY}/gateways": {"get", "create", "patch", "delete"},
        f"{GATEWAY}/gatewayclasses": {"get"},
        f"{GATEWAY}/httproutes": {"get", "create", "patch", "delete"},
        f"{GATEWAY}/grpcroutes": {"get", "create", "patch", "delete"},
        "cluster /services": {"get", "create"},
        "cluster discovery.k8s.io/endpointslices": {"list"},
        "cluster /secrets": {"get"},
        f"cluster /serviceaccounts/token={ACCOUNT}": {"create"},
        "cluster apps/controllerrevisions": {"get", "list", "create", "patch", "delete"},
        "cluster events.k8s.io/events": {"create", "patch"},
    },
    "job-reconciler": {
        **IDENTITY,
        **keys("job-reconciler"),
        **LEASES_OF_REPLICAS,
        "cluster ray.io/rayjobs": {"get", "create", "patch", "delete"},
        "cluster ray.io/rayjobs/status": {"update"},
        "cluster ray.io/rayjobs/finalizers": {"update"},
        "cluster ray.io/raycronjobs": {"get"},
        "cluster ray.io/raycronjobs/status": {"update"},
        "cluster ray.io/raycronjobs/finalizers": {"update"},
        "cluster ray.io/rayclusters": {"get", "create", "patch", "delete"},
        "cluster batch/jobs": {"get", "create", "delete"},
        "cluster /services": {"get", "create", "patch"},
        "cluster discovery.k8s.io/endpointslices": {"list"},
        "cluster /secrets": {"get"},
        f"cluster /serviceaccounts/token={ACCOUNT}": {"create"},
        "cluster scheduling.volcano.sh/podgroups": {"get", "create", "update", "delete"},
        "cluster events.k8s.io/events": {"create", "patch"},
    },
    "nats": {
        "own /configmaps": {"list", "watch"},
        "own /pods": {"list"},
        f"own /configmaps={nkeys.SERVERS}": {"patch"},
        **{
            f"own /configmaps={nkeys.KEYS_PREFIX}{user}": {"patch"}
            for user in key_registry.PROCESSES
        },
    },
    "nats-streams": keys(*PROVISIONERS),
}


@pytest.mark.parametrize("account", EXPECTED)
def test_an_account_may_do_this_and_nothing_else(account: str) -> None:
    assert manifests.rights(ALL, account) == EXPECTED[account]


def test_certificates_need_rights_that_only_their_component_gives() -> None:
    assert manifests.rights(MTLS, "cluster-reconciler") == {
        "cluster cert-manager.io/issuers": {"get", "create"},
        "cluster cert-manager.io/certificates": {"get", "create", "update"},
        "cluster /secrets": {"patch"},
    }
    assert {each["kind"] for each in MTLS} == {"ClusterRole", "ClusterRoleBinding"}


@pytest.mark.parametrize("account", ["service-reconciler", "traffic-manager"])
def test_the_proxy_of_the_api_server_needs_rights_that_only_its_component_gives(
    account: str,
) -> None:
    proxy = manifests.read(manifests.DEPLOY / "rights/kubernetes-proxy")
    assert manifests.rights(proxy, account) == {
        "cluster /services/proxy": {"get", "update"},
        "cluster /pods/proxy": {"get"},
    }


def test_the_jobs_api_is_reached_through_the_proxy_with_the_same_component() -> None:
    proxy = manifests.read(manifests.DEPLOY / "rights/kubernetes-proxy")
    assert manifests.rights(proxy, "job-reconciler") == {
        "cluster /services/proxy": {"get", "create"}
    }


def test_every_account_is_in_the_table() -> None:
    accounts = {each["metadata"]["name"] for each in manifests.of_kind(ALL, "ServiceAccount")}
    assert accounts == EXPECTED.keys()


@pytest.mark.parametrize(
    "role", manifests.of_kind(ALL, "Role", "ClusterRole"), ids=lambda role: role["metadata"]["name"]
)
def test_no_rule_allows_everything(role: manifests.Document) -> None:
    for rule in role["rules"]:
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_an_operator_holds_what_it_grants_to_the_autoscaler() -> None:
    held = manifests.rights(ALL, "cluster-reconciler")
    assert held["cluster /pods"] >= {"get", "list", "watch", "patch"}
    assert held["cluster /pods/resize"] >= {"patch"}
    assert held["cluster ray.io/rayclusters"] >= {"get", "patch"}
