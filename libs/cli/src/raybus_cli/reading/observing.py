"""Converts a snapshot into `Observed`, the input of service-reconciler's decision functions.

Also finds image pulls that fail.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from common import names as naming
from common.api.core import ContainerStatus, Pod, Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.errors import message_of
from common.feature_gates import BETA, Gates
from common.ray import revision
from common.ray.view import Reading
from raybus_cli.reading.snapshot import KubernetesEvent, Snapshot
from service_reconciler import observed as seen
from service_reconciler import validation
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.resources import services
from service_reconciler.settings import Config

FRESH_NAME: Final = "new"
"""Name suffix of the cluster that the service would create; the service generates a random one."""


def observe(
    snapshot: Snapshot, gates: Gates = BETA, *, service: RayService | None = None
) -> Observed:
    """Return what service-reconciler would observe.

    For a prediction, `service` replaces the stored RayService.
    """
    goal = service or snapshot.service
    serve, head = (
        _find_service(snapshot, services.serve_name(goal)),
        _find_service(snapshot, naming.head_service(goal.metadata.name)),
    )
    names = seen.names_of(
        goal, snapshot.clusters, services.selected(serve) or services.selected(head)
    )
    return Observed(
        service=goal,
        config=Config(gates=gates),
        names=names,
        fresh_name=f"{goal.metadata.name}-{FRESH_NAME}",
        violation=validation.violation(goal, gates),
        clusters=snapshot.clusters,
        active=_build_view(snapshot, names.active),
        pending=_build_view(snapshot, names.pending),
        services=snapshot.services,
        head_service=head,
        serve_service=serve,
        gateways=snapshot.gateways,
        route=snapshot.route,
        our_route=snapshot.route,
        grpc_route=snapshot.grpc_route,
        endpoints=goal.status.num_serve_endpoints,
    )


def find_violation(service: RayService, gates: Gates) -> str | None:
    """Return why service-reconciler would reject a RayService; None if it would not."""
    return message_of(validation.violation(service, gates))


def list_records(snapshot: Snapshot, cluster: RayCluster) -> list[revision.Revision]:
    """Return the Serve config records of a cluster, newest first."""
    return revision.owned_records(cluster, list(snapshot.revisions))


def find_config(snapshot: Snapshot, cluster: RayCluster) -> revision.RecordedConfig | None:
    """Return the present Serve config of a cluster; None if it is unknown."""
    return revision.current(
        list_records(snapshot, cluster), snapshot.serve.get(cluster.metadata.name)
    )


def _build_view(snapshot: Snapshot, name: str) -> ClusterView | None:
    cluster = snapshot.find_cluster(name)
    if cluster is None or cluster.metadata.deletion_timestamp is not None:
        return None
    details, has = snapshot.serve.get(name), find_config(snapshot, cluster)
    return ClusterView(
        cluster=cluster,
        pods=snapshot.list_pods(name),
        serve=Reading(details=details),
        given=None if has is None else has.serve_config,
    )


def _find_service(snapshot: Snapshot, name: str) -> Service | None:
    return next((service for service in snapshot.services if service.metadata.name == name), None)


FINAL_REASONS: Final = {"InvalidImageName", "ErrImageNeverPull"}
"""Waiting reasons of a container whose image no retry of the kubelet can pull."""
PULL_REASONS: Final = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", *FINAL_REASONS}
LASTING_AFTER: Final = timedelta(minutes=3)
"""Age of a pod from which a failing pull is reported as lasting. It exceeds the time of the
kubelet's first retries and of a registry's restart.
"""
_IMAGE: Final = re2.compile(r'image "([^"]+)"')
_WRAPPED: Final = re2.compile(
    r'^.*?desc = |(?:failed to [a-z ]+|Failed to pull image|Error response) "[^"]*": '
    r"|ErrImagePull: "
)
_REPEATED: Final = re2.compile(r"^\S+[:@]\S+: (\S)")
"""Matches an image name before the message of the registry."""


class ImagePull(msgspec.Struct, frozen=True, kw_only=True):
    """An image pull that fails."""

    container: str
    is_init: bool
    image: str
    """Image name; empty if unknown."""
    answer: str
    """Message of the registry or of the kubelet; empty if unknown."""
    is_final: bool

    def __str__(self) -> str:
        image = f'image "{self.image}"' if self.image else "its image"
        kind = "init container" if self.is_init else "container"
        text = f"cannot pull {image} ({kind} {self.container})"
        return f"{text}: {self.answer}" if self.answer else text


def find_image_pull(pod: Pod, events: Iterable[KubernetesEvent] = ()) -> ImagePull | None:
    """Return the first failing image pull of a pod; None without one.

    The registry's message comes from the container's status, or from the pod's Events if the status
    no longer has it.
    """
    images = {container.name: container.image for container in pod.spec.containers}
    kinds = ((True, pod.status.init_container_statuses), (False, pod.status.container_statuses))
    for is_init, statuses in kinds:
        for status in statuses:
            waiting = status.state.waiting
            if waiting is None or waiting.reason not in PULL_REASONS:
                continue
            named = _IMAGE.search(waiting.message)
            image = named[1] if named else images.get(status.name, "")
            answer = _extract_answer(waiting.message) or _find_registry_message(pod, image, events)
            return ImagePull(
                container=status.name,
                is_init=is_init,
                image=image,
                answer=answer,
                is_final=waiting.reason in FINAL_REASONS,
            )
    return None


def is_lasting(pod: Pod, pull: ImagePull, *, now: datetime) -> bool:
    """Return whether the image pull is expected to fail however often the kubelet retries it."""
    born = pod.metadata.creation_timestamp
    return pull.is_final or (born is not None and now - born >= LASTING_AFTER)


def is_failing(status: ContainerStatus) -> bool:
    """Return whether a container waits for an image that cannot be pulled."""
    return status.state.waiting is not None and status.state.waiting.reason in PULL_REASONS


def _extract_answer(message: str) -> str:
    """Extract the registry's message from a message of the kubelet.

    The parts around it, which repeat the image name, are removed.
    """
    text = " ".join(message.split())
    if text.startswith("Back-off"):
        _, _, text = text.partition('": ')
    text = _WRAPPED.sub("", text)
    return _REPEATED.sub(r"\1", text).strip()


def _find_registry_message(pod: Pod, image: str, events: Iterable[KubernetesEvent]) -> str:
    """Return the registry's message in the newest Event about a pod and an image."""
    notes = [
        event.note
        for event in events
        if event.reason == "Failed"
        and event.regarding.name == pod.metadata.name
        and image
        and f'"{image}"' in event.note
    ]
    return _extract_answer(notes[-1]) if notes else ""
