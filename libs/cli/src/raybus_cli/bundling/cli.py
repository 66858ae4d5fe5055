"""`raybus bundle`: writes an archive with a RayService, raybus's own objects, and logs.

Secrets are never requested from the API server. Objects and logs that the user may not read are
listed in `unseen.txt`.
"""

import io
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, cast

import msgspec
import typer
import yaml

from common import errors, labels, names
from common.api import ray_cluster
from common.api.core import Pod
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import (
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    EVENT,
    GATEWAY,
    HTTP_ROUTE,
    LEASE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.ray import cluster_traits as traits
from common.ray import owner
from common.upgrade import weighted_route
from common.version import VERSION
from raybus_cli import session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NameArgument,
    NamespaceOption,
    RaybusNamespaceOption,
)
from raybus_cli.bundling import kept_logs, redact
from raybus_cli.bundling.kept_logs import KeptLog
from raybus_cli.doctor import checks, survey
from raybus_cli.doctor.survey import DEPLOYMENT, STATEFUL_SET
from raybus_cli.reading import reader
from raybus_cli.reading.reader import QUOTA

LOG_LINES: Final = 2000
"""Number of lines kept from the end of each container's log."""
RAYBUS_SELECTOR: Final = "app.kubernetes.io/part-of=raybus"
Files = dict[str, str]
"""Text of each file in the archive, by the file's path."""


async def collect(
    kube: KubeClient, namespace: str, name: str, raybus: str, *, now: datetime
) -> Files:
    """Return the files of an archive about the RayService `name`.

    `raybus` is the namespace in which raybus runs. Raises `NotFound` if there is no such
    RayService.
    """
    service = await reader.read_ray_service(kube, namespace, name)
    collector = _Collector(kube)
    await collector.collect_object(RAY_SERVICE, namespace, name, "rayservice.yaml")
    marks = ",".join(f"{key}={value}" for key, value in owner.marks(name).items())
    clusters = await collector.collect_objects(
        RAY_CLUSTER, namespace, "rayclusters.yaml", selector=marks
    )
    await collector.collect_objects(SERVICE, namespace, "services.yaml", selector=marks)
    await collector.collect_objects(
        CONTROLLER_REVISION, namespace, "controllerrevisions.yaml", selector=marks
    )
    pods: list[Json] = []
    for body in clusters:
        cluster = str(body["metadata"]["name"])
        mark = f"{labels.CLUSTER}={cluster}"
        own = await collector.collect_objects(
            POD, namespace, f"{cluster}/{POD.plural}.yaml", selector=mark
        )
        pods += [_put_ray_first(pod, body) for pod in own]
        for resource in (CONTROLLER_REVISION, SERVICE):
            await collector.collect_objects(
                resource, namespace, f"{cluster}/{resource.plural}.yaml", selector=mark
            )
    await _collect_ray_logs(collector, service, pods, now=now)
    await collector.collect_object(
        HTTP_ROUTE, namespace, weighted_route.name_of(service), "httproute.yaml"
    )
    await collector.collect_object(GATEWAY, namespace, names.gateway(name), "gateway.yaml")
    for resource in (EVENT, QUOTA, ENDPOINT_SLICE):
        await collector.collect_objects(resource, namespace, f"{resource.plural}.yaml")
    await _collect_raybus(collector, raybus)
    facts = await survey.read_installation(kube, raybus)
    judged = redact.redact_value(msgspec.to_builtins(checks.check_all(facts, now=now)))
    collector.files["doctor.yaml"] = yaml.safe_dump(judged, sort_keys=False)
    collector.files["version.txt"] = (
        f"raybus {VERSION}\nKubernetes {facts.server_version}\n{now:%Y-%m-%dT%H:%M:%SZ}\n"
    )
    if collector.unseen:
        collector.files["unseen.txt"] = redact.redact_text("\n".join(collector.unseen) + "\n")
    return collector.files


def build_archive(files: Files, folder: str, *, now: datetime) -> bytes:
    """Return a tar.gz archive whose top folder is `folder` and contains `files`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, text in sorted(files.items()):
            data = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mtime = len(data), int(now.timestamp())
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


async def _collect_ray_logs(
    collector: "_Collector", service: RayService, pods: list[Json], *, now: datetime
) -> None:
    """Add the logs of Ray's pods, head pods first, and the index that `raybus logs` uses."""
    meta, status = service.metadata, service.status
    heads_first = sorted(pods, key=lambda pod: _get_label(pod, labels.NODE_TYPE) != labels.HEAD)
    collector.unseen += [
        f"log of {pod['metadata']['name']}: only those of {kept_logs.MAX_PODS} pods are kept"
        for pod in heads_first[kept_logs.MAX_PODS :]
    ]
    kept = [
        KeptLog(
            cluster=_get_label(pod, labels.CLUSTER),
            pod=str(pod["metadata"]["name"]),
            node_type=_get_label(pod, labels.NODE_TYPE),
            group=_get_label(pod, labels.GROUP),
            container=container,
            file=file,
        )
        for pod in heads_first[: kept_logs.MAX_PODS]
        for container, file in (
            await collector.collect_logs(meta.namespace, pod, kept_logs.FOLDER, timestamps=False)
        ).items()
    ]
    index = kept_logs.Index(
        made=now,
        namespace=meta.namespace,
        service=meta.name,
        active=status.active_service_status.ray_cluster_name,
        pending=status.pending_service_status.ray_cluster_name,
        lines=LOG_LINES,
        logs=kept,
    )
    collector.files[kept_logs.INDEX] = msgspec.json.encode(index).decode() + "\n"


def _put_ray_first(pod: Json, cluster: Json) -> Json:
    """Return the pod with Ray's container moved to the first place.

    From an archive, `raybus logs` reads the first container of a pod by default.
    """
    name = traits.ray_container_name(ray_cluster.decode(cluster), msgspec.convert(pod, Pod))
    ordered = sorted(pod["spec"]["containers"], key=lambda container: container["name"] != name)
    return {**pod, "spec": {**pod["spec"], "containers": ordered}}


def _get_label(pod: Json, label: str) -> str:
    return str(cast("Json", pod["metadata"].get("labels") or {}).get(label, ""))


async def _collect_raybus(collector: "_Collector", namespace: str) -> None:
    for resource in (DEPLOYMENT, STATEFUL_SET, LEASE, EVENT):
        await collector.collect_objects(resource, namespace, f"raybus/{resource.plural}.yaml")
    for pod in await collector.collect_objects(
        POD, namespace, "raybus/pods.yaml", selector=RAYBUS_SELECTOR
    ):
        await collector.collect_logs(namespace, pod, "raybus", timestamps=True)


class _Collector:
    """Reads objects and logs into files, and lists in `unseen` what the user may not read."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self.files: Files = {}
        self.unseen: list[str] = []

    async def collect_object(
        self, resource: Resource, namespace: str, name: str, path: str
    ) -> None:
        """Read an object into a file; skip an object that does not exist."""
        try:
            body: Body = msgspec.json.decode(await self._kube.get(resource, namespace, name))
        except errors.NotFound:
            return
        except errors.Forbidden as problem:
            self.unseen.append(f"{path}: {problem}")
            return
        self.files[path] = yaml.safe_dump(redact.redact_object(body), sort_keys=False)

    async def collect_objects(
        self, resource: Resource, namespace: str, path: str, *, selector: str = ""
    ) -> list[Json]:
        """Read the objects of a kind into a file, and return them.

        The result is empty if the user may not read them.
        """
        try:
            body: Body = msgspec.json.decode(
                await self._kube.list(resource, namespace, label_selector=selector)
            )
        except (errors.Forbidden, errors.NotFound) as problem:
            self.unseen.append(f"{path}: {problem}")
            return []
        items: list[Json] = [
            {"kind": resource.kind, **item} for item in cast("list[Json]", body.get("items") or [])
        ]
        if items:
            self.files[path] = yaml.safe_dump_all(
                [redact.redact_object(item) for item in items], sort_keys=False
            )
        return items

    async def collect_logs(
        self, namespace: str, pod: Json, folder: str, *, timestamps: bool
    ) -> dict[str, str]:
        """Write the end of each container's log to a file; return the file paths by container."""
        name, containers = (
            str(pod["metadata"]["name"]),
            [str(container["name"]) for container in pod["spec"]["containers"]],
        )
        paths: dict[str, str] = {}
        for container in containers:
            query = {
                "container": container,
                "tailLines": str(LOG_LINES),
                "limitBytes": str(kept_logs.MAX_LOG_SIZE),
            }
            query |= {"timestamps": "true"} if timestamps else {}
            try:
                answer = await self._kube.request(
                    "GET", POD.path(namespace, name, "log"), query=query
                )
            except errors.RaybusError as problem:
                self.unseen.append(f"log of {name}, container {container}: {problem}")
                continue
            paths[container] = (
                f"{folder}/{name}.log"
                if len(containers) == 1
                else f"{folder}/{name}.{container}.log"
            )
            self.files[paths[container]] = redact.redact_text(answer.decode(errors="replace"))
        return paths


def bundle(
    name: NameArgument,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Path of the archive; default: raybus-bundle-NAME.tar.gz."
        ),
    ] = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Write a tar.gz for a bug report about a RayService.

    The archive has the RayService, its objects, and logs of its pods and of
    raybus. It has no Secrets and no values of environment variables or headers.
    Only annotations that control operators are kept. From logs and messages,
    passwords, tokens and URLs are removed if they have a known form, so check
    the archive before you send it. 'raybus logs NAME --bundle FILE' reads the
    logs in it.

    Examples:
    $ raybus bundle demo
    $ raybus bundle demo -n serving -f demo.tar.gz
    """
    access = session.select_access(kubeconfig, context, namespace)
    folder = f"raybus-bundle-{name}"
    path = file or Path(f"{folder}.tar.gz")
    now = session.read_clock()

    async def work(kube: KubeClient) -> Files:
        return await collect(kube, access.namespace, name, raybus_namespace, now=now)

    files = session.run(access, work)
    try:
        path.write_bytes(build_archive(files, folder, now=now))
    except OSError as problem:
        session.fail(
            errors.InvalidSpec(
                f"cannot write {path}: {problem.strerror}; name another file with --file"
            )
        )
    typer.echo(f"{path}: {len(files)} files, without Secrets and values of environment variables")
    if "unseen.txt" in files:
        typer.echo(
            f"{len(files['unseen.txt'].splitlines())} thing(s) could not be read: see unseen.txt "
            "in it",
            err=True,
        )
