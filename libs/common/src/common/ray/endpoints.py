"""How many pods a Service can send requests to (spec rayservice §11.4; acceptance 76)."""

from collections.abc import Iterable

from common.api.core import EndpointSlice


def count(slices: Iterable[EndpointSlice]) -> int:
    """Count the pods behind all slices that are ready; a pod in two of them is one pod."""
    return len(
        {
            endpoint.target_ref.uid
            for each in slices
            for endpoint in each.endpoints or []
            if endpoint.conditions.ready and endpoint.target_ref is not None and endpoint.target_ref.uid
        }
    )
