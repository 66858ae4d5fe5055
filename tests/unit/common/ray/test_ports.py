"""How many pods are behind a Service, from EndpointSlices as the API server writes them (acceptance 76)."""

import msgspec
import pytest

from common.api.core import EndpointSlice
from common.ray import ports


def a_slice(written: str) -> EndpointSlice:
    return msgspec.json.decode(f'{{"metadata": {{"name": "s"}}, {written}}}', type=EndpointSlice)


def an_endpoint(uid: str, *, is_ready: bool = True) -> str:
    return f'{{"conditions": {{"ready": {str(is_ready).lower()}}}, "targetRef": {{"kind": "Pod", "uid": "{uid}"}}}}'


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param('"endpoints": null', 0, id="null"),
        pytest.param('"endpoints": []', 0, id="none"),
        pytest.param('"addressType": "IPv4"', 0, id="absent"),
        pytest.param(
            f'"endpoints": [{an_endpoint("a")}, {an_endpoint("b", is_ready=False)}]',
            1,
            id="one is not ready",
        ),
        pytest.param(
            f'"endpoints": [{an_endpoint("a")}, {an_endpoint("a")}]', 1, id="one pod twice"
        ),
    ],
)
def test_only_ready_pods_count_and_each_once(written: str, expected: int) -> None:
    assert ports.pod_count([a_slice(written)]) == expected
