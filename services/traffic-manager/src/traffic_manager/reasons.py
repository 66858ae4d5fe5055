"""Every word that this service uses as the reason of an Event."""

from enum import StrEnum


class EventReason(StrEnum):
    """Reasons of Events."""

    WEIGHTED_ROUTES_NOT_SUPPORTED = "WeightedRoutesNotSupported"
