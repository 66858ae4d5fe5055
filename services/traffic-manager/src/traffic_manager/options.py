"""The user's `clusterUpgradeOptions`: those of the spec, else those with which the pending cluster was begun (§9.5, §17.19).

Ours beside them: the annotation `raybus.io/max-unavailable-percent`.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from common import labels, serve_writer
from common.api.opaque import Json
from traffic_manager.migration.state import Policy
from traffic_manager.observed import Observed

MOST_UNAVAILABLE: Final = 99


def policy(observed: Observed) -> Policy:
    """Return how fast traffic moves; without any options an upgrade is finished in one step."""
    unavailable = _unavailable(observed) or 0
    for options in _given(observed):
        surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
        seconds = options.get("intervalSeconds")
        if isinstance(step, int) and isinstance(seconds, int):
            surge = surge if isinstance(surge, int) else 100
            return Policy(
                surge=surge,
                step=step or (unavailable if surge == 0 else 0),  # KubeRay takes no step that is greater than the surge
                interval=timedelta(seconds=seconds),
                unavailable=unavailable,
            )
    return Policy(unavailable=unavailable)


def odd_unavailable(observed: Observed) -> str | None:
    """Return what is wrong with the user's `raybus.io/max-unavailable-percent`."""
    text = observed.service.metadata.annotations.get(labels.MAX_UNAVAILABLE)
    if text is None or _unavailable(observed) is not None:
        return None
    return f'{labels.MAX_UNAVAILABLE} "{text}" is not a whole number from 0 to {MOST_UNAVAILABLE}; 0 is used'


def gateway_class(observed: Observed) -> str:
    """Return the class of the Gateway, empty when no options name one."""
    return next((name for each in _given(observed) if (name := each.get("gatewayClassName"))), "")


def _unavailable(observed: Observed) -> int | None:
    text = observed.service.metadata.annotations.get(labels.MAX_UNAVAILABLE, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_UNAVAILABLE))):
        return None
    return int(text)


def _given(observed: Observed) -> Iterable[Json]:
    strategies: list[Json] = []
    if serve_writer.asks_for_steps(observed.service):
        strategies.append(observed.service.raw_spec.get("upgradeStrategy") or {})
    if observed.pending is not None:
        strategies.append(observed.pending.strategy)
    return [each.get("clusterUpgradeOptions") or {} for each in strategies]
