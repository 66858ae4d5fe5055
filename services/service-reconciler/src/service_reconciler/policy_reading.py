"""What an upgrade that is about to begin is to follow, as it was read, and what the UpgradePolicy reports of that. Pure."""

from typing import Final

import msgspec

from common.conditions import ConditionUpdate
from common.problem import Problem
from common.upgrade.policy import Stored
from service_reconciler.reasons import Reason

ACCEPTED: Final = "Accepted"
"""The condition of an UpgradePolicy, and its reason while it is True."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade that is about to begin is to follow."""

    record: str | Problem[Reason] | None
    """The record of the policy, or why there is none; None where none is asked for."""
    stored: Stored | None = None
    """The policy, where it was read."""

    @property
    def accepted(self) -> ConditionUpdate:
        """Return whether an upgrade can follow the policy, as its condition reports it."""
        if isinstance(self.record, Problem):
            return ConditionUpdate(ACCEPTED, "False", "Invalid", self.record.message)
        return ConditionUpdate(ACCEPTED, "True", ACCEPTED, "Upgrades can follow this policy.")
