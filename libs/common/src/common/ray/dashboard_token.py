"""The token for a cluster's dashboard (`spec.authOptions`): from a Secret, or issued by Kubernetes.

A token is kept only in memory, until the dashboard rejects it or most of its lifetime is over.
Errors never contain a token. With Kubernetes authentication, a hostile dashboard could use the
token at the API server. Therefore raybus sends no token of its own ServiceAccount, but requests one
for `raybus-dashboard`, a ServiceAccount in the cluster's namespace. The namespace's owner creates
it with only the right that Ray checks. Behaviour: spec rayservice §12.5; ADR 27.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from common import errors
from common.api.core import KeyedData
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import SECRET, find_name_violation
from common.ray import cluster_traits as traits
from common.ray import token_auth
from common.runtime.cache import BoundedDict

ACCOUNT: Final = "raybus-dashboard"
"""The ServiceAccount in a cluster's namespace whose tokens raybus sends to the dashboard.

RBAC allows raybus to request tokens of no other account.
"""
ISSUED_FOR: Final = timedelta(hours=1)
ASSUMED_LIFETIME: Final = timedelta(minutes=10)
"""Lifetime that is assumed if the API server does not say how long a token is valid.

Kubernetes issues no token with a shorter one."""
USED_FOR: Final = 0.8
"""Fraction of a token's lifetime after which a new token is requested."""
RENEWED_AFTER: Final = 30.0
"""Minimum age in seconds at which a rejected Kubernetes token is replaced.

If a dashboard rejects a younger token, the ServiceAccount lacks the right, and a new token would
not help."""
_TEXT: Final = re2.compile(r"[\x20-\x7e]+")
_MAX_LENGTH: Final = 8000
"""Maximum characters of a token; Ray's dashboard accepts headers of at most 8,190 bytes."""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str
    expiration_timestamp: datetime | None = None


class _Issued(msgspec.Struct, frozen=True):
    status: _Status
    metadata: ObjectMeta = ObjectMeta()


class _Kept(msgspec.Struct, frozen=True):
    text: str
    read_at: float
    good_until: float | None = None


class Tokens:
    """The tokens for the dashboards that this replica polls."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._kept = BoundedDict[str, _Kept]()
        """Tokens from Secrets by the cluster's UID, tokens issued by Kubernetes by namespace."""

    async def read_token(self, cluster: RayCluster) -> str | None:
        """Return the token for a cluster's dashboard; None if the cluster needs none.

        Raises `Unauthenticated` with the remedy if the token cannot be read or issued.
        """
        if not traits.has_token_auth(cluster):
            return None
        known = self._kept.get(_place(cluster))
        if known is not None and (
            known.good_until is None or self._clock.monotonic() < known.good_until
        ):
            return known.text
        return await self._read(cluster)

    async def another(self, cluster: RayCluster, refused: str | None) -> str | None:
        """Return a token to try instead of `refused`, which the dashboard rejected.

        None if there is no other token, or a newer one would not help.
        """
        if not traits.has_token_auth(cluster):
            return None
        known = self._kept.get(_place(cluster))
        if known is not None and known.text != refused:
            return known.text
        age = None if known is None else self._clock.monotonic() - known.read_at
        if traits.has_kubernetes_auth(cluster) and age is not None and age < RENEWED_AFTER:
            return None
        new = await self._read(cluster)
        return None if new == refused else new

    def forget(self, cluster_uid: str) -> None:
        """Drop the token of a cluster that is deleted or now polled by a different replica."""
        self._kept.pop(cluster_uid, None)

    async def _read(self, cluster: RayCluster) -> str:
        place = _place(cluster)
        self._kept.pop(place, None)
        new = await (
            self._issued(cluster) if traits.has_kubernetes_auth(cluster) else self._stored(cluster)
        )
        self._kept[place] = new
        return new.text

    async def _stored(self, cluster: RayCluster) -> _Kept:
        name = traits.token_secret(cluster)
        where = f"{cluster.metadata.namespace}/{name}"
        if (problem := find_name_violation(SECRET, name)) is not None:
            raise errors.Unauthenticated(
                f"authOptions.secretName is not the name of a Secret: {problem}"
            )
        try:
            body = await self._kube.get(SECRET, cluster.metadata.namespace, name)
        except errors.RaybusError as problem:
            raise errors.Unauthenticated(
                f"failed to get auth secret {where}: {problem}"
            ) from problem
        value = msgspec.json.decode(body, type=KeyedData).data.get(token_auth.KEY)
        if value is None:
            raise errors.Unauthenticated(
                f"auth token key '\"{token_auth.KEY}\"' not found in secret {where}"
            )
        try:
            text = b64decode(value).strip().decode("ascii")
        except (Base64Error, UnicodeDecodeError):
            text = ""
        if len(text) > _MAX_LENGTH or _TEXT.fullmatch(text) is None:
            raise errors.Unauthenticated(
                f"the auth token in secret {where} is not a text that a header can carry"
            )
        return _Kept(text, self._clock.monotonic())

    async def _issued(self, cluster: RayCluster) -> _Kept:
        namespace, asked_at = cluster.metadata.namespace, self._clock.monotonic()
        try:
            body = await self._kube.request_token(
                namespace, ACCOUNT, seconds=int(ISSUED_FOR.total_seconds())
            )
        except errors.NotFound as problem:
            text = (
                f"ServiceAccount {namespace}/{ACCOUNT} does not exist; create it, with the "
                "verb ray:write on rayclusters.ray.io"
            )
            raise errors.Unauthenticated(text) from problem
        except errors.RaybusError as problem:
            text = f"ServiceAccount {namespace}/{ACCOUNT} cannot be issued a token: {problem}"
            raise errors.Unauthenticated(text) from problem
        issued = msgspec.json.decode(body, type=_Issued)
        begin, end = issued.metadata.creation_timestamp, issued.status.expiration_timestamp
        # Both times are from the API server, so a difference between the clocks does not matter.
        life = ASSUMED_LIFETIME if begin is None or end is None else max(end - begin, timedelta(0))
        return _Kept(issued.status.token, asked_at, asked_at + USED_FOR * life.total_seconds())


def remedy(cluster: RayCluster) -> str:
    """Return what the user must do if a dashboard has rejected the newest token."""
    namespace = cluster.metadata.namespace
    if not traits.has_token_auth(cluster):
        return "it asks for a token, and the RayCluster has no authOptions.mode: token"
    if traits.has_kubernetes_auth(cluster):
        return (
            f"grant ServiceAccount {namespace}/{ACCOUNT} the verb ray:write on "
            "rayclusters.ray.io, and that of the head "
            "the ClusterRole system:auth-delegator"
        )
    return (
        f"Ray read Secret {namespace}/{traits.token_secret(cluster)} when its pods started: "
        "restart them after a change of it"
    )


def _place(cluster: RayCluster) -> str:
    return (
        cluster.metadata.namespace if traits.has_kubernetes_auth(cluster) else cluster.metadata.uid
    )
