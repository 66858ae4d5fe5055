"""The `clusterUpgradeOptions` that apply to an upgrade (spec rayservice §9.5, §17.19).

They come from the spec or, if the spec has none, from the options with which the pending cluster
was created. The annotation `raybus.io/max-unavailable-percent` adds to them.
"""

from datetime import timedelta

import msgspec

from common import labels
from common.api.opaque import Json
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import OnDeadline, Policy
from common.upgrade.events import Direction
from common.upgrade.service_conditions import ConditionType
from traffic_manager.observed import Observed


def policy(observed: Observed, direction: Direction) -> Policy:
    """Return the options for moves of traffic; without options, an upgrade finishes in one step.

    If the user aborts, or the upgrade has an UpgradePolicy, a rollback moves at once all traffic
    that the proven capacity allows. The rollback respects `maxSurgePercent`, because the active
    cluster does not lack capacity. A promotion moves all traffic at once too, but ignores
    `maxSurgePercent`.
    """
    controls, asks = observed.controls, serve_writer.asks_for_steps(observed.service)
    given = (
        upgrade_controls.policy_of(options, unavailable=controls.unavailable)
        for options in _list_upgrade_options(observed)
    )
    usable = (
        candidate
        for candidate in given
        if candidate is not None and (candidate.may_progress or asks)
    )
    chosen = next(usable, Policy(unavailable=controls.unavailable))
    at_once = msgspec.structs.replace(chosen, step=100, interval=timedelta(0))
    if direction is Direction.BACK:
        is_quick = (observed.is_aborted or observed.policy is not None) and chosen.may_progress
        return at_once if is_quick else chosen
    return msgspec.structs.replace(at_once, surge=100) if controls.promotes else chosen


def pause(observed: Observed) -> str | None:
    """Return why the upgrade is paused; None if it is not. A promotion overrides every pause."""
    controls = observed.controls
    if controls.promotes:
        return None
    if controls.pauses:
        return f"paused by {labels.PAUSE}"
    if controls.on_deadline is OnDeadline.PAUSE and observed.is_true(ConditionType.UPGRADE_STALLED):
        return (
            f"paused, for nothing had progressed until the deadline ({labels.ON_DEADLINE}: "
            f"{OnDeadline.PAUSE})"
        )
    return None


def gateway_class(observed: Observed) -> str:
    """Return the `gatewayClassName` of the options; empty if there is none."""
    return next(
        (
            name
            for gateway_options in _list_upgrade_options(observed)
            if (name := gateway_options.get("gatewayClassName"))
        ),
        "",
    )


def _list_upgrade_options(observed: Observed) -> list[Json]:
    given = (
        [observed.service.raw_upgrade_options]
        if serve_writer.asks_for_steps(observed.service)
        else []
    )
    if observed.pending is not None:
        given.append(observed.pending.strategy.get("clusterUpgradeOptions") or {})
    return given
