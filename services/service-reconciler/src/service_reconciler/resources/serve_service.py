"""`<RayService>-serve-svc`: where users send their requests (spec rayservice §10.2, §10.3; acceptance 32-35)."""

import copy
from collections.abc import Mapping
from typing import Final, cast

from common import labels, names
from common.api.core import Service
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.errors import InvalidSpec
from common.ray import owner, service_ports

NO_PORT: Final = (
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head container; "
    "otherwise, the Kubernetes service for Ray Serve will not be created."
)


def name(service: RayService) -> str:
    """Return the name of a RayService's Serve Service: the user's own, if the template has one."""
    template: Json = service.raw_spec.get("serveService") or {}
    meta: Json = template.get("metadata") or {}
    return meta.get("name") or names.serve_service(service.metadata.name)


def build(service: RayService, cluster: str, *, config: Json, is_shared: bool = False) -> Body:
    """Return the Service that selects a cluster's ready proxies; `InvalidSpec` when no port would be left.

    One that is shared selects pods of two clusters, by a label of our own.
    """
    meta = service.metadata
    template = cast("Json | None", service.raw_spec.get("serveService"))
    found = service_ports.of_serve(config)
    if not found and template is None:
        raise InvalidSpec(NO_PORT)
    base: Json = copy.deepcopy(template or {})
    given: Json = base.get("metadata") or {}
    spec: Json = base.get("spec") or {}
    spec |= {
        "selector": {**({labels.SERVES: meta.name} if is_shared else {labels.CLUSTER: cluster}), labels.SERVE: "true"},
        "ports": _ports(found, cast("list[Json]", spec.get("ports") or [])),
    }
    kind = spec.get("type") or service_ports.head_group(config).get("serviceType")
    if kind:
        spec["type"] = kind
    own = {**owner.marks(meta.name), labels.SERVE: names.checked_label(f"{meta.name}-serve")}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name(service),
            "namespace": meta.namespace,
            "labels": {**(given.get("labels") or {}), **own},
            "annotations": given.get("annotations") or {},
            "ownerReferences": owner.reference(meta),
        },
        "spec": spec,
    }


def selected(have: Service | None) -> str:
    """Return the cluster that a Service selects, empty when there is none."""
    return have.spec.selector.get(labels.CLUSTER, "") if have is not None else ""


def drift(have: Service, want: Body) -> str | None:
    """Return why a Service must be rewritten; only other clusters are a reason, whatever else users changed."""
    current, wanted = _choice(have.spec.selector), _choice(want["spec"]["selector"])
    return None if current == wanted else f"selects {''.join(current) or 'no cluster'} instead of {''.join(wanted)}"


def _choice(selector: Mapping[str, str]) -> tuple[str, str]:
    return selector.get(labels.CLUSTER, ""), selector.get(labels.SERVES, "")


def _ports(found: list[Body], given: list[Json]) -> list[Json]:
    if not found:
        return given
    by_name = {each.get("name"): each for each in given}
    return [by_name.get(each["name"], each) for each in found]
