"""Number of pods that a Service can send requests to (spec rayservice §11.4; acceptance 76)."""

from collections.abc import Iterable, Iterator

from common.api.core import Endpoint, EndpointSlice


def count(slices: Iterable[EndpointSlice]) -> int:
    """Count the pods behind all slices that are ready; a pod in two of them is one pod."""
    return len({endpoint.target_ref.uid for endpoint in _ready(slices) if endpoint.target_ref is not None})


def addresses(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return the addresses of the pods behind all slices that are ready."""
    return frozenset(address for endpoint in _ready(slices) for address in endpoint.addresses)


def _ready(slices: Iterable[EndpointSlice]) -> Iterator[Endpoint]:
    for each in slices:
        for endpoint in each.endpoints or []:
            if endpoint.conditions.ready and endpoint.target_ref is not None and endpoint.target_ref.uid:
                yield endpoint
