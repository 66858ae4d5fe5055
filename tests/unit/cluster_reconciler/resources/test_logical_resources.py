"""Ray's resource counts from quantities (acceptance cases 86-88, 101)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_reconciler.resources import ray_start
from common.ray import desired_resources
from support.tables import cases


@pytest.mark.parametrize(
    ("key", "is_gpu"),
    [
        ("nvidia.com/gpu", True),
        ("gpu", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/mig-1g.5gb.me", False),
        ("google.com/tpu", False),
        ("nvidia.com/gpu.shared", False),
    ],
)
def test_is_gpu(key: str, *, is_gpu: bool) -> None:
    assert desired_resources.is_gpu(key) == is_gpu


@cases(
    ("resources", "params"),
    {
        "nothing": ({}, {}),
        "any case, rounded up": (
            {"CPU": "1500m", "Memory": "1Ki"},
            {"num-cpus": "2", "memory": "1024"},
        ),
        "the last kind of GPU by name": ({"a.com/gpu": "1", "b.com/gpu": "2"}, {"num-gpus": "2"}),
        "no quantity, no param": ({"x": "lots"}, {}),
        "milli": ({"x": "1200m"}, {"resources": """'{"x":1.2}'"""}),
        "double arithmetic shows": ({"x": "1.2"}, {"resources": """'{"x":1.2000000000000002}'"""}),
        "names sorted, case kept": (
            {"B": "2", "a": "500m"},
            {"resources": """'{"B":2,"a":0.5}'"""},
        ),
    },
)
def test_from_top_level(resources: dict[str, str], params: dict[str, str]) -> None:
    assert ray_start.convert_resources(resources) == params


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (2.0, "2"),
        (0.5, "0.5"),
        (0.0, "0"),
        (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-7"),
        (1e-6, "0.000001"),
        (1e-10, "1e-10"),
    ],
)
def test_numbers_in_their_shortest_form(amount: float, text: str) -> None:
    assert ray_start.render({"x": amount}) == f"""'{{"x":{text}}}'"""


def test_names_are_escaped_as_go_escapes_them() -> None:
    """`json.Marshal` escapes all characters that HTML or JavaScript would interpret."""
    assert ray_start.render({"a<b>&\u2028": 1.0}) == r"""'{"a\u003cb\u003e\u0026\u2028":1}'"""


@given(
    st.dictionaries(
        st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False), max_size=4
    )
)
def test_rendered_amounts_read_back_as_they_were(amounts: dict[str, float]) -> None:
    assert json.loads(ray_start.render(amounts)[1:-1], parse_int=float) == amounts


@pytest.mark.parametrize("resources", ["null", "'{}'", "'{\"n\":null}'", "'{\"n\":1}'"])
def test_resources_without_an_amount_do_not_cost_the_flags_of_accelerators(resources: str) -> None:
    """Go reads null as a missing amount."""
    limits = {"nvidia.com/gpu": "2", "google.com/tpu": "4"}
    found = ray_start.derive_params({"resources": resources}, {"resources": {"limits": limits}})
    assert found["num-gpus"] == "2"
    assert json.loads(found["resources"][1:-1])["TPU"] == 4
