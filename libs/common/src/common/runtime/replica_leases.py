"""The Leases of a service's replicas at the API server.

There is one Lease for each replica, in raybus' own namespace. `common.runtime.ownership` decides
from the Leases which replica holds a partition. Each write contains the resourceVersion that it
replaces, so a replica whose Lease was deleted as expired cannot renew it. Each request times out
when its result would no longer matter.
"""

import asyncio
from collections.abc import Awaitable, Set
from hashlib import blake2b
from typing import Final

import msgspec
import re2

from common import errors, labels
from common.api.core import LeaseSpec
from common.api.meta import Items, ObjectMeta, micro_time
from common.api.opaque import Body
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import LEASE
from common.runtime import ownership
from common.runtime.ownership import ReplicaLease

CALL_SECONDS: Final = 2.5
MAX_NAME_LENGTH: Final = 200


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ReplicaLeases:
    """Reads and writes the Leases of one service's replicas."""

    def __init__(
        self, kube: Kube, clock: Clock, *, namespace: str, service: str, identity: str, session: str
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self.identity = identity
        self.session = session
        self.name = format_lease_name(service, identity)
        self._labels = {labels.REPLICA_OF: service, labels.APP_PART_OF: "raybus"}

    async def list(self) -> list[ReplicaLease]:
        """Read all Leases of the service from the API server."""
        selector = f"{labels.REPLICA_OF}={self._labels[labels.REPLICA_OF]}"
        answer = await _in_time(self._kube.list(LEASE, self._namespace, label_selector=selector))
        return [
            _replica_lease(lease) for lease in msgspec.json.decode(answer, type=Items[_Lease]).items
        ]

    async def write(
        self, mine: ReplicaLease | None, partitions: Set[int], *, takes_part: bool
    ) -> ReplicaLease:
        """Renew this replica's Lease `mine` with these partitions; create it if `mine` is None.

        Raises:
            Conflict, NotFound: The Lease was changed or deleted by others.
            AlreadyExists: The Lease to create exists.
        """
        replaced = {} if mine is None else {"uid": mine.uid, "resourceVersion": mine.version}
        annotations = {
            labels.PARTITIONS: ownership.format_partitions(partitions),
            labels.TAKES_PART: str(takes_part).lower(),
            labels.SESSION: self.session,
        }
        body: Body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self.name,
                **replaced,
                "labels": self._labels,
                "annotations": annotations,
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": ownership.DURATION_SECONDS,
                "renewTime": micro_time(self._clock.now()),
            },
        }
        call = self._kube.create if mine is None else self._kube.replace
        return _replica_lease(
            msgspec.json.decode(await _in_time(call(LEASE, self._namespace, body)), type=_Lease)
        )

    async def delete(
        self, name: str, *, uid: str | None = None, version: str | None = None
    ) -> None:
        """Delete a Lease; raise `Conflict` if it has a different UID or resourceVersion by now."""
        await _in_time(self._kube.delete(LEASE, self._namespace, name, uid=uid, version=version))


def format_lease_name(service: str, identity: str) -> str:
    """Return the name of a replica's Lease.

    If the name would be illegal or too long, it is cleaned, shortened and given a hash.
    """
    lease_name = f"raybus-{service}-{identity}"
    clean = re2.sub(r"[^a-z0-9-]+", "-", lease_name.lower()).strip("-")[:MAX_NAME_LENGTH].strip("-")
    return (
        lease_name
        if clean == lease_name
        else f"{clean}-{blake2b(lease_name.encode(), digest_size=4).hexdigest()}"
    )


def _replica_lease(lease: _Lease) -> ReplicaLease:
    meta = lease.metadata
    named = ownership.parse_partitions(meta.annotations.get(labels.PARTITIONS, "none are named"))
    return ReplicaLease(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        identity=lease.spec.holder_identity or meta.name,
        session=meta.annotations.get(labels.SESSION, ""),
        partitions=ownership.ALL if named is None else named,
        is_readable=named is not None,
        takes_part=meta.annotations.get(labels.TAKES_PART) == "true",
        duration=lease.spec.lease_duration_seconds or ownership.DURATION_SECONDS,
    )


async def _in_time(call: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except TimeoutError as problem:
        raise errors.Unavailable(
            f"the API server does not answer within {CALL_SECONDS:g} s"
        ) from problem
