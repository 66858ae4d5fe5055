"""Read the UpgradePolicy of an upgrade that is about to begin.

The policy is the one that the RayService names, else the default of its namespace. The policy is
read from the API server while the spec differs from the active cluster and no pending cluster
exists. It is recorded on the pending cluster. A RayService that matches its spec costs no read, and
an edit of the policy applies only to the next upgrade. If the policy cannot be read, no upgrade
begins, because the user relies on its gates.

If the record has `applyEdits: AtOnce`, the policy is read again every `REREAD` during the upgrade.
The record stays as it is if the policy is invalid, unreadable, or was recreated under the same name
(ADR 28).
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
from common.kube.resources import UPGRADE_POLICY, find_name_violation
from common.runtime.cache import BoundedDict
from common.upgrade import gate_types
from common.upgrade import policy as upgrade_policy
from common.upgrade.outbound import Outbound
from common.upgrade.policy import PolicyError, Stored, UpgradePolicy
from common.upgrade.service_conditions import Reason
from service_reconciler.observed import REREAD, PolicyReading

MAX_POLICIES: Final = 100
"""Maximum number of UpgradePolicies in a namespace among which the default is searched."""

log = structlog.get_logger()


class Policies:
    """Reads UpgradePolicies from the API server."""

    def __init__(self, kube: Kube, outbound: Outbound, clock: Clock) -> None:
        self._kube = kube
        self._outbound = outbound
        self._clock = clock
        self._edits = BoundedDict[str, tuple[float, PolicyReading | None]]()
        """The last read of an upgrade's policy, by uid of the new cluster.

        Each entry is the monotonic time of the read and the edited policy, if there is one.
        """

    def forget(self, uid: str) -> None:
        """Forget the edited policy of the upgrade to the cluster with this uid."""
        self._edits.pop(uid, None)

    async def edit_of(self, cluster: RayCluster) -> PolicyReading | None:
        """Return the edited policy of the upgrade in progress; None if there is no edit to apply.

        `cluster` is the new cluster, which has the record of the policy.
        """
        meta, recorded, policy = (
            cluster.metadata,
            upgrade_policy.record_of(cluster),
            upgrade_policy.of_cluster(cluster),
        )
        if recorded is None or policy is None or not policy.applies_edits_at_once:
            return None
        now, (read_at, edit) = self._clock.monotonic(), self._edits.get(meta.uid, (-math.inf, None))
        # The edit was reported already, but its write to the cluster may have been refused.
        if now < read_at + REREAD.total_seconds():
            record = None if edit is None else edit.record
            is_due = record not in {None, meta.annotations.get(labels.UPGRADE_POLICY_RECORD)}
            return PolicyReading(record=record) if is_due else None
        edit = None  # An unreadable policy changes nothing.
        try:
            stored = msgspec.json.decode(
                await self._kube.get(UPGRADE_POLICY, meta.namespace, recorded.name), type=Stored
            )
            edit = (
                self._build_reading(stored, meta.namespace)
                if upgrade_policy.is_edited(recorded, stored)
                else None
            )
        except errors.NotFound:
            pass
        except (errors.Forbidden, errors.Unavailable, msgspec.DecodeError) as problem:
            log.info("cannot reread an UpgradePolicy", policy=recorded.name, error=str(problem))
        self._edits[meta.uid] = now, edit
        return edit

    async def record_for(self, service: RayService) -> PolicyReading:
        """Return the policy that an upgrade of a RayService must follow, or why it cannot be used.

        Without a policy all fields of the result are None.
        """
        name, namespace = (
            service.metadata.annotations.get(labels.UPGRADE_POLICY, ""),
            service.metadata.namespace,
        )
        stored = await (
            self._read_policy(namespace, name) if name else self._find_default(namespace)
        )
        return (
            self._build_reading(stored, namespace)
            if isinstance(stored, Stored)
            else PolicyReading(problem=stored)
        )

    def _build_reading(self, stored: Stored, namespace: str) -> PolicyReading:
        meta, spec = stored.metadata, stored.spec
        try:
            why = self._find_forbidden_gate(upgrade_policy.read(meta.name, spec), namespace)
        except PolicyError as problem:
            why = f"is not valid: {problem}. Correct it"
        if why is not None:
            return PolicyReading(problem=_build_problem(meta.name, why), stored=stored)
        return PolicyReading(
            record=upgrade_policy.recorded(meta.name, meta.uid, meta.generation, spec),
            stored=stored,
        )

    def _find_forbidden_gate(self, policy: UpgradePolicy, namespace: str) -> str | None:
        """Return why a gate of the policy may not send its request; None if all gates may.

        An upgrade with such a gate would wait forever.
        """
        for gate in gate_types.asking(policy.gates):
            if (why := self._outbound.refusal(gate.url, namespace)) is not None:
                field = f"spec.gates[{policy.gates.index(gate)}].{gate.FIELD}"
                return f"cannot be followed: {field}: {why}. Ask them to add it, or remove the gate"
        return None

    async def _read_policy(self, namespace: str, name: str) -> Stored | Problem[Reason]:
        if (why := find_name_violation(UPGRADE_POLICY, name)) is not None:
            return _build_problem(name, f"is not the name of one ({labels.UPGRADE_POLICY}): {why}")
        try:
            return msgspec.json.decode(
                await self._kube.get(UPGRADE_POLICY, namespace, name), type=Stored
            )
        except errors.NotFound:
            remedy = f"create it, or remove the annotation {labels.UPGRADE_POLICY}"
            return _build_problem(name, f"does not exist in namespace {namespace}; {remedy}")
        except (errors.Forbidden, msgspec.DecodeError) as problem:
            return _build_problem(name, f"cannot be read: {problem}")

    async def _find_default(self, namespace: str) -> Stored | Problem[Reason] | None:
        """Return the default policy of the namespace; a `Problem` if it cannot be determined.

        None if there is none, or if the API server does not know the kind or refuses the read.
        """
        try:
            body = await self._kube.list(UPGRADE_POLICY, namespace, limit=MAX_POLICIES + 1)
            policies = msgspec.json.decode(body, type=Items[Stored]).items
        except (errors.NotFound, errors.Forbidden):
            return None
        except msgspec.DecodeError as problem:
            return _build_problem("(the default of the namespace)", f"cannot be read: {problem}")
        if len(policies) > MAX_POLICIES:
            remedy = f"name it in {labels.UPGRADE_POLICY}, or delete unused ones"
            return _build_problem(
                "(the default of the namespace)",
                f"is not searched among more than {MAX_POLICIES}; {remedy}",
            )
        defaults = [policy for policy in policies if policy.is_default]
        if len(defaults) > 1:
            named = ", ".join(sorted(policy.metadata.name for policy in defaults)[:10])
            remedy = f"leave {labels.DEFAULT_POLICY} on one of them"
            return _build_problem(named, f"are both the default of the namespace; {remedy}")
        return next(iter(defaults), None)


def _build_problem(name: str, why: str) -> Problem[Reason]:
    return Problem(Reason.INVALID_POLICY, f"UpgradePolicy {name} {why}")
