"""Kueue as a process on loopback: its definitions, its webhooks with their TLS, and queues of the tests' own.

The API server reaches the webhooks through a Service of type ExternalName, since it has no network of pods here. Kueue makes its own
certificates, and puts them into a Secret that a kubelet would mount: `mount` does that.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE, SECRET, SERVICE, Resource
from localcluster import binaries
from localcluster.api import read_manifests
from localcluster.control_plane import ControlPlane
from raybus_cli import child_processes
from support import server_side_apply
from support.servers.process import process
from support.servers.programs import prepared
from support.waiting import eventually_true

SYSTEM: Final = "kueue-system"
WEBHOOKS: Final = "kueue-webhook-service"
CERTIFICATES: Final = "kueue-webhook-server-cert"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
FLAVOR: Final = Resource(
    group=GROUP, version=VERSION, kind="ResourceFlavor", plural="resourceflavors"
)
CLUSTER_QUEUE: Final = Resource(
    group=GROUP, version=VERSION, kind="ClusterQueue", plural="clusterqueues"
)
LOCAL_QUEUE: Final = Resource(group=GROUP, version=VERSION, kind="LocalQueue", plural="localqueues")
WORKLOAD: Final = Resource(group=GROUP, version=VERSION, kind="Workload", plural="workloads")
CONFIGURATIONS: Final = {
    each: Resource(group="admissionregistration.k8s.io", kind=each, plural=f"{each.lower()}s")
    for each in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
CONVERTED: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Kinds that Kueue stores in one version and serves in two."""
OURS: Final = ("ray.io", GROUP)
"""Groups of the webhooks that these tests need.

Webhooks for pods and Deployments would delay those of every other test."""


@asynccontextmanager
async def running(
    plane: ControlPlane, folder: Path, frameworks: Sequence[str]
) -> AsyncGenerator[None]:
    """Run Kueue for the length of a block; `frameworks` are the kinds of jobs that it manages."""
    port, health = child_processes.find_free_ports(2)
    kube = await KubeClient.connect(kubeconfig=plane.kubeconfig, user_agent="raybus-test")
    try:
        await _install(plane, kube, port)
        config = folder / "kueue.yaml"
        config.write_text(yaml.safe_dump(configuration(folder, port, health, frameworks)))
        command = [
            str(prepared(binaries.KUEUE)),
            f"--kubeconfig={plane.kubeconfig}",
            f"--config={config}",
        ]
        command += ["--feature-gates=VisibilityOnDemand=false"]
        async with process(command, folder / "log"), asyncio.TaskGroup() as group:
            mounting = group.create_task(mount(kube, folder / "certificates"))
            await eventually_true(
                lambda: answers(kube), within=90, every=0.2, what="Kueue's webhooks"
            )
            yield
            mounting.cancel()
    finally:
        await _uninstall(kube)
        await kube.close()


def configuration(folder: Path, port: int, health: int, frameworks: Sequence[str]) -> Json:
    """Return Kueue's configuration file."""
    return {
        "apiVersion": f"config.kueue.x-k8s.io/{VERSION}",
        "kind": "Configuration",
        "namespace": SYSTEM,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder / "certificates")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": WEBHOOKS,
            "webhookSecretName": CERTIFICATES,
        },
        "integrations": {"frameworks": [*frameworks]},
    }


async def _install(plane: ControlPlane, kube: KubeClient, port: int) -> None:
    """Apply Kueue's definitions and webhooks, as its own kustomization would."""
    with suppress(errors.AlreadyExists):
        await kube.create(NAMESPACE, None, {"metadata": {"name": SYSTEM}})
    service: Body = {
        "metadata": {"name": WEBHOOKS},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    with suppress(errors.AlreadyExists):
        await kube.create(SERVICE, SYSTEM, service)
    with suppress(errors.AlreadyExists):
        await kube.create(SECRET, SYSTEM, {"metadata": {"name": CERTIFICATES}})
    reference = {"name": WEBHOOKS, "namespace": SYSTEM, "port": port}
    definitions: list[Body] = []
    for body in read_manifests(prepared(binaries.KUEUE_MANIFESTS)):
        if body["kind"] == "CustomResourceDefinition":
            if body["spec"]["names"]["plural"] in CONVERTED:
                client = {"service": {**reference, "path": "/convert"}}
                webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
                body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            definitions.append(body)
        elif body["kind"] in CONFIGURATIONS:
            await _apply(kube, CONFIGURATIONS[body["kind"]], None, webhooks(body, reference))
    async with plane.api() as api:
        await api.apply_definitions(definitions)


def webhooks(body: Body, reference: dict[str, Any]) -> Body:
    """Return Kueue's webhooks for its own kinds and Ray's, at our address."""
    kept = [each for each in body["webhooks"] if set(each["rules"][0]["apiGroups"]) & {*OURS}]
    for each in kept:
        each["clientConfig"]["service"].update(reference)
    return {**body, "metadata": {"name": f"kueue-{body['metadata']['name']}"}, "webhooks": kept}


async def _uninstall(kube: KubeClient) -> None:
    """Remove the webhooks: without Kueue they would refuse every object of Ray."""
    for resource in CONFIGURATIONS.values():
        for each in msgspec.json.decode(await kube.list(resource, None))["items"]:
            if each["metadata"]["name"].startswith("kueue-"):
                await kube.delete(resource, None, each["metadata"]["name"])


async def _apply(kube: KubeClient, resource: Resource, namespace: str | None, body: Body) -> None:
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    await server_side_apply.apply(kube, resource, namespace, typed)


async def mount(kube: KubeClient, folder: Path) -> None:
    """Keep a folder as the kubelet keeps the volume of the Secret with Kueue's certificates."""
    await asyncio.to_thread(folder.mkdir, mode=0o700, exist_ok=True)
    have: dict[str, str] = {}
    while True:
        with suppress(errors.Unavailable):  # a busy machine may answer late
            secret = msgspec.json.decode(await kube.get(SECRET, SYSTEM, CERTIFICATES))
            if (data := secret.get("data", {})) != have:
                for name, content in data.items():
                    await asyncio.to_thread((folder / name).write_bytes, base64.b64decode(content))
                have = data
        await asyncio.sleep(0.2)


async def answers(kube: KubeClient) -> bool:
    """Return whether Kueue's webhooks accept an object."""
    try:
        await _apply(kube, FLAVOR, None, {"metadata": {"name": "default"}})
        await set_quota(kube, "probe", 0)
    except errors.RaybusError:
        return False
    return True


async def set_quota(kube: KubeClient, name: str, processors: float, *, stop: str = "None") -> None:
    """Make a ClusterQueue of so many processors for all namespaces, or change it."""
    quota = {"name": "cpu", "nominalQuota": str(processors)}
    flavors = [{"name": "default", "resources": [quota]}]
    spec: Body = {"namespaceSelector": {}, "stopPolicy": stop}
    spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": flavors}]
    await _apply(kube, CLUSTER_QUEUE, None, {"metadata": {"name": name}, "spec": spec})


async def make_queue(kube: KubeClient, namespace: str, queue: str) -> None:
    """Make a LocalQueue of the name of its ClusterQueue."""
    await _apply(
        kube, LOCAL_QUEUE, namespace, {"metadata": {"name": queue}, "spec": {"clusterQueue": queue}}
    )
