"""Makes a namespace look as KubeRay left it: its objects under its field manager, its pods running, its status written.

The objects are those of `tests/golden/kuberay`. What one API server drew (identities, addresses, ports) is that of this one.
"""

import asyncio
import time
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER
from support.kuberay import goldens, objects
from support.kuberay.settings import Setting

MANAGER: Final = "manager"
"""The field manager of KubeRay's operator, after the name of its program."""
PATIENCE: Final = 30.0

Words = dict[str, str]
"""What stands in a golden file, and what it is called on this API server."""


async def leave(kube: KubeClient, namespace: str, setting: Setting) -> None:
    """Make all of a setting's clusters as KubeRay left them."""
    for document in goldens.users(setting.folder):
        if document["kind"] != "RayCluster":
            await _create(kube, namespace, document)
    found = {name: goldens.load(setting, name, namespace=namespace) for name in goldens.clusters(setting)}
    words = {name: await _leave_objects(kube, namespace, some) for name, some in found.items()}
    addresses = await _running(kube, namespace)
    for name, some in found.items():
        mine = {old: addresses[pod] for pod, old in _addresses(some).items() if pod in addresses}
        await _write_status(kube, namespace, _renamed(some[0], {**words[name], **mine}))


async def _leave_objects(kube: KubeClient, namespace: str, some: list[Body]) -> Words:
    """Create a RayCluster and its children; return what is called otherwise here."""
    cluster = await _create(kube, namespace, some[0])
    words = {goldens.CLUSTER_UID: cast("str", cluster["metadata"]["uid"])}
    for child in sorted(some[1:], key=lambda each: each["kind"] == "Pod"):  # pods need their ServiceAccount
        made = await _create(kube, namespace, _renamed(child, words))
        if child["kind"] == "Service" and child["spec"].get("clusterIP", "None") != "None":
            words[child["spec"]["clusterIP"]] = made["spec"]["clusterIP"]
            words |= _node_ports(child, made)
    return words


def _node_ports(old: Body, new: Body) -> Words:
    pairs = zip(old["spec"]["ports"], new["spec"]["ports"], strict=True)
    return {str(was["nodePort"]): str(port["nodePort"]) for was, port in pairs if "nodePort" in was}


async def _create(kube: KubeClient, namespace: str, body: Body) -> Body:
    """Create an object as KubeRay's operator would."""
    resource = objects.resource_of(body)
    answer = await kube.request("POST", resource.path(namespace), query={"fieldManager": MANAGER}, body=_sent(body))
    return msgspec.json.decode(answer)


def _sent(body: Body) -> Body:
    """Leave out what the API server draws; a status has its own request."""
    sent = {field: value for field, value in body.items() if field != "status"}
    if body["kind"] == "Service":
        chosen = [] if body["spec"]["clusterIP"] == "None" else ["clusterIP"]
        spec = {
            key: each for key, each in body["spec"].items() if key not in {"clusterIPs", "healthCheckNodePort", *chosen}
        }
        if "ports" in spec:
            spec["ports"] = [{key: each for key, each in port.items() if key != "nodePort"} for port in spec["ports"]]
        sent["spec"] = spec
    return sent


async def _running(kube: KubeClient, namespace: str) -> Words:
    """Wait until all pods run; return their addresses by name."""
    deadline = time.monotonic() + PATIENCE
    while True:
        pods = cast("list[Body]", msgspec.json.decode(await kube.list(POD, namespace))["items"])
        if all(pod["status"]["phase"] == "Running" and _is_ready(pod) for pod in pods):
            return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
        assert time.monotonic() < deadline, "the pods do not run"
        await asyncio.sleep(0.1)


def _is_ready(pod: Body) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


def _addresses(some: list[Body]) -> Words:
    return {each["metadata"]["name"]: each["status"]["podIP"] for each in some if each["kind"] == "Pod"}


async def _write_status(kube: KubeClient, namespace: str, cluster: Body) -> None:
    name = cluster["metadata"]["name"]
    current = msgspec.json.decode(await kube.get(RAY_CLUSTER, namespace, name))
    status = {**cluster["status"], "observedGeneration": current["metadata"]["generation"]}
    path = RAY_CLUSTER.path(namespace, name, "status")
    await kube.request("PUT", path, query={"fieldManager": MANAGER}, body={**current, "status": status})


def _renamed(body: Body, words: Words) -> Body:
    return cast("Body", _replaced(body, words))


def _replaced(value: Any, words: Words) -> Any:
    match value:
        case dict():
            return {key: _replaced(each, words) for key, each in cast("Body", value).items()}
        case list():
            return [_replaced(each, words) for each in cast("list[Any]", value)]
        case str():
            return words.get(value, value)
        case _:
            return value
