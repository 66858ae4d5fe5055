"""The whole check: the secrets of a cluster against all messages that its NATS holds.

Usage: `assert await check.leaks(…) == []`.
"""

import msgspec

from common.kube.client import Kube
from common.kube.resources import POD, SECRET
from support.leaks import reading, scan, sought
from support.leaks.reading import As
from support.leaks.scan import Leak, Message
from support.leaks.sought import Pod, Secret, Sought


class _Secrets(msgspec.Struct, frozen=True):
    items: list[Secret]


class _Pods(msgspec.Struct, frozen=True):
    items: list[Pod]


async def leaks(kube: Kube, user: As) -> list[Leak]:
    """Return the secrets that NATS contains; `user` is a function that connects as one of our
    users.
    """
    return found(await secrets_of(kube), await reading.everything(user))


def found(values: list[Sought], messages: list[Message]) -> list[Leak]:
    """Return the leaks; fail for an empty cluster or an empty bus, which would prove nothing."""
    assert values, "the cluster has no secret whatever: is the right one read?"
    assert messages, "NATS holds no message whatever: is the right one read?"
    return scan.leaks(messages, values)


async def secrets_of(kube: Kube) -> list[Sought]:
    """Return all values of Secrets and of environment variables of pods in a cluster."""
    secrets = msgspec.json.decode(await kube.list(SECRET, None), type=_Secrets).items
    pods = msgspec.json.decode(await kube.list(POD, None), type=_Pods).items
    return [*sought.of_secrets(secrets), *sought.of_pods(pods)]
