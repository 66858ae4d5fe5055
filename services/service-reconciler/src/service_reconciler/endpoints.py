"""How many pods a Service can send requests to (spec rayservice §11.4; acceptance 76).

A view of EndpointSlices of our own: the API server writes `endpoints: null` for a Service without any, and a slice that did
not decode would leave the last, better state in the cache.
"""

from collections.abc import Iterable

from common.api.core import Endpoint, View
from common.api.meta import ObjectMeta


class Slice(View, frozen=True, kw_only=True):
    """Some backends of a Service, or none."""

    metadata: ObjectMeta
    endpoints: list[Endpoint] | None = None


def count(slices: Iterable[Slice]) -> int:
    """Count the pods behind all slices that are ready; a pod in two of them is one pod."""
    return len(
        {
            endpoint.target_ref.uid
            for each in slices
            for endpoint in each.endpoints or []
            if endpoint.conditions.ready and endpoint.target_ref is not None and endpoint.target_ref.uid
        }
    )
