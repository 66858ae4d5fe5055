"""The Services of a RayService.

`<RayService>-head-svc` selects the head of the serving cluster (spec rayservice §10.1). Users send
their requests to `<RayService>-serve-svc` (§10.2, §10.3; acceptance 32-35).
"""

from typing import cast

from common import labels, names
from common.api.core import Service
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.errors import InvalidSpec
from common.ray import head_service, owner, ports


def head(service: RayService, cluster: str, *, config: Json, has_cluster_ip: bool) -> Body:
    """Return the head Service, which selects the head of `cluster`, whose spec is `config`."""
    return head_service.build(
        service.metadata,
        owner.KIND,
        cluster=cluster,
        config=config,
        has_cluster_ip=has_cluster_ip,
    )


def serve(service: RayService, cluster: str, *, config: Json, is_shared: bool = False) -> Body:
    """Return the Serve Service, which selects the ready proxies of `cluster`.

    `config` is the spec of the cluster. A shared Service selects pods of two clusters by a label of
    raybus. Raises `InvalidSpec` if the Service would have no port.
    """
    serve_ports, name = ports.of_serve(config), service.metadata.name
    if not serve_ports and service.raw_spec.get("serveService") is None:
        raise InvalidSpec(ports.NO_PORT)
    template: Json = service.raw_spec.get("serveService") or {}
    given: Json = template.get("spec") or {}
    choice = {labels.SERVES: name} if is_shared else {labels.CLUSTER: cluster}
    declared = cast("list[Json]", given.get("ports") or [])
    by_name = {port.get("name"): port for port in declared}
    numbers = [by_name.get(port["name"], port) for port in serve_ports] if serve_ports else declared
    spec = {**given, "selector": {**choice, labels.SERVE: "true"}, "ports": numbers}
    if kind := given.get("type") or ports.head_group(config).get("serviceType"):
        spec["type"] = kind
    meta: Json = template.get("metadata") or {}
    own = {**owner.marks(name), labels.SERVE: names.checked_label(f"{name}-serve")}
    return _service(
        service, serve_name(service), template, {**(meta.get("labels") or {}), **own}, spec
    )


def preview(service: RayService, cluster: str, *, config: Json) -> Body:
    """Return the preview Service, which selects a cluster's proxies before its first traffic."""
    name = service.metadata.name
    spec: Json = {
        "selector": {labels.CLUSTER: cluster, labels.SERVE: "true"},
        "ports": ports.of_serve(config),
    }
    return _service(service, names.preview_service(name), {}, owner.marks(name), spec)


def serve_name(service: RayService) -> str:
    """Return the name of the Serve Service: the name in the user's template, else the default."""
    template: Json = service.raw_spec.get("serveService") or {}
    meta: Json = template.get("metadata") or {}
    return meta.get("name") or names.serve_service(service.metadata.name)


def selected(have: Service | None) -> str:
    """Return the name of the cluster that a Service selects; empty if it selects none."""
    return have.spec.selector.get(labels.CLUSTER, "") if have is not None else ""


def selects_same(have: Service, want: Body) -> bool:
    """Return whether the Service `have` selects the same pods as `want`, whatever else differs.

    False if `have` selects a different cluster, or requires head labels that the head pod lacks.
    """
    actual, wanted = have.spec.selector, want["spec"]["selector"]
    is_same = all(
        actual.get(key, "") == wanted.get(key, "") for key in (labels.CLUSTER, labels.SERVES)
    )
    return is_same and all(
        actual.get(key) in {None, wanted[key]} for key in ports.USERS_LABELS if key in wanted
    )


def _service(
    service: RayService, name: str, template: Json, marks: dict[str, str], spec: Json
) -> Body:
    given: Json = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": marks,
            "annotations": given.get("annotations") or {},
            "ownerReferences": owner.reference(service.metadata),
        },
        "spec": spec,
    }
