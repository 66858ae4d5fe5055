"""No secret reaches NATS: canaries in every place that Kubernetes has for them, all of raybus at work, every message read."""

from collections.abc import AsyncGenerator
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Body
from common.bus import messages, subjects
from common.bus.nats import Bus, connect
from common.bus.subjects import TreeKind, TreeLocation
from common.kube import resources
from common.kube.client import KubeClient
from common.upgrade import events as upgrade_events
from localcluster.control_plane import ControlPlane
from raybus_cli.events import connection
from support.builders.example_upgrade import an_example_upgrade
from support.leaks import check, reading
from support.leaks.reading import As
from support.leaks.scan import Message
from support.servers.raybus_up import started
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

TIMEOUT = 60.0
IN_SECRET = f"canary-in-secret-{token_hex(8)}"
IN_RESOURCE = f"canary-in-environment-{token_hex(8)}"
INJECTED = f"canary-injected-{token_hex(8)}"


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with canaries in it, watched by raybus, and all that was published on NATS meanwhile."""

    kube: KubeClient
    namespace: str
    user: As
    watcher: Bus
    published: list[Message]

    def of(self, kind: str) -> list[Message]:
        """Return what was published about objects of a kind in our namespace."""
        ours = f".{self.namespace}."
        return [
            each
            for each in self.published
            if each.stored.headers.get(messages.KIND) == kind
            and ours in each.stored.subject
            and each.stored.payload
        ]


def _container(name: str) -> Body:
    reference = {"secretKeyRef": {"name": "canary", "key": "password"}}
    env = [{"name": "TOKEN", "value": IN_RESOURCE}, {"name": "PASSWORD", "valueFrom": reference}]
    return {"name": name, "image": "example.org/ray:2.52.0", "env": env}


def _ray_cluster() -> Body:
    def template(name: str) -> Body:
        return {"spec": {"containers": [_container(name)]}}

    worker = {
        "groupName": "g",
        "replicas": 1,
        "maxReplicas": 2,
        "rayStartParams": {},
        "template": template("worker"),
    }
    spec: dict[str, Any] = {
        "rayVersion": "2.52.0",
        "authOptions": {"mode": "token"},
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"rayStartParams": {}, "template": template("head")},
        "workerGroupSpecs": [worker],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "guarded"},
        "spec": spec,
    }


def _injected_pod() -> Body:
    """Build a pod as it is after an admission webhook has put a variable into it."""
    container = {
        "name": "ray",
        "image": "example.org/ray:1",
        "env": [{"name": "INJECTED", "value": INJECTED}],
    }
    labels = {"ray.io/cluster": "guarded", "ray.io/node-type": "worker", "ray.io/group": "other"}
    spec = {"containers": [container], "nodeName": "nowhere"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "injected", "labels": labels},
        "spec": spec,
    }


@pytest_asyncio.fixture
async def planted(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> AsyncGenerator[Planted]:
    data = tmp_path / "data"
    arguments = ["--kubeconfig", str(control_plane.kubeconfig), "--data-dir", str(data)]
    with started(
        tmp_path / "up", *arguments, "--namespace", namespace, "--watch-namespace", namespace
    ) as up:
        await up.ready(within=120)
        user = reading.users_of(data, connection.build_settings(None, data).nats_url)
        async with connect(user("watcher")) as watcher:
            await watcher.session()
            async with reading.followed(watcher, subjects.STATE_STREAM, subjects.ALL_STATE) as (
                published,
                _,
            ):
                yield Planted(
                    kube=kube, namespace=namespace, user=user, watcher=watcher, published=published
                )


async def _plant(planted: Planted) -> None:
    """Create what holds secrets, and wait until raybus has made its pods and its token of it and published them."""
    kube, namespace = planted.kube, planted.namespace
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "canary"},
        "stringData": {"password": IN_SECRET},
    }
    await kube.create(resources.SECRET, namespace, secret)
    await kube.create(resources.RAY_CLUSTER, namespace, _ray_cluster())
    await kube.create(resources.POD, namespace, _injected_pod())

    async def has_token() -> bool:
        found = msgspec.json.decode(await kube.list(resources.SECRET, namespace))["items"]
        return any("auth_token" in (each.get("data") or {}) for each in found)

    await eventually_true(has_token, within=TIMEOUT, what="the token's Secret")
    names = {"guarded-head", "guarded-g-worker", "injected"}
    await eventually(
        lambda: names <= {_stem(each) for each in planted.of("Pod")},
        within=TIMEOUT,
        what="a message about every pod",
    )


def _stem(message: Message) -> str:
    """Return the name of a pod without its random ending."""
    name = message.stored.subject.rpartition(".")[2]
    return name if name == "injected" or name.endswith("-head") else name.rpartition("-")[0]


async def test_no_secret_is_published_on_nats(planted: Planted) -> None:
    await _plant(planted)
    async with connect(planted.user("service-reconciler")) as service:
        await service.session()
        for event in an_example_upgrade("guarded", namespace=planted.namespace):
            wire = upgrade_events.encode(event)
            await service.publish(
                wire.subject, wire.payload, wire.headers, expected=None, message_id=event.id
            )
    values = await check.secrets_of(planted.kube)
    sought = {each.value.decode(errors="replace") for each in values}
    assert {IN_SECRET, IN_RESOURCE, INJECTED} <= sought
    everything = await reading.everything(planted.user)
    assert {each.stream for each in everything} == {subjects.STATE_STREAM, reading.MIRROR}
    assert check.found(values, [*planted.published, *everything]) == []
    # What the resource itself contains is there, so the scanner does read what it should.
    assert any(IN_RESOURCE.encode() in each.stored.payload for each in planted.of("RayCluster"))

    subject = subjects.build_state_subject(
        TreeLocation(0, TreeKind.CLUSTER), "pod", planted.namespace, "leaky"
    )
    leaky = msgspec.json.encode(
        {"metadata": {"name": "leaky"}, "status": {"message": f"password is {IN_SECRET}"}}
    )
    await planted.watcher.publish(
        subject, leaky, {messages.KIND: "Pod"}, expected=None, message_id="leaky"
    )
    leaks = await check.leaks(planted.kube, planted.user)
    assert [leak.what for leak in leaks] == [f"Secret {planted.namespace}/canary, key password"]
