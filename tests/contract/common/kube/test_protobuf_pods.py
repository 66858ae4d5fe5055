"""The API server sends the same pods in JSON and in protobuf, and its errors too."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.api.opaque import Body
from common.kube import answers, protobuf
from common.kube.client import KubeClient, PatchRequest
from common.kube.pod_protobuf import read_pod
from common.kube.resources import NAMESPACE, POD
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from localcluster.control_plane import ControlPlane
from support.builders import protobuf as encoded
from support.waiting import eventually
from watcher import publish_filter

pytestmark = pytest.mark.asyncio(loop_scope="session")

NS = "protobuf"
CREATED = "2026-01-02T03:04:05Z"
ODD = {
    "example.com/unicode": 'naïve 🦊 \u2028\u0000</script>"\\',
    "example.com/empty": "",
    "example.com/large": "é" * 100_000,
    publish_filter.LAST_APPLIED: "{}",
}
RESOURCES = {
    "limits": {"cpu": "0.1", "memory": "1Gi"},
    "requests": {"cpu": "1e-1", "memory": "1e3"},
}
PROBE = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5}
CONTAINER: Body = {
    "name": "ray",
    "image": "rayproject/ray:2.60.0",
    "env": [{"name": "A", "value": "ü"}],
    "ports": [{"name": "http", "containerPort": 8000}, {"containerPort": 1, "protocol": "UDP"}],
    "resources": RESOURCES,
    "readinessProbe": PROBE,
    "livenessProbe": {**PROBE, "httpGet": {"path": "/", "port": 8000}},
}
OWNERS = [
    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": True},
    {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": False},
    {"apiVersion": "v1", "kind": "C", "name": "c", "uid": "3", "blockOwnerDeletion": True},
]
PODS: dict[str, tuple[Body, Body]] = {
    "plain": ({"containers": [{"name": "c", "image": "i"}]}, {}),
    "full": (
        {
            "containers": [CONTAINER, {"name": "side", "image": "i"}],
            "initContainers": [{"name": "wait", "image": "i", "command": ["true"]}],
            "nodeName": "a-node",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1.5Gi"}}],
        },
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "naïve 🦊",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}],
            "startTime": "2026-01-02T03:04:05.678Z",
            "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": CREATED, "reason": "R"},
                {"type": "Old", "status": "True", "lastTransitionTime": "1969-12-31T23:59:59Z"},
                {"type": "Never", "status": "Unknown", "lastTransitionTime": None, "message": "m"},
            ],
            "initContainerStatuses": [
                {
                    "name": "wait",
                    "image": "i",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "finishedAt": CREATED}},
                }
            ],
            "containerStatuses": [
                {
                    "name": "ray",
                    "image": "i",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 300,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "wait"}},
                    "lastState": {
                        "terminated": {"exitCode": -1, "reason": "Error", "message": "ö"}
                    },
                },
                {
                    "name": "side",
                    "image": "i",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": CREATED}},
                },
            ],
        },
    ),
}


class Bodies:
    """Records the body of each state of a pod; implements `WatchSink`, and `ProtobufSink` by
    `protobuf`.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], bytes] = {}
        self.gone_at: dict[str, str] = {}
        self.json = 0
        self.protobuf = _ProtobufBodies(self)

    def record(self, state: publish_filter.View) -> None:
        meta = state.metadata
        self.states[meta.name, meta.resource_version] = publish_filter.trim(POD, state)

    def present(self, raw: bytes, reason: str = "") -> None:
        assert not reason
        self.json += 1
        self.record(_view(raw))

    def gone(self, raw: bytes) -> None:
        self.json += 1
        meta = _view(raw).metadata
        self.gone_at[meta.name] = meta.resource_version

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        assert version.isdecimal()


class _ProtobufBodies:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def present(self, content: bytes) -> None:
        self._bodies.record(read_pod(content))

    def gone(self, content: bytes) -> None:
        meta = read_pod(content).metadata
        self._bodies.gone_at[meta.name] = meta.resource_version


def _view(raw: bytes) -> publish_filter.View:
    view = publish_filter.decode_view(POD, raw)
    assert view is not None
    return view


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(control_plane: ControlPlane) -> AsyncGenerator[KubeClient]:
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="contract")
    body: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
    await client.create(NAMESPACE, None, body)
    yield client
    await client.close()


async def _create_pod(kube: KubeClient, name: str, spec: Body, status: Body) -> None:
    """Create a pod, and change it until each field that raybus reads had a value."""
    metadata = {
        "name": name,
        "labels": {"app": "contract", "empty": "", "a.b/c-d": "X_1.y"},
        "annotations": ODD,
        "ownerReferences": OWNERS,
        "finalizers": ["example.com/a", "example.com/b"],
    }
    await kube.create(POD, NS, {"metadata": metadata, "spec": spec})
    if status:
        await kube.patch(POD, NS, name, PatchRequest(body={"status": status}, subresource="status"))


async def _post_protobuf(control_plane: ControlPlane, content: bytes) -> None:
    access = control_plane.access
    tls = ssl.create_default_context(cadata=access.ca.decode())
    headers = {
        "Authorization": f"Bearer {access.token}",
        "Content-Type": "application/vnd.kubernetes.protobuf",
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            access.server + POD.path(NS),
            data=encoded.envelope("Pod", content),
            headers=headers,
            ssl=tls,
        ) as answer,
    ):
        assert answer.status == 201, await answer.text()


async def _list_bodies(kube: KubeClient) -> tuple[list[bytes], list[bytes]]:
    """Return the bodies of all pods of the namespace, from a list in JSON and in protobuf."""
    path = POD.path(NS)
    listed = msgspec.json.decode(await kube.request("GET", path), type=dict[str, Any])
    # The pods change meanwhile, so both lists are of one version.
    same = {
        "resourceVersion": listed["metadata"]["resourceVersion"],
        "resourceVersionMatch": "Exact",
    }
    answer = await kube.request("GET", path, query=same, headers={"Accept": protobuf.ACCEPT})
    assert protobuf.is_envelope(answer)
    page = protobuf.read_page(answer, "Pod")
    assert page.version.isdecimal()
    return (
        [publish_filter.trim(POD, msgspec.json.encode(item)) for item in listed["items"]],
        [publish_filter.trim(POD, read_pod(item)) for item in page.items],
    )


async def test_lists_and_watches_in_both_encodings_give_the_same_bodies(
    kube: KubeClient, control_plane: ControlPlane
) -> None:
    in_json, in_protobuf = Bodies(), Bodies()

    def follow(bodies: Bodies, *, is_protobuf: bool) -> Watch:
        return Watch(
            kube,
            WatchTarget(resource=POD, namespace=NS),
            bodies,
            jitter=lambda: 0.0,
            timing=WatchTiming(),
            protobuf_sink=bodies.protobuf if is_protobuf else None,
        )

    await _create_pod(kube, "listed", *PODS["full"])
    watches = [follow(in_json, is_protobuf=False), follow(in_protobuf, is_protobuf=True)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.run()) for watch in watches]
        for watch in watches:
            await watch.known.wait()
        for name, (spec, status) in PODS.items():
            await _create_pod(kube, name, spec, status)
        # A write in protobuf can store what JSON cannot contain.
        damaged = {"name": "damaged", "annotations": {"a": b"x\xff\xe2\x82y\xed\xa0\x80"}}
        container = {"name": "c", "image": "i", "terminationMessagePolicy": "File"}
        content = {"metadata": damaged, "spec": {"containers": [container]}}
        await _post_protobuf(control_plane, encoded.encode(content, encoded.POD))
        listed_json, listed_protobuf = await _list_bodies(kube)
        for name in PODS:
            await kube.delete(POD, NS, name)  # the finalizers keep it, with a deletionTimestamp
            await kube.patch(POD, NS, name, PatchRequest(body={"metadata": {"finalizers": None}}))
        await eventually(
            lambda: in_json.gone_at.keys() == in_protobuf.gone_at.keys() == PODS.keys(),
            within=30.0,
            what="the deletions in both watches",
        )
        await eventually(
            lambda: in_json.states.keys() == in_protobuf.states.keys(),
            within=30.0,
            what="the same states in both watches",
        )
        for task in tasks:
            task.cancel()
    assert len(listed_json) == len(PODS) + 2
    assert listed_protobuf == listed_json
    assert in_protobuf.states == in_json.states
    assert in_protobuf.gone_at == in_json.gone_at
    assert (in_protobuf.json, in_json.json > 8) == (0, True)
    _assert_all_fields_had_a_value(list(in_protobuf.states.values()))


def _assert_all_fields_had_a_value(bodies: list[bytes]) -> None:
    text = b"".join(bodies).decode()
    for field in (
        "deletionTimestamp",
        "finalizers",
        "blockOwnerDeletion",
        "initContainerStatuses",
        "lastState",
        "waiting",
        "terminated",
        "finishedAt",
        "exitCode",
        "startTime",
        "podIP",
        "terminationGracePeriodSeconds",
        "containerPort",
        "\ufffd",
    ):
        assert field in text, field


async def _read_events(kube: KubeClient, query: dict[str, str]) -> list[protobuf.WatchEvent]:
    """Return the events of a watch in protobuf until one has no object of its own."""
    splitter, events = protobuf.FrameSplitter(), list[protobuf.WatchEvent]()
    async with (
        asyncio.timeout(30),
        kube.stream(
            POD.path(NS),
            query={"watch": "1", **query},
            headers={"Accept": protobuf.ACCEPT_WATCH},
        ) as content,
    ):
        while chunk := await content.readany():
            events += map(protobuf.read_event, splitter.feed(chunk))
            if events and events[-1].type in {"ERROR", "BOOKMARK"}:
                break
    return events


async def test_a_version_that_is_gone_is_an_error_event_in_protobuf(
    kube: KubeClient, control_plane: ControlPlane
) -> None:
    await control_plane.restart_api_server()  # its memory of events begins anew
    *_, event = await _read_events(kube, {"resourceVersion": "1"})
    status = answers.read_protobuf_status(event.object.content)
    assert (event.type, event.object.kind, status.code) == ("ERROR", "Status", 410)
    assert "too old resource version" in status.message


async def test_a_bookmark_is_a_pod_with_a_version(kube: KubeClient) -> None:
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    *_, event = await _read_events(kube, {"allowWatchBookmarks": "true", **initial})
    assert (event.type, event.object.kind) == ("BOOKMARK", "Pod")
    assert protobuf.read_key(event.object.content).version.isdecimal()


async def test_a_refusal_in_protobuf_has_the_message_of_the_server(kube: KubeClient) -> None:
    for query in ({"labelSelector": "a,,b=="}, {"continue": "nonsense"}):
        refusals = list[str]()
        for accept in ("application/json", protobuf.ACCEPT):
            with pytest.raises(errors.RaybusError) as refusal:
                await kube.request("GET", POD.path(NS), query=query, headers={"Accept": accept})
            refusals.append(f"{type(refusal.value).__name__}: {refusal.value}")
        assert refusals[0] == refusals[1]
