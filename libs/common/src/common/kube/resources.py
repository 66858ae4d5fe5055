"""The kinds that raybus uses, and the only builder of API server paths.

A name may come from a tenant: from a field, an annotation, a label or a status. Kubernetes rejects
an object with an illegal name, so `Resource.path` rejects an illegal name before any request, and
percent-encodes a legal one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from common import errors
from common.api.kubernetes_syntax import (
    dns_1123_problems,
    dns_1123_subdomain_problems,
    label_key_problems,
    label_value_problems,
    path_segment_problems,
)

_SHOWN: Final = 100
"""Maximum characters of an illegal name that an error message repeats."""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object, and where the API server serves it."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    name_problems: Callable[[str], list[str]] = dns_1123_subdomain_problems
    """Returns the reasons why a text is not a legal name of this kind; empty if it is legal."""
    is_flat: bool = False
    """Whether the kind has no free-form fields, so that no user can nest values deeply in an
    object.
    """

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, of an object, or of a subresource.

        Raises `InvalidSpec` for a namespace or a name that is illegal for its kind.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", _check_name(NAMESPACE, namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_check_name(self, name))
        parts += [subresource] if subresource is not None else []
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def proxy(self, namespace: str, name: str, port: int | str, path: str) -> str:
        """Return the path to a port of a Pod or a Service through the API server's proxy.

        `path` is appended without escaping, so it must be a constant of raybus.
        """
        own = self.path(namespace, name)
        return f"{own}:{quote(str(port), safe='')}/proxy{path}"


def find_name_violation(resource: Resource, name: str) -> str | None:
    """Return why a name is illegal for a kind; None if it is legal."""
    return "; ".join(resource.name_problems(name)) or None


def format_selector(marks: Mapping[str, str]) -> str:
    """Return the label selector for objects with all these labels.

    Raises `InvalidSpec` for a text that is not a legal label.
    """
    for key, value in marks.items():
        if problems := [*label_key_problems(key), *label_value_problems(value)]:
            raise errors.InvalidSpec(
                f"{_quote(f'{key}={value}')} is not a label: {'; '.join(problems)}"
            )
    return ",".join(f"{key}={value}" for key, value in marks.items())


def _check_name(resource: Resource, name: str) -> str:
    if problem := find_name_violation(resource, name):
        raise errors.InvalidSpec(f"{_quote(name)} is not the name of a {resource.kind}: {problem}")
    return name


def _quote(name: str) -> str:
    return msgspec.json.encode(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…").decode()


RAY_CLUSTER: Final = Resource(group="ray.io", kind="RayCluster", plural="rayclusters")
RAY_SERVICE: Final = Resource(group="ray.io", kind="RayService", plural="rayservices")
RAY_JOB: Final = Resource(group="ray.io", kind="RayJob", plural="rayjobs")
RAY_CRON_JOB: Final = Resource(group="ray.io", kind="RayCronJob", plural="raycronjobs")
UPGRADE_POLICY: Final = Resource(
    group="raybus.io", version="v1alpha1", kind="UpgradePolicy", plural="upgradepolicies"
)
NAMESPACE: Final = Resource(kind="Namespace", plural="namespaces", name_problems=dns_1123_problems)
POD: Final = Resource(kind="Pod", plural="pods", is_flat=True)
SERVICE: Final = Resource(
    kind="Service", plural="services", name_problems=dns_1123_problems, is_flat=True
)
CONFIG_MAP: Final = Resource(kind="ConfigMap", plural="configmaps")
SECRET: Final = Resource(kind="Secret", plural="secrets")
SERVICE_ACCOUNT: Final = Resource(kind="ServiceAccount", plural="serviceaccounts")
PERSISTENT_VOLUME_CLAIM: Final = Resource(
    kind="PersistentVolumeClaim", plural="persistentvolumeclaims"
)
_rbac: Final = partial(
    Resource, group="rbac.authorization.k8s.io", name_problems=path_segment_problems
)
ROLE: Final = _rbac(kind="Role", plural="roles")
ROLE_BINDING: Final = _rbac(kind="RoleBinding", plural="rolebindings")
JOB: Final = Resource(group="batch", kind="Job", plural="jobs")
INGRESS: Final = Resource(group="networking.k8s.io", kind="Ingress", plural="ingresses")
NETWORK_POLICY: Final = Resource(
    group="networking.k8s.io", kind="NetworkPolicy", plural="networkpolicies"
)
ISSUER: Final = Resource(group="cert-manager.io", kind="Issuer", plural="issuers")
CERTIFICATE: Final = Resource(group="cert-manager.io", kind="Certificate", plural="certificates")
POD_DISRUPTION_BUDGET: Final = Resource(
    group="policy", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
ENDPOINT_SLICE: Final = Resource(
    group="discovery.k8s.io", kind="EndpointSlice", plural="endpointslices", is_flat=True
)
EVENT: Final = Resource(group="events.k8s.io", kind="Event", plural="events")
LEASE: Final = Resource(group="coordination.k8s.io", kind="Lease", plural="leases")
CONTROLLER_REVISION: Final = Resource(
    group="apps", kind="ControllerRevision", plural="controllerrevisions"
)
GATEWAY: Final = Resource(group="gateway.networking.k8s.io", kind="Gateway", plural="gateways")
GATEWAY_CLASS: Final = Resource(
    group="gateway.networking.k8s.io", kind="GatewayClass", plural="gatewayclasses"
)
HTTP_ROUTE: Final = Resource(
    group="gateway.networking.k8s.io", kind="HTTPRoute", plural="httproutes"
)
GRPC_ROUTE: Final = Resource(
    group="gateway.networking.k8s.io", kind="GRPCRoute", plural="grpcroutes"
)
