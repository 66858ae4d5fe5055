"""What must not be found: the values of Secrets and of pods' environments; pure."""

import base64
import re
from collections.abc import Iterable
from typing import Final

import msgspec

SHORTEST: Final = 8
"""Bytes; a shorter value stands in any message by chance."""
OURS: Final = frozenset({"FQ_RAY_IP"})
"""Variables beside `RAY_*` that we set ourselves from names which are no secret."""


class Meta(msgspec.Struct, frozen=True):
    """Which object it is."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Name it as kubectl does."""
        return f"{self.namespace}/{self.name}"


class Secret(msgspec.Struct, frozen=True):
    """A Secret as the API server gives it."""

    metadata: Meta
    data: dict[str, str] = {}


class Variable(msgspec.Struct, frozen=True):
    """A variable of an environment; without a value when it comes from elsewhere."""

    name: str
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container."""

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
    """One value, and where it comes from."""

    value: bytes
    origin: str
    is_environment: bool = False
    """It may stand in the state of the resource that its user wrote it into."""


class Pattern(msgspec.Struct, frozen=True):
    """The form of a secret, whatever its value."""

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
    """Return the values of Secrets."""
    return [
        Sought(value=value, origin=f"Secret {secret.metadata}, key {key}")
        for secret in secrets
        for key, text in secret.data.items()
        if len(value := base64.b64decode(text)) >= SHORTEST
    ]


def of_pods(pods: Iterable[Pod]) -> list[Sought]:
    """Return the literal values in the environments of pods, but for those that we make ourselves from names."""
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
