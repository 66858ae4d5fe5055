"""Without the API server's schema in front: no JSON of a tenant ends in an error that is not ours.

The CRDs refuse most of these objects. An older CRD, another version of it or `v1alpha1` may not.
"""

import copy
import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from common.api.opaque import Body
from common.errors import RaybusError
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from scenario.hostile import attacks
from scenario.hostile.attacks import CLUSTERS, SERVICES, Attack, Place
from scenario.hostile.tenancy import Tenancy, suffered

COUNT: Final = int(os.environ.get("HOSTILE", "100"))
SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["", "0", "1", "x", "NewCluster", "token", "v2", "serve", "1Gi"])
)
ANY: Final[SearchStrategy[Any]] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "mode", "x", "value"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
BODIES: Final[tuple[tuple[Resource, Body], ...]] = (
    *((RAY_SERVICE, each) for each in SERVICES),
    *((RAY_CLUSTER, each) for each in CLUSTERS),
)


@st.composite
def unadmitted(draw: st.DrawFn) -> Attack:
    """Draw an object with any JSON in the place of fields of its spec."""
    resource, sound = draw(st.sampled_from(BODIES))
    body = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, 3))):
        places: list[Place] = [
            ("spec",),
            *(("spec", *each) for each in attacks.places(body["spec"])),
        ]
        place = draw(st.sampled_from(places))
        body = attacks.put(body, place, draw(ANY))
        if not isinstance(body.get("spec"), dict):
            break
    return Attack(resource=resource, body=body, later=body)


def foreign_errors(tenancy: Tenancy) -> Iterator[str]:
    """Yield each reconcile that ended in an error that is not ours, or in none of the party at fault."""
    for each in tenancy.failures:
        if not isinstance(each.problem, RaybusError):
            yield f"{each.controller} {each.key}: {each.problem!r}"
    yield from tenancy.restarts


@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=attacks.UNCHECKED,
    print_blob=False,
)
@given(unadmitted())
def test_no_json_ends_in_an_error_that_is_not_ours(attack: Attack) -> None:
    assert list(foreign_errors(suffered(attack))) == [], msgspec.json.encode(attack.body)
