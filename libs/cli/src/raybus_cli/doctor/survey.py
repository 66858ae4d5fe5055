"""Reads the facts about an installation from the API server.

Facts that the caller may not read stay unknown.
"""

from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

import msgspec

from common import errors, feature_gates, labels
from common.api.core import KeyedData
from common.api.gateway import GatewayClass
from common.api.meta import Items
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.bus import nkeys
from common.feature_gates import FeatureGate, Gates
from common.kube.client import Kube, KubeClient
from common.kube.resources import CONFIG_MAP, GATEWAY_CLASS, LEASE, RAY_SERVICE, Resource
from common.ray import serve_writer
from raybus_cli.doctor import operator as operators
from raybus_cli.doctor.facts import (
    MTLS_SUBJECT,
    RECONCILERS,
    Facts,
    Lease,
    Right,
    StorageClass,
    Watching,
    Workload,
)

T = TypeVar("T")
DEPLOYMENT: Final = Resource(group="apps", kind="Deployment", plural="deployments")
STATEFUL_SET: Final = Resource(group="apps", kind="StatefulSet", plural="statefulsets")
CRD: Final = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
)
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
DEFINITIONS: Final = (
    "rayclusters.ray.io",
    "rayservices.ray.io",
    "rayjobs.ray.io",
    "raycronjobs.ray.io",
    "upgradepolicies.raybus.io",
)
_RIGHTS_OF_CALLER: Final = (
    ("get", "ray.io", "rayservices"),
    ("list", "ray.io", "rayclusters"),
    ("patch", "ray.io", "rayservices"),
    ("list", "", "pods"),
    ("list", "events.k8s.io", "events"),
)
RIGHTS_OF_SERVICES: Final = (
    ("watcher", "watch", "ray.io", "rayservices"),
    ("watcher", "watch", "", "pods"),
    ("cluster-reconciler", "create", "", "pods"),
    ("cluster-reconciler", "patch", "ray.io", "rayclusters"),
    ("service-reconciler", "create", "ray.io", "rayclusters"),
    ("service-reconciler", "create", "apps", "controllerrevisions"),
    ("traffic-manager", "create", "gateway.networking.k8s.io", "httproutes"),
    ("job-reconciler", "create", "ray.io", "rayclusters"),
    ("job-reconciler", "create", "batch", "jobs"),
)


RIGHTS_OF_MTLS: Final = (
    (MTLS_SUBJECT, "create", "cert-manager.io", "issuers"),
    (MTLS_SUBJECT, "create", "cert-manager.io", "certificates"),
    (MTLS_SUBJECT, "patch", "", "secrets"),
)
"""Additional rights of cluster-reconciler while the gate RayClusterMTLS is on."""
CERT_MANAGER: Final = "/apis/cert-manager.io/v1"


STORAGE_CLASS: Final = Resource(
    group="storage.k8s.io", kind="StorageClass", plural="storageclasses"
)
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"
POLICY: Final = "validatingadmissionpolicies"
RIGHTS_TO_INSTALL: Final = (
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("admissionregistration.k8s.io", POLICY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
)
"""Cluster-scoped kinds that the manifests in overlays/production create."""
RIGHTS_TO_INSTALL_INSIDE: Final = (
    ("", "configmaps"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
)
"""Namespaced kinds that the manifests in overlays/production create."""


async def read_installation(kube: KubeClient, namespace: str) -> Facts:
    """Read the facts about the installation of raybus in a namespace.

    If raybus has no pods in the namespace, but replicas outside the cluster hold Leases in any
    namespace, the facts are about those replicas.
    """
    outside = await find_outside_namespace(kube, namespace)
    namespace = outside or namespace
    deployments = await _list_all(kube, DEPLOYMENT, Workload, namespace)
    servers = await _read_unless_hidden(kube.get(CONFIG_MAP, namespace, nkeys.SERVERS))
    services = await _list_all(kube, RAY_SERVICE, RayService, None)
    gates = await read_gates(kube, deployments or [])
    watched = await watch_namespaces(kube, deployments or [])
    return Facts(
        namespace=namespace,
        is_outside=outside is not None,
        server_version=await _read_version(kube),
        definitions=await _read_definitions(kube),
        deployments=deployments,
        stateful_sets=await _list_all(kube, STATEFUL_SET, Workload, namespace),
        leases=await _list_all(kube, LEASE, Lease, namespace),
        certificates=_read_certificates(servers),
        gateway_versions=await _read_gateway_versions(kube),
        gateway_classes=await _list_all(kube, GATEWAY_CLASS, GatewayClass, None),
        ray_services=services,
        asked_classes=_list_requested_classes(services),
        kuberay=await _find_kuberay(kube),
        watch_namespaces=watched,
        gates=gates,
        has_cert_manager=await _has_cert_manager(kube) if FeatureGate.MTLS in gates else None,
        rights=await read_rights(kube, namespace, gates, watched, is_outside=outside is not None),
    )


async def find_outside_namespace(kube: Kube, namespace: str) -> str | None:
    """Return the namespace with the Leases of replicas that run outside the cluster.

    The result is None if raybus has pods in `namespace`, or if there are no such Leases. If several
    namespaces have such Leases, the one with the newest renewal is returned.
    """
    if await _has_pods(kube, namespace) is not False:
        return None
    body = await _read_unless_hidden(kube.list(LEASE, None, label_selector=labels.REPLICA_OF))
    leases = [] if body is None else msgspec.json.decode(body, type=Items[Lease]).items
    renewed = {
        lease.spec.renew_time: lease.metadata.namespace
        for lease in leases
        if lease.spec.renew_time is not None
    }
    newest = renewed[max(renewed)] if renewed else None
    return newest if newest is not None and await _has_pods(kube, newest) is False else None


async def _has_pods(kube: Kube, namespace: str) -> bool | None:
    """Return whether a namespace has a Deployment of raybus.

    The result is None if the caller may not read Deployments.
    """
    deployments = await _list_all(kube, DEPLOYMENT, Workload, namespace)
    if deployments is None:
        return None
    return any(deployment.metadata.name in RECONCILERS for deployment in deployments)


async def read_prerequisites(kube: KubeClient, namespace: str) -> Facts:
    """Read the facts about a Kubernetes cluster before raybus is installed in a namespace."""
    inside = [
        await _review_right(kube, "you", None, "create", *target, namespace=namespace)
        for target in RIGHTS_TO_INSTALL_INSIDE
    ]
    return Facts(
        namespace=namespace,
        server_version=await _read_version(kube),
        definitions=await _read_definitions(kube),
        gateway_versions=await _read_gateway_versions(kube),
        gateway_classes=await _list_all(kube, GATEWAY_CLASS, GatewayClass, None),
        asked_classes=_list_requested_classes(await _list_all(kube, RAY_SERVICE, RayService, None)),
        kuberay=await _find_kuberay(kube),
        rights=[
            *[
                await _review_right(kube, "you", None, "create", *target)
                for target in RIGHTS_TO_INSTALL
            ],
            *inside,
        ],
        has_admission_policies=await _has_policies(kube),
        storage_classes=await _list_all(kube, STORAGE_CLASS, StorageClass, None),
    )


async def _read_version(kube: KubeClient) -> str:
    answer: Json = msgspec.json.decode(await kube.request("GET", "/version"))
    return str(answer.get("gitVersion", ""))


async def _read_definitions(kube: KubeClient) -> dict[str, dict[str, Any] | None] | None:
    definitions: dict[str, dict[str, Any] | None] = {}
    for name in DEFINITIONS:
        try:
            definitions[name] = msgspec.json.decode(await kube.get(CRD, None, name))
        except errors.NotFound:
            definitions[name] = None
        except errors.Forbidden:
            return None
    return definitions


async def _list_all(
    kube: Kube, resource: Resource, view: type[T], namespace: str | None
) -> list[T] | None:
    body = await _read_unless_hidden(kube.list(resource, namespace))
    return None if body is None else msgspec.json.decode(body, type=Items[view]).items


def _read_certificates(servers: bytes | None) -> list[bytes] | None:
    if servers is None:
        return None
    return [text.encode() for text in msgspec.json.decode(servers, type=KeyedData).data.values()]


async def _read_gateway_versions(kube: KubeClient) -> list[str] | None:
    try:
        answer: Json = msgspec.json.decode(
            await kube.request("GET", f"/apis/{GATEWAY_CLASS.group}")
        )
    except errors.NotFound:
        return []
    except errors.Forbidden:
        return None
    return [str(version["version"]) for version in cast("list[Json]", answer.get("versions") or [])]


async def _has_policies(kube: KubeClient) -> bool | None:
    try:
        answer: Json = msgspec.json.decode(await kube.request("GET", POLICIES))
    except errors.NotFound:
        return False
    except errors.Forbidden:
        return None
    return any(
        resource["name"] == POLICY for resource in cast("list[Json]", answer.get("resources") or [])
    )


def _list_requested_classes(services: list[RayService] | None) -> frozenset[str]:
    return frozenset(name for service in services or () if (name := _find_gateway_class(service)))


def _find_gateway_class(service: RayService) -> str:
    asks = serve_writer.asks_for_steps(service)
    return str(service.raw_upgrade_options.get("gatewayClassName") or "") if asks else ""


async def _find_kuberay(kube: KubeClient) -> list[Watching] | None:
    deployments = await _list_all(kube, DEPLOYMENT, Workload, None)
    if deployments is None:
        return None
    running = [
        operators.read_operator(deployment) for deployment in operators.select_kuberay(deployments)
    ]
    return [
        Watching(operator.place, operator.namespaces) for operator in running if operator.is_running
    ]


async def watch_namespaces(kube: Kube, deployments: list[Workload]) -> frozenset[str]:
    """Return the namespaces that an installation watches; empty for all or if unknown."""
    watcher = await _read_service(kube, deployments, "watcher")
    return frozenset() if watcher is None else watcher.namespaces


async def read_gates(kube: Kube, deployments: list[Workload]) -> Gates:
    """Return the feature gates that are on in cluster-reconciler; empty if unknown."""
    reconciler = await _read_service(kube, deployments, "cluster-reconciler")
    if reconciler is None:
        return frozenset()
    try:
        named = feature_gates.parse(reconciler.environment.get("RAYBUS_FEATURE_GATES", ""))
    except errors.InvalidSpec:  # the service does not start; another check reports that
        return frozenset()
    return feature_gates.resolve(named)


async def _read_service(
    kube: Kube, deployments: list[Workload], service: str
) -> operators.InstalledOperator | None:
    """Return the configuration of a raybus service, including variables from its ConfigMaps.

    The result is None if it cannot be read.
    """
    deployment = next(
        (candidate for candidate in deployments if candidate.metadata.name == service), None
    )
    if deployment is None:
        return None
    environment: dict[str, str] = {}
    for name in operators.list_config_maps(deployment):
        body = await _read_unless_hidden(kube.get(CONFIG_MAP, deployment.metadata.namespace, name))
        if body is None:
            return None
        environment |= msgspec.json.decode(body, type=KeyedData).data
    return operators.read_operator(deployment, environment)


async def _has_cert_manager(kube: KubeClient) -> bool | None:
    try:
        await kube.request("GET", CERT_MANAGER)
    except errors.NotFound:
        return False
    except errors.Forbidden:
        return None
    return True


async def read_rights(
    kube: Kube, namespace: str, gates: Gates, watched: frozenset[str], *, is_outside: bool = False
) -> list[Right]:
    """Return the rights of the caller and of the services, in each namespace of `watched`.

    If `watched` is empty, the rights are checked for the whole cluster; a Role cannot grant such
    rights. Services outside the cluster (`is_outside`) have the rights of their kubeconfig's user,
    so only the caller's rights are returned.
    """
    asked = [("you", *target) for target in _RIGHTS_OF_CALLER]
    if not is_outside:
        asked += [*RIGHTS_OF_SERVICES, *(RIGHTS_OF_MTLS if FeatureGate.MTLS in gates else ())]
    rights: list[Right] = []
    for place in sorted(watched) or [""]:
        for subject, *right in asked:
            user = _find_user(subject, namespace)
            rights.append(await _review_right(kube, subject, user, *right, namespace=place))
    return rights


def _find_user(subject: str, namespace: str) -> str | None:
    """Return the user name of a raybus service's ServiceAccount; None if `subject` is `you`."""
    if subject == "you":
        return None
    return f"system:serviceaccount:{namespace}:{subject.split(maxsplit=1)[0]}"


async def _review_right(
    kube: Kube,
    subject: str,
    user: str | None,
    verb: str,
    group: str,
    resource: str,
    *,
    namespace: str = "",
) -> Right:
    """Ask the API server whether `user` (None: the caller) has a right.

    `subject` is the name of the user in the report. Without `namespace`, the right must hold in the
    whole cluster.
    """
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    spec: Json = {"resourceAttributes": attributes}
    kind = "selfsubjectaccessreviews"
    if user is not None:
        kind, spec = "subjectaccessreviews", {**spec, "user": user}
    body = await _read_unless_hidden(kube.request("POST", f"{REVIEWS}/{kind}", body={"spec": spec}))
    answer: Json = {} if body is None else msgspec.json.decode(body)
    allowed = None if body is None else bool(answer["status"].get("allowed"))
    return Right(
        subject=subject,
        verb=verb,
        resource=resource,
        group=group,
        namespace=namespace,
        is_allowed=allowed,
    )


async def _read_unless_hidden(ask: Awaitable[T]) -> T | None:
    """Return the answer to the request `ask`.

    The result is None if the object does not exist or the caller may not read it.
    """
    try:
        return await ask
    except (errors.Forbidden, errors.NotFound):
        return None
