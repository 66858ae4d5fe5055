"""An image that a pod cannot get: which, for which container, and the registry's answer."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common.api.core import ContainerStatus, Pod
from raybus_cli.reading.snapshot import Event

FINAL: Final = {"InvalidImageName", "ErrImageNeverPull"}
"""The image cannot be pulled however long the kubelet tries."""
REASONS: Final = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", *FINAL}
LASTING: Final = timedelta(minutes=3)
"""A pod of this age has outlived the kubelet's first retries, and a restart of a registry."""
_IMAGE: Final = re.compile(r'image "([^"]+)"')
_WRAPPED: Final = re.compile(
    r'^.*?desc = |(?:failed to [a-z ]+|Failed to pull image|Error response) "[^"]*": |ErrImagePull: '
)
_REPEATED: Final = re.compile(r"^\S+[:@]\S+: (?=\S)")
"""The image's name before the registry's answer."""


class ImagePull(msgspec.Struct, frozen=True, kw_only=True):
    """A pull that fails."""

    container: str
    is_init: bool
    image: str
    """Empty when it is unknown."""
    answer: str
    """Of the registry or of the kubelet; empty when it is unknown."""
    is_final: bool

    def __str__(self) -> str:
        image = f'image "{self.image}"' if self.image else "its image"
        kind = "init container" if self.is_init else "container"
        text = f"cannot pull {image} ({kind} {self.container})"
        return f"{text}: {self.answer}" if self.answer else text


def of(pod: Pod, events: Iterable[Event] = ()) -> ImagePull | None:
    """Return the first pull of a pod that fails; its Events may have the answer where the pod no longer has it."""
    images = {each.name: each.image for each in pod.spec.containers}
    kinds = ((True, pod.status.init_container_statuses), (False, pod.status.container_statuses))
    for is_init, statuses in kinds:
        for status in statuses:
            waiting = status.state.waiting
            if waiting is None or waiting.reason not in REASONS:
                continue
            named = _IMAGE.search(waiting.message)
            image = named[1] if named else images.get(status.name, "")
            answer = _answer(waiting.message) or _reported(pod, image, events)
            return ImagePull(
                container=status.name,
                is_init=is_init,
                image=image,
                answer=answer,
                is_final=waiting.reason in FINAL,
            )
    return None


def is_lasting(pod: Pod, found: ImagePull, *, now: datetime) -> bool:
    """Return whether waiting cannot help."""
    born = pod.metadata.creation_timestamp
    return found.is_final or (born is not None and now - born >= LASTING)


def is_failing(status: ContainerStatus) -> bool:
    """Return whether a container waits for an image that cannot be pulled."""
    return status.state.waiting is not None and status.state.waiting.reason in REASONS


def _answer(message: str) -> str:
    """Return the registry's answer in a kubelet's message, without the layers that repeat the image."""
    text = " ".join(message.split())
    if text.startswith("Back-off"):
        _, _, text = text.partition('": ')
    text = _WRAPPED.sub("", text)
    return _REPEATED.sub("", text).strip()


def _reported(pod: Pod, image: str, events: Iterable[Event]) -> str:
    """Return the answer that the newest Event of a pod has for an image."""
    notes = [
        each.note
        for each in events
        if each.reason == "Failed" and each.regarding.name == pod.metadata.name and image and f'"{image}"' in each.note
    ]
    return _answer(notes[-1]) if notes else ""
