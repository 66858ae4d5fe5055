"""All objects of a namespace as read from an API server, in a form in which those of two operators
are comparable.

Random names are replaced by names that describe the object's place (`Pod worker g 0`), values that
the API server chose (uids, versions, times, addresses) are removed, and the namespace is called
NAMESPACE. All other fields stay as they are.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from cluster_reconciler.resources.tls import WAIT_FOR_ADDRESS
from common import errors, labels
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import (
    CERTIFICATE,
    CONFIG_MAP,
    INGRESS,
    ISSUER,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)

POD_GROUPS: Final = (
    Resource(group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups"),
    Resource(group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups"),
)
CHILDREN: Final = (
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    SECRET,
    CONFIG_MAP,
    PERSISTENT_VOLUME_CLAIM,
    JOB,
    INGRESS,
    ISSUER,
    CERTIFICATE,
    *POD_GROUPS,
)
CLUSTER_UID: Final = "uid-of-the-raycluster"
"""Placeholder in files for the uid of the RayCluster, in owner references and wherever else KubeRay
writes it."""

_REPLICA_NAME: Final = "ray.io/worker-group-replica-name"
_CHOSEN: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_TOKEN_VOLUME: Final = re.compile(r"kube-api-access-[a-z0-9]{5}")
_OPERATOR_VERSION: Final = re.compile(
    r'(?<="ray.io/kuberay-version":")[^"]+|(?<=kuberay_version=)[^;]+'
)
_EVERY_NAMESPACE_HAS: Final = {"kube-root-ca.crt", "default"}

Objects = list[Body]


async def read(kube: KubeClient, namespace: str) -> Objects:
    """Read the RayClusters of a namespace and all objects that an operator may have made in it."""
    found: Objects = []
    for resource in (RAY_CLUSTER, *CHILDREN):
        listed = await _list(kube, resource, namespace)
        found += [
            {"apiVersion": resource.api_version, "kind": resource.kind, **each}
            for each in listed
            if each["metadata"]["name"] not in _EVERY_NAMESPACE_HAS
        ]
    return found


async def _list(kube: KubeClient, resource: Resource, namespace: str) -> Objects:
    while True:
        try:
            return msgspec.json.decode(await kube.list(resource, namespace))["items"]
        except errors.NotFound:  # the kind is not served here
            return []
        except errors.Throttled:  # its definition was applied just now
            await asyncio.sleep(0.1)


def resource_of(body: Body) -> Resource:
    """Return the kind under which the API server addresses an object."""
    return next(
        each
        for each in (RAY_CLUSTER, *CHILDREN)
        if (each.api_version, each.kind) == (body["apiVersion"], body["kind"])
    )


def comparable(objects: Sequence[Body]) -> dict[str, Body]:
    """Return the objects by their descriptive names, without random values and without those that
    the API server chose.
    """
    names = _names(objects)
    text = msgspec.json.encode([_kept(each) for each in objects]).decode()
    pattern = re.compile(
        "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"\Z(?!)"
    )
    text = _OPERATOR_VERSION.sub("VERSION", text)
    text = _TOKEN_VOLUME.sub("kube-api-access", pattern.sub(lambda found: names[found[0]], text))
    bodies = cast("Objects", msgspec.json.decode(text))
    for each in bodies:
        if (
            each["kind"] == "Certificate" and "ipAddresses" in each["spec"]
        ):  # which were sorted before they got a name by their place
            each["spec"]["ipAddresses"].sort()
    return {
        f"{each['apiVersion']} {each['kind']} {each['metadata']['name']}": each for each in bodies
    }


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], *, where: str = ""
) -> list[str]:
    """Return each field that differs, as `where: KubeRay has …, here is …`."""
    found: list[str] = []
    for key in sorted({*theirs, *ours}):
        place = f"{where}/{key}"
        if key not in ours:
            found.append(missing(place, theirs[key]))
        elif key not in theirs:
            found.append(f"{place}: KubeRay has nothing, here is {_short(ours[key])}")
        else:
            found += _different(theirs[key], ours[key], place)
    return found


def missing(place: str, theirs: Any) -> str:
    """Describe a value that only KubeRay has."""
    return f"{place}: KubeRay has {_short(theirs)}, here is nothing"


def _different(theirs: object, ours: object, place: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return differences(cast("Body", theirs), cast("Body", ours), where=place)
    if isinstance(theirs, list) and isinstance(ours, list):
        return differences(
            _numbered(cast("list[object]", theirs)),
            _numbered(cast("list[object]", ours)),
            where=place,
        )
    if theirs == ours:
        return []
    return [
        f"{place}: KubeRay has {_short(cast('Any', theirs))}, here is {_short(cast('Any', ours))}"
    ]


def _numbered(items: Sequence[object]) -> dict[str, object]:
    return {f"{number:02}": each for number, each in enumerate(items)}


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 300 else f"{text[:300]}…"


def _names(objects: Sequence[Body]) -> dict[str, str]:
    """Return the replacement for each name, address and uid that is different in every run."""
    found = {each["metadata"]["namespace"]: "NAMESPACE" for each in objects}
    for place, pod in _placed(each for each in objects if each["kind"] == "Pod"):
        found[pod["metadata"]["name"]] = place
        if address := pod.get("status", {}).get("podIP"):
            found[address] = f"address of {place}"
        if replica := pod["metadata"]["labels"].get(_REPLICA_NAME):
            found.setdefault(replica, f"replica of {place}")
    for each in objects:
        if each["kind"] == "RayCluster":
            uid = each["metadata"].get("uid", CLUSTER_UID)
            found |= {uid: "UID", uid[:8]: "UID8"}
        if each["kind"] == "Service" and each["spec"].get("clusterIP", "None") != "None":
            found[each["spec"]["clusterIP"]] = f"address of {each['metadata']['name']}"
    return found


def _placed(pods: Iterator[Body]) -> Iterator[tuple[str, Body]]:
    numbers: dict[str, int] = {}
    for pod in sorted(pods, key=_order):
        own = pod["metadata"]["labels"]
        group = " ".join(
            own.get(each, "") for each in (labels.CLUSTER, labels.NODE_TYPE, labels.GROUP)
        ).strip()
        numbers[group] = numbers.get(group, -1) + 1
        yield f"{group} {numbers[group]}", pod


def _order(pod: Body) -> tuple[str, ...]:
    own = pod["metadata"]["labels"]
    indices = ("ray.io/worker-group-replica-index", "ray.io/replica-host-index")
    return (*(own.get(index, "").zfill(4) for index in indices), pod["metadata"]["name"])


def _kept(body: Body) -> Body:
    meta = {field: value for field, value in body["metadata"].items() if field not in _CHOSEN}
    owners = [{**owner, "uid": "UID"} for owner in meta.get("ownerReferences", [])]
    kept = {**body, "metadata": {**meta, "ownerReferences": owners} if owners else meta}
    match body["kind"]:
        case "RayCluster":
            kept.pop("spec")
            kept["status"] = _stable_status(body.get("status", {}))
        case "Secret":
            kept["data"] = dict.fromkeys(body.get("data", {}), "SECRET")
            kept.pop("status", None)
        case "Issuer":
            kept.pop("status", None)
        case "Certificate":
            kept.pop("status", None)
            if body["spec"].get(
                "isCA"
            ):  # its key is kept, as tools/raybus-dev/parity/differences.yaml declares
                key = {
                    field: value
                    for field, value in body["spec"]["privateKey"].items()
                    if field != "rotationPolicy"
                }
                kept["spec"] = {**body["spec"], "privateKey": key}
        case "PersistentVolumeClaim" | "Service" | "Pod" | "Ingress" | "Job":
            kept.pop("status", None)
            kept["spec"] = _stable_spec(body["spec"])
        case _:
            pass
    return kept


def _stable_spec(spec: Body) -> Body:
    chosen = ("healthCheckNodePort", "nodeName")
    kept = {field: value for field, value in spec.items() if field not in chosen}
    if "ports" in spec:  # KubeRay writes them in no order
        kept["ports"] = sorted(
            (_without_node_port(port) for port in spec["ports"]), key=lambda port: port["name"]
        )
    for container in spec.get(
        "initContainers", []
    ):  # lines of a script may be indented in more ways than one
        container["args"] = [" ".join(each.split()) for each in container.get("args", [])]
        if container["name"] == WAIT_FOR_ADDRESS:  # ours finds addresses of IPv6 too
            container["args"] = ["SCRIPT"] * len(container["args"])
    return kept


def _stable_status(status: Body) -> Body:
    """Remove values that depend on the number of writes of a spec, and node ports."""
    kept: Body = _timeless(
        {field: value for field, value in status.items() if field != "observedGeneration"}
    )
    if "endpoints" in kept:
        kept["endpoints"] = {port: _drawn(number) for port, number in kept["endpoints"].items()}
    return kept


def _drawn(number: str) -> str:
    """Replace a node port, which the API server chooses at random from 30000 upwards."""
    return number if int(number) < 30000 else "drawn"


def _without_node_port(port: Body) -> Body:
    """Remove the node port that the API server chose."""
    return {**port, "nodePort": "drawn"} if "nodePort" in port else port


def _timeless(value: object) -> Any:
    """Replace times by a placeholder, so that only the presence of the field is compared."""
    if isinstance(value, dict):
        fields = cast("Body", value)
        moments = {"lastTransitionTime", "lastUpdateTime"}
        return {
            field: "TIME" if field in moments else _timeless(each) for field, each in fields.items()
        }
    if isinstance(value, list):
        return [_timeless(each) for each in cast("list[object]", value)]
    return (
        "TIME"
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value)
        else value
    )
