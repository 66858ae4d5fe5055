"""The user's `clusterUpgradeOptions`: those of the spec, else those with which the pending cluster was begun (§9.5, §17.19)."""

from collections.abc import Iterable
from datetime import timedelta

from common import serve_writer
from common.api.opaque import Json
from traffic_manager.migration.state import Policy
from traffic_manager.observed import Observed


def policy(observed: Observed) -> Policy:
    """Return how fast traffic moves; without any options an upgrade is finished in one step."""
    for options in _given(observed):
        surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
        seconds = options.get("intervalSeconds")
        if isinstance(step, int) and isinstance(seconds, int):
            return Policy(
                surge=surge if isinstance(surge, int) else 100, step=step, interval=timedelta(seconds=seconds)
            )
    return Policy()


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
