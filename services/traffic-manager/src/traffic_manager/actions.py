"""What a plan may ask for; `apply.py` carries it out."""

import msgspec

from common.api.event import Event


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell an Event about the RayService."""

    event: Event


Action = Tell
