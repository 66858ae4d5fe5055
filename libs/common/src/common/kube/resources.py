"""The kinds that we read and write, and their paths at the API server."""

from typing import Final

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A kind as the API server addresses it."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """Return what `apiVersion` says in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of one of its subresources."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(parts)


RAY_CLUSTER: Final = Resource(group="ray.io", kind="RayCluster", plural="rayclusters")
RAY_SERVICE: Final = Resource(group="ray.io", kind="RayService", plural="rayservices")
NAMESPACE: Final = Resource(kind="Namespace", plural="namespaces")
POD: Final = Resource(kind="Pod", plural="pods")
SERVICE: Final = Resource(kind="Service", plural="services")
CONFIG_MAP: Final = Resource(kind="ConfigMap", plural="configmaps")
SECRET: Final = Resource(kind="Secret", plural="secrets")
SERVICE_ACCOUNT: Final = Resource(kind="ServiceAccount", plural="serviceaccounts")
PERSISTENT_VOLUME_CLAIM: Final = Resource(kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
ROLE: Final = Resource(group="rbac.authorization.k8s.io", kind="Role", plural="roles")
ROLE_BINDING: Final = Resource(group="rbac.authorization.k8s.io", kind="RoleBinding", plural="rolebindings")
JOB: Final = Resource(group="batch", kind="Job", plural="jobs")
INGRESS: Final = Resource(group="networking.k8s.io", kind="Ingress", plural="ingresses")
ENDPOINT_SLICE: Final = Resource(group="discovery.k8s.io", kind="EndpointSlice", plural="endpointslices")
EVENT: Final = Resource(group="events.k8s.io", kind="Event", plural="events")
LEASE: Final = Resource(group="coordination.k8s.io", kind="Lease", plural="leases")
CONTROLLER_REVISION: Final = Resource(group="apps", kind="ControllerRevision", plural="controllerrevisions")
GATEWAY: Final = Resource(group="gateway.networking.k8s.io", kind="Gateway", plural="gateways")
HTTP_ROUTE: Final = Resource(group="gateway.networking.k8s.io", kind="HTTPRoute", plural="httproutes")
GRPC_ROUTE: Final = Resource(group="gateway.networking.k8s.io", kind="GRPCRoute", plural="grpcroutes")
