"""Laws that no attack of a hostile tenant may break."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from common import errors, labels
from common.api.opaque import Body, Json
from support.laws import Finding, Law, find_broken

if TYPE_CHECKING:
    from scenario.hostile.tenancy import Tenancy

MAX_RECONCILES: Final = 500
"""Maximum number of reconciles of one object by one service in 25 s; a dashboard is asked at most
four times a second, and each write is followed by a reconcile."""
INPUT_ERRORS: Final = (errors.Retryable, errors.Terminal)
POD_ADDRESSES: Final = "10.0."
ELSEWHERE: Final = frozenset({("get", "Gateway")})
"""Reads that are allowed in other namespaces: a route may use a Gateway of the platform."""


def _faults(tenancy: "Tenancy") -> Iterator[str]:
    yield from (f"the watcher begins anew: {why}" for why in tenancy.restarts)
    for each in tenancy.failures:
        if not isinstance(each.problem, INPUT_ERRORS):
            yield f"{each.controller} {each.key}: {each.problem!r} is no input error"


def _others(tenancy: "Tenancy") -> Iterator[str]:
    for each in tenancy.kube.requests:
        if each.namespace != tenancy.namespace and (each.verb, each.kind) not in ELSEWHERE:
            yield f"{each.verb} {each.kind} {each.namespace}/{each.name} is in another namespace"
    for host in tenancy.asked:
        if not (
            host.endswith(f".{tenancy.namespace}.svc.cluster.local")
            or host.startswith(POD_ADDRESSES)
        ):
            yield f"host {host} is asked, which is neither a Service nor a pod of the tenant"


def _hot(tenancy: "Tenancy") -> Iterator[str]:
    for (controller, key), count in tenancy.reconciles.items():
        if count > MAX_RECONCILES:
            yield f"{controller} reconciled {key} {count} times"


def _unexplained(tenancy: "Tenancy") -> Iterator[str]:
    """Yield the objects that were refused without a reason in an Event or status."""
    wanted = tenancy.attack.reasons
    if wanted and wanted.isdisjoint(found := tenancy.reasons()):
        yield f"none of {sorted(wanted)} is among the reasons of the object's conditions and Events: {sorted(found)}"
    events = {
        (each.body["regarding"]["kind"], each.body["regarding"]["name"])
        for each in tenancy.kube.requests
        if each.kind == "Event" and each.verb == "create"
    }
    for kind, made in (("RayService", "RayCluster"), ("RayCluster", "Pod")):
        for (of, _, name), body in tenancy.last.items():
            if (
                of == kind
                and _is_refused(tenancy, kind, made, body)
                and (kind, name) not in events
                and not _has_reason(body)
            ):
                yield f"{kind} {name} is refused without a reason"  # fmt: skip


def _is_refused(tenancy: "Tenancy", kind: str, made: str, body: Body) -> bool:
    """Return whether no objects are made for an object of ours, or its reconciles end in refusals."""
    spec: Json = body["spec"] if isinstance(body.get("spec"), dict) else {}
    if spec.get("managedBy", labels.MANAGED_BY_US) != labels.MANAGED_BY_US:
        return False
    name = body["metadata"]["name"]
    controllers = {"raycluster"} if kind == "RayCluster" else {"rayservice", "traffic"}
    refused = {
        each.key.name
        for each in tenancy.failures
        if each.controller in controllers and isinstance(each.problem, errors.Terminal)
    }
    return name in refused or not any(each.verb == "create" and each.kind == made and each.name.startswith(name[:40]) for each in tenancy.kube.requests)  # fmt: skip


def _has_reason(body: Body) -> bool:
    status: Json = body.get("status", {})
    conditions: list[Json] = status.get("conditions", [])
    return any(each.get("message") or each.get("reason") for each in conditions)


def _held(tenancy: "Tenancy") -> Iterator[str]:
    if tenancy.is_held():
        yield "the deleted object has a finalizer of ours past every limit"


def _of_tenant(
    check: Callable[["Tenancy"], Iterator[str]],
) -> Callable[["Tenancy"], Iterator[Finding]]:
    return lambda tenancy: (("the tenant", text) for text in check(tenancy))


LAWS: Final[tuple[Law["Tenancy"], ...]] = (
    Law(
        name="input errors only",
        source="threat model",
        reads="the errors of reconciles, and the sessions of the watcher",
        check=_of_tenant(_faults),
    ),
    Law(
        name="own namespace",
        source="threat model",
        reads="every request, and the host names that were asked",
        check=_of_tenant(_others),
    ),
    Law(
        name="no hot loop",
        source="threat model",
        reads="the number of reconciles of each object",
        check=_of_tenant(_hot),
    ),
    Law(
        name="a reason for each refusal",
        source="threat model",
        reads="the conditions and Events of the tenant's objects",
        check=_of_tenant(_unexplained),
    ),
    Law(
        name="no finalizer left",
        source="threat model",
        reads="the deleted object",
        check=_of_tenant(_held),
    ),
)


def broken(tenancy: "Tenancy") -> Iterator[str]:
    """Yield the violations that a hostile object caused."""
    return (each.text for each in find_broken(LAWS, tenancy))
