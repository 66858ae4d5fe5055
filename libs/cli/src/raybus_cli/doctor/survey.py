"""Reads the facts from the API server; facts that the caller may not read stay unknown."""

from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

import msgspec

from common import errors, feature_gates
from common.api.core import Data
from common.api.meta import Items
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.bus import nkeys
from common.feature_gates import Gate, Gates
from common.kube.client import Kube, KubeClient
from common.kube.resources import CONFIG_MAP, LEASE, RAY_SERVICE, Resource
from common.ray import serve_writer
from raybus_cli.doctor import operator as operators
from raybus_cli.doctor.facts import (
    MTLS_SUBJECT,
    Facts,
    GatewayClass,
    Lease,
    Right,
    StorageClass,
    Watching,
    Workload,
)

T = TypeVar("T")
DEPLOYMENT: Final = Resource(group="apps", kind="Deployment", plural="deployments")
STATEFUL_SET: Final = Resource(group="apps", kind="StatefulSet", plural="statefulsets")
GATEWAY_CLASS: Final = Resource(
    group="gateway.networking.k8s.io", kind="GatewayClass", plural="gatewayclasses"
)
CRD: Final = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
)
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
DEFINITIONS: Final = ("rayclusters.ray.io", "rayservices.ray.io", "upgradepolicies.raybus.io")
_YOURS: Final = (
    ("get", "ray.io", "rayservices"),
    ("list", "ray.io", "rayclusters"),
    ("patch", "ray.io", "rayservices"),
    ("list", "", "pods"),
    ("list", "events.k8s.io", "events"),
)
OF_SERVICES: Final = (
    ("watcher", "watch", "ray.io", "rayservices"),
    ("watcher", "watch", "", "pods"),
    ("cluster-reconciler", "create", "", "pods"),
    ("cluster-reconciler", "patch", "ray.io", "rayclusters"),
    ("service-reconciler", "create", "ray.io", "rayclusters"),
    ("service-reconciler", "create", "apps", "controllerrevisions"),
    ("traffic-manager", "create", "gateway.networking.k8s.io", "httproutes"),
)


OF_MTLS: Final = (
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
TO_INSTALL: Final = (
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("admissionregistration.k8s.io", POLICY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
)
"""Cluster-scoped kinds that overlays/production creates."""
TO_INSTALL_INSIDE: Final = (
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
"""Kinds that overlays/production creates in its namespace."""


async def survey(kube: KubeClient, namespace: str) -> Facts:
    """Read the facts of an installation in a namespace."""
    servers = await _unless_hidden(kube.get(CONFIG_MAP, namespace, nkeys.SERVERS))
    services = await _all(kube, RAY_SERVICE, RayService, None)
    deployments = await _all(kube, DEPLOYMENT, Workload, namespace)
    gates = await gates_of(kube, deployments or [])
    watched = await watch_namespaces(kube, deployments or [])
    return Facts(
        namespace=namespace,
        server_version=await _version(kube),
        definitions=await _definitions(kube),
        deployments=deployments,
        stateful_sets=await _all(kube, STATEFUL_SET, Workload, namespace),
        leases=await _all(kube, LEASE, Lease, namespace),
        certificates=_certificates(servers),
        gateway_versions=await _gateway_versions(kube),
        gateway_classes=await _all(kube, GATEWAY_CLASS, GatewayClass, None),
        ray_services=services,
        asked_classes=_asked_classes(services),
        kuberay=await _kuberay(kube),
        watch_namespaces=watched,
        gates=gates,
        has_cert_manager=await _has_cert_manager(kube) if Gate.MTLS in gates else None,
        rights=await rights(kube, namespace, gates, watched),
    )


async def prerequisites(kube: KubeClient, namespace: str) -> Facts:
    """Read the facts of a cluster before an installation in a namespace."""
    inside = [
        await _right(kube, "you", None, "create", *each, namespace=namespace)
        for each in TO_INSTALL_INSIDE
    ]
    return Facts(
        namespace=namespace,
        server_version=await _version(kube),
        definitions=await _definitions(kube),
        gateway_versions=await _gateway_versions(kube),
        gateway_classes=await _all(kube, GATEWAY_CLASS, GatewayClass, None),
        asked_classes=_asked_classes(await _all(kube, RAY_SERVICE, RayService, None)),
        kuberay=await _kuberay(kube),
        rights=[
            *[await _right(kube, "you", None, "create", *each) for each in TO_INSTALL],
            *inside,
        ],
        has_admission_policies=await _has_policies(kube),
        storage_classes=await _all(kube, STORAGE_CLASS, StorageClass, None),
    )


async def _version(kube: KubeClient) -> str:
    answer: Json = msgspec.json.decode(await kube.request("GET", "/version"))
    return str(answer.get("gitVersion", ""))


async def _definitions(kube: KubeClient) -> dict[str, dict[str, Any] | None] | None:
    found: dict[str, dict[str, Any] | None] = {}
    for name in DEFINITIONS:
        try:
            found[name] = msgspec.json.decode(await kube.get(CRD, None, name))
        except errors.NotFound:
            found[name] = None
        except errors.Forbidden:
            return None
    return found


async def _all(
    kube: KubeClient, resource: Resource, view: type[T], namespace: str | None
) -> list[T] | None:
    body = await _unless_hidden(kube.list(resource, namespace))
    return None if body is None else msgspec.json.decode(body, type=Items[view]).items


def _certificates(servers: bytes | None) -> list[bytes] | None:
    if servers is None:
        return None
    return [text.encode() for text in msgspec.json.decode(servers, type=Data).data.values()]


async def _gateway_versions(kube: KubeClient) -> list[str] | None:
    try:
        answer: Json = msgspec.json.decode(
            await kube.request("GET", f"/apis/{GATEWAY_CLASS.group}")
        )
    except errors.NotFound:
        return []
    except errors.Forbidden:
        return None
    return [str(each["version"]) for each in cast("list[Json]", answer.get("versions") or [])]


async def _has_policies(kube: KubeClient) -> bool | None:
    try:
        answer: Json = msgspec.json.decode(await kube.request("GET", POLICIES))
    except errors.NotFound:
        return False
    except errors.Forbidden:
        return None
    return any(each["name"] == POLICY for each in cast("list[Json]", answer.get("resources") or []))


def _asked_classes(services: list[RayService] | None) -> frozenset[str]:
    return frozenset(name for each in services or () if (name := _class_of(each)))


def _class_of(service: RayService) -> str:
    asks = serve_writer.asks_for_steps(service)
    return str(service.raw_upgrade_options.get("gatewayClassName") or "") if asks else ""


async def _kuberay(kube: KubeClient) -> list[Watching] | None:
    found = await _all(kube, DEPLOYMENT, Workload, None)
    if found is None:
        return None
    running = [operators.of(each) for each in operators.kuberay(found)]
    return [Watching(each.place, each.namespaces) for each in running if each.is_running]


async def watch_namespaces(kube: Kube, deployments: list[Workload]) -> frozenset[str]:
    """Return the namespaces that an installation watches; empty for all or if unknown."""
    watcher = await _configured(kube, deployments, "watcher")
    return frozenset() if watcher is None else watcher.namespaces


async def gates_of(kube: Kube, deployments: list[Workload]) -> Gates:
    """Return the feature gates that are on in cluster-reconciler; empty if unknown."""
    reconciler = await _configured(kube, deployments, "cluster-reconciler")
    if reconciler is None:
        return frozenset()
    try:
        named = feature_gates.parse(reconciler.environment.get("RAYBUS_FEATURE_GATES", ""))
    except errors.InvalidSpec:  # the service does not start; another check reports that
        return frozenset()
    return feature_gates.resolve(named)


async def _configured(
    kube: Kube, deployments: list[Workload], service: str
) -> operators.Operator | None:
    """Return a service with the environment from its ConfigMaps; None if it cannot be read."""
    found = next((each for each in deployments if each.metadata.name == service), None)
    if found is None:
        return None
    environment: dict[str, str] = {}
    for name in operators.sources(found):
        body = await _unless_hidden(kube.get(CONFIG_MAP, found.metadata.namespace, name))
        if body is None:
            return None
        environment |= msgspec.json.decode(body, type=Data).data
    return operators.of(found, environment)


async def _has_cert_manager(kube: KubeClient) -> bool | None:
    try:
        await kube.request("GET", CERT_MANAGER)
    except errors.NotFound:
        return False
    except errors.Forbidden:
        return None
    return True


async def rights(kube: Kube, namespace: str, gates: Gates, watched: frozenset[str]) -> list[Right]:
    """Return the rights of the caller and of the services, in each watched namespace.

    Without named namespaces the rights are checked for the whole cluster, where a Role grants
    nothing.
    """
    asked = [("you", *each) for each in _YOURS]
    asked += [*OF_SERVICES, *(OF_MTLS if Gate.MTLS in gates else ())]
    found: list[Right] = []
    for place in sorted(watched) or [""]:
        for subject, *right in asked:
            user = _user(subject, namespace)
            found.append(await _right(kube, subject, user, *right, namespace=place))
    return found


def _user(subject: str, namespace: str) -> str | None:
    """Return the ServiceAccount of a raybus service; None for the caller."""
    if subject == "you":
        return None
    return f"system:serviceaccount:{namespace}:{subject.split(maxsplit=1)[0]}"


async def _right(
    kube: Kube,
    subject: str,
    user: str | None,
    verb: str,
    group: str,
    resource: str,
    *,
    namespace: str = "",
) -> Right:
    """Ask the API server for a right of a subject; without `namespace`, in the whole cluster."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    spec: Json = {"resourceAttributes": attributes}
    kind = "selfsubjectaccessreviews"
    if user is not None:
        kind, spec = "subjectaccessreviews", {**spec, "user": user}
    body = await _unless_hidden(kube.request("POST", f"{REVIEWS}/{kind}", body={"spec": spec}))
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


async def _unless_hidden(ask: Awaitable[T]) -> T | None:
    """Return the answer; None if the object does not exist or the caller may not read it."""
    try:
        return await ask
    except (errors.Forbidden, errors.NotFound):
        return None
