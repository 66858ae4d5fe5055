"""Decide which objects, and which of their fields, the watcher publishes; no I/O.

Label selectors exclude the objects of other applications. A selector cannot express "or". Services
and EndpointSlices are therefore watched by two or three selectors that exclude one another. The
kinds of the Gateway API, RayJob and RayCronJob are optional, because their CRDs may be installed
later or never.

For kinds with a view (a class in `common.api.core` with the fields that raybus reads), only these
fields are kept. For all other kinds, everything except bookkeeping fields is kept. KubeRay copies
the annotations of a RayService or a RayJob to its RayClusters, including kubectl's last-applied
annotation (spec rayservice §4.3, rayjob §4), so these kinds keep that annotation.

A pod that is not running yet changes several times per second, and no decision depends on these
changes. Such a pod's state is therefore published with a delay, so that a newer state can replace
it. The EndpointSlices of RayServices and of the RayClusters of RayJobs are published, because they
are read. Those of other RayClusters and of a RayJob's own head Service are not.

An object whose state cannot be published is in quarantine. Instead of its state, the watcher
publishes the reason, and metadata by which readers find the root of the object's tree. Reconcilers
make no decision about that tree. All other objects are handled as usual.
"""

from typing import Any, Final, TypeAlias, cast

import msgspec

from common import labels
from common.api import core
from common.api.meta import Envelope, ObjectMeta
from common.api.opaque import Body
from common.bus.messages import ObjectState, Quarantined
from common.bus.subjects import TreeKind, TreeLocation
from common.kube import resources
from common.kube.resources import Resource

_ORIGIN: Final = f"!{labels.CLUSTER},{labels.ORIGIN_NAME}"
_HEADLESS: Final = f"!{labels.CLUSTER},!{labels.ORIGIN_NAME},{labels.HEADLESS_WORKER_SERVICE}"
REQUIRED: Final[tuple[tuple[Resource, str], ...]] = (
    (resources.RAY_SERVICE, ""),
    (resources.RAY_CLUSTER, ""),
    (resources.SERVICE, labels.CLUSTER),
    (resources.SERVICE, _ORIGIN),
    (resources.SERVICE, _HEADLESS),
    (resources.POD, labels.NODE_TYPE),
    (resources.ENDPOINT_SLICE, labels.CLUSTER),
    (resources.ENDPOINT_SLICE, f"{_ORIGIN},{labels.ORIGIN_KIND}!=RayJob"),
    (resources.JOB, f"{labels.APP_CREATED_BY}={labels.KUBERAY_OPERATOR}"),
    (resources.CONTROLLER_REVISION, labels.CLUSTER),
)
"""Kinds that the API server must serve, each with the label selector of the watched objects.

An empty selector stands for all objects. A kind is watched once for each of its selectors.
"""
OPTIONAL: Final = (
    resources.RAY_JOB,
    resources.RAY_CRON_JOB,
    resources.GATEWAY,
    resources.HTTP_ROUTE,
    resources.GRPC_ROUTE,
)

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
KEEP_LAST_APPLIED: Final = frozenset({"RayService", "RayJob", "RayCluster"})
NEVER_PUBLISHED: Final = frozenset({"Secret"})
"""Kinds that must never be published on the bus."""
ENVIRONMENTS: Final = frozenset({"env", "envFrom"})
View: TypeAlias = core.Pod | core.EndpointSlice | core.Job
"""A decoded object of a kind of which only some fields are published."""
VIEWS: Final[dict[str, type[core.Pod] | type[core.EndpointSlice] | type[core.Job]]] = {
    "Pod": core.Pod,
    "EndpointSlice": core.EndpointSlice,
    "Job": core.Job,
}
_DECODERS: Final = {kind: msgspec.json.Decoder(view) for kind, view in VIEWS.items()}
ROOT_LABELS: Final = frozenset(
    {
        labels.CLUSTER,
        labels.ORIGIN_NAME,
        labels.ORIGIN_KIND,
        labels.SERVICE_NAME,
        labels.HEADLESS_WORKER_SERVICE,
    }
)
"""Labels by which a reader finds the root of an object in quarantine."""
MAX_REASON_LENGTH: Final = 512
"""Maximum length of a quarantine reason, in characters."""
PENDING_SECONDS: Final = 1.0
"""Seconds for which the state of a pending pod is held back, in case a newer state replaces it."""


def is_read(kind: str, location: TreeLocation) -> bool:
    """Return whether any service reads objects of this kind in the tree `location`."""
    return kind != "EndpointSlice" or location.tree is not TreeKind.CLUSTER


def seconds_to_wait(view: View | None) -> float:
    """Return for how many seconds an object's state is held back before it is published.

    A newer state may replace it in this time. Only the state of a pending pod that is not being
    deleted is held back; the result is 0 for every other state. `view` is None for an object
    without a view, and for an object that cannot be decoded as a view.
    """
    may_wait = (
        isinstance(view, core.Pod)
        and view.metadata.deletion_timestamp is None
        and view.status.phase == "Pending"
    )
    return PENDING_SECONDS if may_wait else 0.0


def decode_view(resource: Resource, raw: bytes) -> View | None:
    """Decode the view of an object from JSON.

    Returns None for a kind without a view, and for an object that cannot be decoded as a view. The
    metadata of such an object may still be readable.
    """
    decoder = _DECODERS.get(resource.kind)
    if decoder is None:
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def trim(resource: Resource, state: bytes | View) -> bytes:
    """Return the JSON of an object with only the fields that are published.

    `state` is the JSON of the object, or its view. Raises `ValueError` for a kind that must never
    be published.
    """
    if resource.kind in NEVER_PUBLISHED:
        raise ValueError(f"a {resource.kind} must not be published")
    view = decode_view(resource, state) if isinstance(state, bytes) else state
    if view is None:
        body = msgspec.json.decode(cast("bytes", state))
        is_misfit = resource.kind in VIEWS
        return _encode_body(resource, _without_environments(body) if is_misfit else body)
    trimmed = msgspec.json.encode(view)
    if LAST_APPLIED in view.metadata.annotations:
        return _encode_body(resource, msgspec.json.decode(trimmed))
    return (
        f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode() + trimmed[1:]
    )


def _without_environments(value: Any) -> Any:
    """Return a copy of a JSON value without the environments of containers, which may hold secrets.

    Used for an object that does not decode as the view of its kind.
    """
    if isinstance(value, list):
        return [_without_environments(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_environments(item)
        for name, item in cast("dict[str, Any]", value).items()
        if not (name in ENVIRONMENTS and isinstance(item, list))
    }


def _encode_body(resource: Resource, body: Body) -> bytes:
    """Return the JSON of an object without bookkeeping fields, and with its `apiVersion` and kind.

    The items of an API server's list do not contain their kind.
    """
    metadata: Body = body["metadata"]
    metadata.pop("managedFields", None)
    annotations: Body = metadata.get("annotations") or {}
    if resource.kind not in KEEP_LAST_APPLIED:
        annotations.pop(LAST_APPLIED, None)
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})


def make_quarantined(kind: str, meta: ObjectMeta, reason: str) -> Quarantined:
    """Return the message that replaces the state of an object that cannot be published.

    The message is small, whatever the object contains.
    """
    metadata = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels={name: value for name, value in meta.labels.items() if name in ROOT_LABELS},
        owner_references=[owner for owner in meta.owner_references if owner.controller],
    )
    return Quarantined(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        body=msgspec.json.encode(Envelope(metadata)),
        why=reason[:MAX_REASON_LENGTH],
    )


def quarantine_state(state: ObjectState, reason: str) -> Quarantined:
    """Return the message that replaces a state that the NATS server rejected."""
    try:
        meta = msgspec.json.decode(state.body, type=Envelope).metadata
    except (msgspec.DecodeError, RecursionError):
        meta = ObjectMeta()
    location = {
        "name": state.name,
        "namespace": state.namespace,
        "uid": state.uid,
        "resource_version": state.version,
    }
    return make_quarantined(state.kind, msgspec.structs.replace(meta, **location), reason)
