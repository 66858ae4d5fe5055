"""The number of pods behind a Service, from EndpointSlices as the API server writes them
(acceptance 76).
"""

import msgspec

from common.api.core import EndpointSlice
from common.ray import ports
from support.tables import cases


def a_slice(written: str) -> EndpointSlice:
    return msgspec.json.decode(f'{{"metadata": {{"name": "s"}}, {written}}}', type=EndpointSlice)


def an_endpoint(uid: str, *, is_ready: bool = True) -> str:
    return f'{{"conditions": {{"ready": {str(is_ready).lower()}}}, "targetRef": {{"kind": "Pod", "uid": "{uid}"}}}}'


@cases(
    ("written", "expected"),
    {
        "null": ('"endpoints": null', 0),
        "none": ('"endpoints": []', 0),
        "absent": ('"addressType": "IPv4"', 0),
        "one is not ready": (
            f'"endpoints": [{an_endpoint("a")}, {an_endpoint("b", is_ready=False)}]',
            1,
        ),
        "one pod twice": (f'"endpoints": [{an_endpoint("a")}, {an_endpoint("a")}]', 1),
    },
)
def test_only_ready_pods_count_and_each_once(written: str, expected: int) -> None:
    assert ports.pod_count([a_slice(written)]) == expected
