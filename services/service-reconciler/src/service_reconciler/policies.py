"""The UpgradePolicy of an upgrade that is about to begin: what the RayService names, else its namespace's default.

It is read from the API server while the spec differs from the active cluster's and no pending cluster exists, and recorded on that one: a service at its
goal costs nothing, and an edit applies to the next upgrade. Without a readable policy no upgrade begins, for its user counts on the gates.

Where the record has `applyEdits: AtOnce` the policy is read again each `REREAD` while the upgrade lasts. What cannot be followed or
read leaves the record as it is, and so does another policy of the same name (ADR 30).
"""

import math
from typing import Final

import msgspec
import structlog

from common import errors, labels
from common.api.meta import Items
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import Clock
from common.errors import Problem
from common.kube.client import Kube
from common.kube.resources import UPGRADE_POLICY, illegal_name
from common.runtime.cache import Remembered
from common.upgrade import gate_types
from common.upgrade import policy as upgrade_policy
from common.upgrade.outbound import Outbound
from common.upgrade.policy import PolicyError, Stored, UpgradePolicy
from service_reconciler.observed import REREAD, Reading
from service_reconciler.reasons import Reason

MOST: Final = 100
"""UpgradePolicies of a namespace among which the default is searched."""

log = structlog.get_logger()


class Policies:
    """Reads UpgradePolicies."""

    def __init__(self, kube: Kube, outbound: Outbound, clock: Clock) -> None:
        self._kube = kube
        self._outbound = outbound
        self._clock = clock
        self._edits = Remembered[str, tuple[float, Reading | None]]()
        """When the policy of an upgrade was read, and its edit; by the uid of the cluster with the record."""

    def forget(self, uid: str) -> None:
        """Drop what is known of the policy of an upgrade to a cluster."""
        self._edits.pop(uid, None)

    async def edit_of(self, cluster: RayCluster) -> Reading | None:
        """Return the policy of an upgrade in progress as it was edited since it was recorded on the new cluster; None without such an edit."""
        meta, held, policy = (
            cluster.metadata,
            upgrade_policy.record_of(cluster),
            upgrade_policy.of_cluster(cluster),
        )
        if held is None or policy is None or not policy.applies_edits_at_once:
            return None
        now, (read_at, edit) = self._clock.monotonic(), self._edits.get(meta.uid, (-math.inf, None))
        if (
            now < read_at + REREAD.total_seconds()
        ):  # its write may have been refused; its report was made
            record = None if edit is None or isinstance(edit.record, Problem) else edit.record
            is_due = record not in {None, meta.annotations.get(labels.UPGRADE_POLICY_RECORD)}
            return Reading(record=record) if is_due else None
        edit = None  # what cannot be read changes nothing
        try:
            found = msgspec.json.decode(
                await self._kube.get(UPGRADE_POLICY, meta.namespace, held.name), type=Stored
            )
            edit = (
                self._reading(found, meta.namespace)
                if upgrade_policy.is_edited(held, found)
                else None
            )
        except errors.NotFound:
            pass
        except (errors.Forbidden, errors.Unavailable, msgspec.DecodeError) as problem:
            log.info("an UpgradePolicy is not read again", policy=held.name, error=str(problem))
        self._edits[meta.uid] = now, edit
        return edit

    async def record_for(self, service: RayService) -> Reading:
        """Return the record of the policy that a RayService follows."""
        name, namespace = (
            service.metadata.annotations.get(labels.UPGRADE_POLICY, ""),
            service.metadata.namespace,
        )
        found = await (self._named(namespace, name) if name else self._default(namespace))
        return (
            self._reading(found, namespace) if isinstance(found, Stored) else Reading(record=found)
        )

    def _reading(self, found: Stored, namespace: str) -> Reading:
        meta, spec = found.metadata, found.spec
        try:
            why = self._forbidden(upgrade_policy.read(meta.name, spec), namespace)
        except PolicyError as problem:
            why = f"is not valid: {problem}. Correct it"
        if why is not None:
            return Reading(record=_refused(meta.name, why), stored=found)
        return Reading(
            record=upgrade_policy.recorded(meta.name, meta.uid, meta.generation, spec), stored=found
        )

    def _forbidden(self, policy: UpgradePolicy, namespace: str) -> str | None:
        """Return which gate asks a server that may not be asked; its upgrade would wait for good."""
        for gate in gate_types.asking(policy.gates):
            if (why := self._outbound.refusal(gate.url, namespace)) is not None:
                field = f"spec.gates[{policy.gates.index(gate)}].{gate.FIELD}"
                return f"cannot be followed: {field}: {why}. Ask them to add it, or remove the gate"
        return None

    async def _named(self, namespace: str, name: str) -> Stored | Problem[Reason]:
        if (why := illegal_name(UPGRADE_POLICY, name)) is not None:
            return _refused(name, f"is not the name of one ({labels.UPGRADE_POLICY}): {why}")
        try:
            return msgspec.json.decode(
                await self._kube.get(UPGRADE_POLICY, namespace, name), type=Stored
            )
        except errors.NotFound:
            remedy = f"create it, or remove the annotation {labels.UPGRADE_POLICY}"
            return _refused(name, f"does not exist in namespace {namespace}; {remedy}")
        except (errors.Forbidden, msgspec.DecodeError) as problem:
            return _refused(name, f"cannot be read: {problem}")

    async def _default(self, namespace: str) -> Stored | Problem[Reason] | None:
        """Return the namespace's default; where the API server does not know the kind, or lets nobody read it, there is none."""
        try:
            body = await self._kube.list(UPGRADE_POLICY, namespace, limit=MOST + 1)
            found = msgspec.json.decode(body, type=Items[Stored]).items
        except (errors.NotFound, errors.Forbidden):
            return None
        except msgspec.DecodeError as problem:
            return _refused("(the default of the namespace)", f"cannot be read: {problem}")
        if len(found) > MOST:
            remedy = f"name it in {labels.UPGRADE_POLICY}, or delete unused ones"
            return _refused(
                "(the default of the namespace)",
                f"is not searched among more than {MOST}; {remedy}",
            )
        defaults = [each for each in found if each.is_default]
        if len(defaults) > 1:
            named = ", ".join(sorted(each.metadata.name for each in defaults)[:10])
            remedy = f"leave {labels.DEFAULT_POLICY} on one of them"
            return _refused(named, f"are both the default of the namespace; {remedy}")
        return next(iter(defaults), None)


def _refused(name: str, why: str) -> Problem[Reason]:
    return Problem(Reason.INVALID_POLICY, f"UpgradePolicy {name} {why}")
