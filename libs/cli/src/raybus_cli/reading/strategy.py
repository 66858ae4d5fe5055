"""The upgrade strategy of a RayService, read from the spec as written, so that an invalid one can be shown too."""

from typing import Final

from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import BETA, Gates
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Policy

DEFAULT: Final = "NewCluster"


def kind(service: RayService) -> str:
    """Return the type of the upgrade strategy."""
    return str(_strategy(service).get("type") or DEFAULT)


def policy(service: RayService, gates: Gates = BETA) -> Policy | None:
    """Return the traffic policy; None where the traffic moves at once, or where the options are invalid."""
    if not serve_writer.is_incremental(service, gates):
        return None
    given: Json = _strategy(service).get("clusterUpgradeOptions") or {}
    found = upgrade_controls.policy_of(given, unavailable=upgrade_controls.of(service).unavailable)
    return found if found is not None and found.step > 0 else None


def _strategy(service: RayService) -> Json:
    return service.raw_spec.get("upgradeStrategy") or {}
