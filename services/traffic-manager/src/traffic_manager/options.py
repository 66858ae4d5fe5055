"""The user's `clusterUpgradeOptions`: those of the spec, else those with which the pending cluster was begun (§9.5, §17.19).

Ours beside them: the annotation `raybus.io/max-unavailable-percent`.
"""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from common import labels
from common.api.opaque import Json
from common.ray import serve_writer
from common.upgrade import policy as policies
from common.upgrade.controls import Controls, OnDeadline
from common.upgrade.policy import Policy
from traffic_manager.migration.state import Direction
from traffic_manager.observed import Observed


def policy(observed: Observed, controls: Controls) -> Policy:
    """Return how fast traffic moves; without any options an upgrade is finished in one step."""
    unavailable = controls.unavailable
    for options in _given(observed):
        found = policies.of(options, unavailable=unavailable)
        if found is not None and (found.may_progress or serve_writer.asks_for_steps(observed.service)):
            return found
    return Policy(unavailable=unavailable)


def accelerated(policy: Policy, observed: Observed, controls: Controls, direction: Direction) -> Policy:
    """Return the policy of an upgrade that the user wants to end: as fast as proven capacity allows.

    A promoted upgrade needs no heed of the surge either; one that is aborted keeps to it, for its cluster lacks no capacity.
    """
    at_once = msgspec.structs.replace(policy, step=100, interval=timedelta(0))
    if direction is Direction.BACK:
        return at_once if observed.is_aborted and policy.may_progress else policy
    return msgspec.structs.replace(at_once, surge=100) if controls.promotes else policy


def pause(observed: Observed, controls: Controls) -> str | None:
    """Return why the way forward is closed."""
    if controls.promotes:
        return None
    if controls.pauses:
        return f"paused by {labels.PAUSE}"
    if controls.on_deadline is OnDeadline.PAUSE and observed.is_true("UpgradeStalled"):
        return f"paused, for nothing had progressed until the deadline ({labels.ON_DEADLINE}: {OnDeadline.PAUSE})"
    return None


def gateway_class(observed: Observed) -> str:
    """Return the class of the Gateway, empty when no options name one."""
    return next((name for each in _given(observed) if (name := each.get("gatewayClassName"))), "")


def _given(observed: Observed) -> Iterable[Json]:
    strategies: list[Json] = []
    if serve_writer.asks_for_steps(observed.service):
        strategies.append(observed.service.raw_spec.get("upgradeStrategy") or {})
    if observed.pending is not None:
        strategies.append(observed.pending.strategy)
    return [each.get("clusterUpgradeOptions") or {} for each in strategies]
