"""How a RayService wants to be upgraded, read from the spec as written, so that an odd one can be shown too."""

from datetime import timedelta
from typing import Final

from common import serve_writer, upgrade_controls
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import BETA, Gates
from traffic_manager.migration.state import Policy

DEFAULT: Final = "NewCluster"
LARGEST_SURGE: Final = 100


def kind(service: RayService) -> str:
    """Return the type of the upgrade strategy."""
    return str(_strategy(service).get("type") or DEFAULT)


def policy(service: RayService, gates: Gates = BETA) -> Policy | None:
    """Return how fast the traffic moves; None where it moves at once, or where the options are no options."""
    if not serve_writer.is_incremental(service, gates):
        return None
    options: Json = _strategy(service).get("clusterUpgradeOptions") or {}
    step, interval, surge = (options.get(each) for each in ("stepSizePercent", "intervalSeconds", "maxSurgePercent"))
    if not isinstance(step, int) or not isinstance(interval, int) or step <= 0:
        return None
    return Policy(
        surge=surge if isinstance(surge, int) else LARGEST_SURGE,
        step=step,
        interval=timedelta(seconds=interval),
        unavailable=upgrade_controls.of(service).unavailable,
    )


def _strategy(service: RayService) -> Json:
    return service.raw_spec.get("upgradeStrategy") or {}
