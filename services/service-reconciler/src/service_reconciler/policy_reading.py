"""What an upgrade is to follow from now on, as it was read, and what the UpgradePolicy reports of that. Pure."""

from datetime import timedelta
from typing import Final

import msgspec

from common.conditions import ConditionUpdate
from common.problem import Problem
from common.upgrade.policy import Stored
from service_reconciler.reasons import Reason

ACCEPTED: Final = "Accepted"
"""The condition of an UpgradePolicy, and its reason while it is True."""
EVERY: Final = timedelta(seconds=10)
"""Between two reads of a policy with edits that apply at once, for each upgrade that follows it."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade is to follow: one that is about to begin, or one that an edit applies to at once."""

    record: str | Problem[Reason] | None
    """The record of the policy, or why there is none; None where none is asked for."""
    stored: Stored | None = None
    """The policy, where it was read just now."""

    @property
    def accepted(self) -> ConditionUpdate:
        """Return whether an upgrade can follow the policy, as its condition reports it."""
        if isinstance(self.record, Problem):
            consequence = "Upgrades that are to begin with it wait; upgrades in progress keep what they follow."
            return ConditionUpdate(ACCEPTED, "False", "Invalid", f"{self.record.message}. {consequence}")
        return ConditionUpdate(ACCEPTED, "True", ACCEPTED, "Upgrades can follow this policy.")
