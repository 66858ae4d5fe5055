"""Which collections the watcher follows: pure.

Label selectors exclude objects of others. A selector has no "or", so Services, and the EndpointSlices that carry
their labels, are followed in three parts that exclude one another. Gateway API kinds are optional: their CRDs may come
later, or never.
"""

from collections.abc import Sequence
from typing import Final

from common import labels
from common.kube import resources
from common.kube.resources import Resource
from common.kube.watch import Target

_CLUSTER: Final = labels.CLUSTER
_ORIGIN: Final = f"!{labels.CLUSTER},{labels.ORIGIN_NAME}"
_HEADLESS: Final = f"!{labels.CLUSTER},!{labels.ORIGIN_NAME},{labels.HEADLESS_WORKER_SERVICE}"

REQUIRED: Final[tuple[tuple[Resource, str], ...]] = (
    (resources.RAY_SERVICE, ""),
    (resources.RAY_CLUSTER, ""),
    (resources.SERVICE, _CLUSTER),
    (resources.SERVICE, _ORIGIN),
    (resources.SERVICE, _HEADLESS),
    (resources.POD, labels.NODE_TYPE),
    (resources.ENDPOINT_SLICE, _CLUSTER),
    (resources.ENDPOINT_SLICE, _ORIGIN),
    (resources.JOB, f"{labels.APP_CREATED_BY}={labels.KUBERAY_OPERATOR}"),
    (resources.CONTROLLER_REVISION, labels.CLUSTER),
)
OPTIONAL: Final = (resources.GATEWAY, resources.HTTP_ROUTE, resources.GRPC_ROUTE)


def targets(namespaces: Sequence[str]) -> list[Target]:
    """Return what to follow in some namespaces; no namespace means all."""
    return [
        target
        for namespace in (namespaces or [None])
        for target in (
            *(Target(resource=kind, namespace=namespace, selector=selector) for kind, selector in REQUIRED),
            *(Target(resource=kind, namespace=namespace, is_optional=True) for kind in OPTIONAL),
        )
    ]
