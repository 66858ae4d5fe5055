"""Whole trees of RayServices: the RayService, its clusters, and the objects that belong to them, as
read from an API server.

The files are those of `tests/golden/kuberay/services`. In them a uid is `uid-of-<kind>-<name>`;
objects and fields that Kubernetes' own controllers add (EndpointSlices, token volumes) are left
out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from common import labels
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import (
    CONTROLLER_REVISION,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    Resource,
)
from support.kuberay import objects

FOLDER: Final = Path(__file__).parents[2] / "golden" / "kuberay" / "services"
NAMESPACE: Final = "kuberay-golden"
WITH_STATUS: Final = frozenset(
    {"RayService", "RayCluster", "RayJob", "RayCronJob", "Gateway", "HTTPRoute", "GRPCRoute"}
)
"""Kinds whose status is kept in the files."""
_MORE: Final = (
    RAY_SERVICE,
    RAY_CRON_JOB,
    RAY_JOB,
    CONTROLLER_REVISION,
    GATEWAY,
    HTTP_ROUTE,
    GRPC_ROUTE,
)
_ORDER: Final = ("RayService", "RayCronJob", "RayJob", "RayCluster")
_CHOSEN: Final = ("resourceVersion", "creationTimestamp", "managedFields", "generation")


async def read(kube: KubeClient, namespace: str) -> list[Body]:
    """Read all objects that either operator may have made in a namespace, those of users first."""
    found: list[Body] = []
    for resource in _MORE:
        listed = cast(
            "list[Body]", msgspec.json.decode(await kube.list(resource, namespace))["items"]
        )
        found += [
            {"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in listed
        ]
    return found + await objects.read(kube, namespace)


def resource_of(body: Body) -> Resource:
    """Return the kind under which the API server addresses an object."""
    mine = (
        each
        for each in _MORE
        if (each.api_version, each.kind) == (body["apiVersion"], body["kind"])
    )
    return next(mine, None) or objects.resource_of(body)


def of_root(some: Sequence[Body], kind: str, name: str) -> list[Body]:
    """Return an object of a user and all objects that belong to it: owners first, pods last."""
    uids: set[str] = {each["metadata"]["uid"] for each in some if _is(each, kind, name)}
    clusters: set[str] = set()
    for of_kind in _ORDER:
        for each in some:
            if each["kind"] == of_kind and ({each["metadata"]["uid"]} | _owners(each)) & uids:
                uids.add(each["metadata"]["uid"])
                clusters |= {each["metadata"]["name"]}
    mine = [
        each
        for each in some
        if each["metadata"]["uid"] in uids
        or _owners(each) & uids
        or each["metadata"].get("labels", {}).get(labels.CLUSTER) in clusters
    ]
    return sorted(mine, key=_place)


def _place(body: Body) -> tuple[int, bool, str, str]:
    kind = body["kind"]
    return (
        _ORDER.index(kind) if kind in _ORDER else len(_ORDER),
        kind == "Pod",
        kind,
        body["metadata"]["name"],
    )


def _is(body: Body, kind: str, name: str) -> bool:
    return body["kind"] == kind and body["metadata"]["name"] == name


def _owners(body: Body) -> set[str]:
    return {each["uid"] for each in body["metadata"].get("ownerReferences", [])}


def save(name: str, some: Sequence[Body]) -> Path:
    """Write a tree to its file."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    text = msgspec.json.encode([_lasting(each) for each in some], order="sorted").decode()
    for each in some:
        meta = each["metadata"]
        text = text.replace(meta["uid"], f"uid-of-{each['kind'].lower()}-{meta['name']}")
    text = text.replace(f'"{some[0]["metadata"]["namespace"]}"', f'"{NAMESPACE}"')
    path.write_text(msgspec.json.format(text, indent=1) + "\n")
    return path


def load(name: str, *, namespace: str) -> list[Body]:
    """Return a tree as if it had been made in this namespace."""
    text = (FOLDER / f"{name}.json").read_text().replace(NAMESPACE, namespace)
    return msgspec.json.decode(text, type=list[Body])


def _lasting(body: Body) -> Body:
    meta = {field: value for field, value in body["metadata"].items() if field not in _CHOSEN}
    kept: Body = {**body, "metadata": meta}
    if body["kind"] == "Pod":
        kept["status"] = {"podIP": body["status"].get("podIP", "")}
    elif body["kind"] not in WITH_STATUS:
        kept.pop("status", None)
    return kept


def regenerated(status: Body, generation: int) -> Body:
    """Return a status whose conditions have another observed generation."""
    return cast("Body", _regenerated(status, generation))


def _regenerated(value: object, generation: int) -> Any:
    match value:
        case dict():
            fields = cast("Body", value)
            return {
                key: generation if key == "observedGeneration" else _regenerated(each, generation)
                for key, each in fields.items()
            }
        case list():
            return [_regenerated(each, generation) for each in cast("list[object]", value)]
        case _:
            return value


def stable(some: Sequence[Body]) -> Mapping[str, Body]:
    """Return objects by kind and name, without status and without the values that the API server
    writes: the part that must not change.
    """
    found: dict[str, Body] = {}
    for each in some:
        meta = {
            field: value
            for field, value in each["metadata"].items()
            if field not in {"resourceVersion", "managedFields"}
        }
        kept = {field: value for field, value in each.items() if field != "status"}
        found[f"{each['kind']} {meta['name']} {meta['uid']}"] = {**kept, "metadata": meta}
    return found
