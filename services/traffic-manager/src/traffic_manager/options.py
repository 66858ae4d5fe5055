"""The user's `clusterUpgradeOptions`: those of the spec, else those with which the pending cluster was begun (§9.5, §17.19).

Ours beside them: the annotation `raybus.io/max-unavailable-percent`.
"""

from datetime import timedelta

import msgspec

from common import labels
from common.api.opaque import Json
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import OnDeadline, Policy
from traffic_manager.migration.state import Direction
from traffic_manager.observed import Observed


def policy(observed: Observed, direction: Direction) -> Policy:
    """Return how fast traffic moves; without any options an upgrade is finished in one step.

    One that the user wants to end goes as fast as proven capacity allows. A promoted upgrade needs no heed of the surge either; one that
    is aborted keeps to it, for its cluster lacks no capacity.
    """
    controls, asks = observed.controls, serve_writer.asks_for_steps(observed.service)
    given = (
        upgrade_controls.policy_of(options, unavailable=controls.unavailable)
        for options in _given(observed)
    )
    usable = (each for each in given if each is not None and (each.may_progress or asks))
    held = next(usable, Policy(unavailable=controls.unavailable))
    at_once = msgspec.structs.replace(held, step=100, interval=timedelta(0))
    if direction is Direction.BACK:
        is_quick = (observed.is_aborted or observed.policy is not None) and held.may_progress
        return at_once if is_quick else held
    return msgspec.structs.replace(at_once, surge=100) if controls.promotes else held


def pause(observed: Observed) -> str | None:
    """Return why the way forward is closed."""
    controls = observed.controls
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


def _given(observed: Observed) -> list[Json]:
    given = (
        [observed.service.raw_upgrade_options]
        if serve_writer.asks_for_steps(observed.service)
        else []
    )
    if observed.pending is not None:
        given.append(observed.pending.strategy.get("clusterUpgradeOptions") or {})
    return given
