"""Restores a namespace to the state in which KubeRay left it: its objects under its field manager,
its pods running, its status written.

The objects are those of `tests/golden/kuberay`: RayClusters with their objects, and whole trees of
RayServices. Values that the first API server chose (uids, addresses, ports) are replaced by those
of this one.
"""

import asyncio
import time
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, Resource
from support.kuberay import goldens, trees
from support.kuberay.settings import Setting

MANAGER: Final = "manager"
"""The field manager of KubeRay's operator, after the name of its program."""
TIMEOUT: Final = 30.0
NO_NODE: Final = "rehearsal.example.com/node"
"""A node label that no node has. A recorded pod that selects it stays pending."""

Substitutions = dict[str, str]
"""By value in a golden file: the value that replaces it on this API server."""


async def leave(kube: KubeClient, namespace: str, setting: Setting) -> None:
    """Create all clusters of a setting as KubeRay left them."""
    for document in goldens.users(setting.folder):
        if document["kind"] != "RayCluster":
            await _create(kube, namespace, document)
    found = {
        name: goldens.load(setting, name, namespace=namespace) for name in goldens.clusters(setting)
    }
    values = {name: await _leave_objects(kube, namespace, some) for name, some in found.items()}
    addresses = await _running(kube, namespace)
    for name, some in found.items():
        await _write_status(
            kube, namespace, RAY_CLUSTER, _renamed(some[0], values[name] | _moved(some, addresses))
        )


async def leave_tree(kube: KubeClient, namespace: str, name: str) -> None:
    """Create a RayService or RayJob and all objects that belong to it as KubeRay left them."""
    some = trees.load(name, namespace=namespace)
    values: Substitutions = {}
    for each in some:
        made = await _create(kube, namespace, _renamed(each, values))
        values |= _substitutions(each, made)
    values |= _moved(some, await _running(kube, namespace))
    for each in some:
        if each.get("status") and each["kind"] in trees.WITH_STATUS:
            await _write_status(kube, namespace, trees.resource_of(each), _renamed(each, values))


async def _leave_objects(kube: KubeClient, namespace: str, some: list[Body]) -> Substitutions:
    """Create a RayCluster and its children; return the values that are different on this API
    server.
    """
    cluster = await _create(kube, namespace, some[0])
    values = {goldens.CLUSTER_UID: cast("str", cluster["metadata"]["uid"])}
    for child in sorted(
        some[1:], key=lambda each: each["kind"] == "Pod"
    ):  # pods need their ServiceAccount
        values |= _substitutions(child, await _create(kube, namespace, _renamed(child, values)))
    return values


def _substitutions(old: Body, new: Body) -> Substitutions:
    """Return the values of an object that are different on this API server."""
    values: Substitutions = (
        {old["metadata"]["uid"]: new["metadata"]["uid"]} if "uid" in old["metadata"] else {}
    )
    if old["kind"] == "Service" and old["spec"].get("clusterIP", "None") != "None":
        values |= {old["spec"]["clusterIP"]: new["spec"]["clusterIP"], **_node_ports(old, new)}
    return values


def _node_ports(old: Body, new: Body) -> Substitutions:
    pairs = zip(old["spec"]["ports"], new["spec"]["ports"], strict=True)
    return {str(was["nodePort"]): str(port["nodePort"]) for was, port in pairs if "nodePort" in was}


async def _create(kube: KubeClient, namespace: str, body: Body) -> Body:
    """Create an object as KubeRay's operator would."""
    resource = trees.resource_of(body)
    answer = await kube.request(
        "POST", resource.path(namespace), query={"fieldManager": MANAGER}, body=_sent(body)
    )
    return msgspec.json.decode(answer)


def _sent(body: Body) -> Body:
    """Return an object without the values that the API server chooses and without its status, which
    needs its own request.
    """
    sent = {field: value for field, value in body.items() if field != "status"}
    sent["metadata"] = {field: value for field, value in body["metadata"].items() if field != "uid"}
    if body["kind"] == "Service":
        chosen = [] if body["spec"]["clusterIP"] == "None" else ["clusterIP"]
        spec = {
            key: each
            for key, each in body["spec"].items()
            if key not in {"clusterIPs", "healthCheckNodePort", *chosen}
        }
        if "ports" in spec:
            spec["ports"] = [
                {key: each for key, each in port.items() if key != "nodePort"}
                for port in spec["ports"]
            ]
        sent["spec"] = spec
    return sent


async def _running(kube: KubeClient, namespace: str) -> Substitutions:
    """Wait until all pods run that a node can take; return their addresses by name."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        listed = cast("list[Body]", msgspec.json.decode(await kube.list(POD, namespace))["items"])
        pods = [pod for pod in listed if NO_NODE not in pod["spec"].get("nodeSelector", {})]
        if all(pod["status"]["phase"] == "Running" and _is_ready(pod) for pod in pods):
            return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}
        assert time.monotonic() < deadline, "the pods do not run"
        await asyncio.sleep(0.1)


def _is_ready(pod: Body) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in pod["status"].get("conditions", [])
    )


def _moved(some: list[Body], addresses: Substitutions) -> Substitutions:
    """Return the new addresses of pods by the old ones."""
    pods = {
        each["metadata"]["name"]: each["status"]["podIP"] for each in some if each["kind"] == "Pod"
    }
    return {old: addresses[pod] for pod, old in pods.items() if pod in addresses}


async def _write_status(kube: KubeClient, namespace: str, resource: Resource, body: Body) -> None:
    """Write the status of an object with the generation that the object has here."""
    name = body["metadata"]["name"]
    current = msgspec.json.decode(await kube.get(resource, namespace, name))
    path = resource.path(namespace, name, "status")
    status = trees.regenerated(body["status"], current["metadata"]["generation"])
    await kube.request(
        "PUT", path, query={"fieldManager": MANAGER}, body={**current, "status": status}
    )


def _renamed(body: Body, values: Substitutions) -> Body:
    return cast("Body", _replaced(body, values))


def _replaced(value: Any, values: Substitutions) -> Any:
    match value:
        case dict():
            return {key: _replaced(each, values) for key, each in cast("Body", value).items()}
        case list():
            return [_replaced(each, values) for each in cast("list[Any]", value)]
        case str():
            return values.get(value, value)
        case _:
            return value
