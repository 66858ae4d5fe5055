"""A copy of a JSON value has no part in common with the original."""

import copy

from common import pod_json
from common.api.opaque import Body


def test_a_copy_is_equal_and_shares_nothing() -> None:
    shared: Body = {"memory": "2Gi"}
    pod: Body = {
        "containers": [{"name": "ray", "limits": shared, "requests": shared, "tty": None}],
        "priority": 1,
        "ratio": 0.5,
    }
    before = copy.deepcopy(pod)
    made = pod_json.copied(pod)
    assert made == before
    made["containers"][0]["limits"]["memory"] = "1Gi"
    made["containers"].append({})
    made["priority"] = 2
    assert pod == before
    assert made["containers"][0]["requests"] == {"memory": "2Gi"}
