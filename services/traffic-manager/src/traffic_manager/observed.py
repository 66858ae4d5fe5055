"""What a plan may know: one RayService, and what was told about it."""

import msgspec

from common.api.ray_service import RayService


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one look at a RayService is decided from."""

    service: RayService
    told_generation: int | None = None
    """The generation about which users were told last."""
