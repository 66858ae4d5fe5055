"""The values that must not be found: those of Secrets and of pods' environment variables; pure."""

import base64
import re
from collections.abc import Iterable
from typing import Final

import msgspec

SHORTEST: Final = 8
"""Minimum length in bytes; a shorter value may appear in a message by chance."""
OURS: Final = frozenset({"FQ_RAY_IP"})
"""Environment variables other than `RAY_*` that raybus sets from names which are no secret."""


class Meta(msgspec.Struct, frozen=True):
    """Namespace and name of an object."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Return the name as kubectl writes it."""
        return f"{self.namespace}/{self.name}"


class Secret(msgspec.Struct, frozen=True):
    """A Secret as the API server gives it."""

    metadata: Meta
    data: dict[str, str] = {}


class Variable(msgspec.Struct, frozen=True):
    """An environment variable; it has no value if the value comes from another object."""

    name: str
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod."""

    env: list[Variable] = []


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The containers of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []


class Pod(msgspec.Struct, frozen=True):
    """A pod as the API server gives it."""

    metadata: Meta
    spec: PodSpec = PodSpec()


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """A secret value, with the object that it comes from."""

    value: bytes
    origin: str
    is_environment: bool = False
    """Whether the value may appear in the state of the resource in which its user wrote it."""


class Pattern(msgspec.Struct, frozen=True):
    """The form of a kind of secret, for any value."""

    name: str
    expression: re.Pattern[bytes]


PATTERNS: Final = (
    Pattern("an NKEY seed", re.compile(rb"\bS[UAONCX][A-Z2-7]{56}\b")),
    Pattern("a private key", re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    Pattern(
        "a JSON web token",
        re.compile(rb"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ),
)


def of_secrets(secrets: Iterable[Secret]) -> list[Sought]:
    """Return the values of Secrets to search for."""
    return [
        Sought(value=value, origin=f"Secret {secret.metadata}, key {key}")
        for secret in secrets
        for key, text in secret.data.items()
        if len(value := base64.b64decode(text)) >= SHORTEST
    ]


def of_pods(pods: Iterable[Pod]) -> list[Sought]:
    """Return the literal values in the environments of pods, except for those that raybus makes
    from names.
    """
    return [
        Sought(
            value=value,
            origin=f"Pod {pod.metadata}, environment variable {each.name}",
            is_environment=True,
        )
        for pod in pods
        for container in (
            *pod.spec.init_containers,
            *pod.spec.containers,
            *pod.spec.ephemeral_containers,
        )
        for each in container.env
        if not (each.name.startswith("RAY_") or each.name in OURS)
        if len(value := each.value.encode()) >= SHORTEST
    ]
