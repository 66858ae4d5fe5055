"""The one module that builds paths at the API server: a text of a tenant never leaves its path
segment.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from yarl import URL

from common import errors
from common.kube.resources import (
    EVENT,
    POD,
    RAY_CLUSTER,
    ROLE,
    SECRET,
    SERVICE,
    Resource,
    format_selector,
)

THEFT = "../../tenant-b/secrets/prod-ray"
ILLEGAL = (
    THEFT,
    "..",
    ".",
    "",
    "a/b",
    "a%2fb",
    "%2e%2e",
    "a?b=c",
    "a#b",
    "a b",
    "a\n",
    "Ä",
    "a\x00",
    "A",
    "-a",
    "a.",
    "a..b",
    "a" * 254,
    "a:dashboard",
)


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize(
    "kind", [SECRET, SERVICE, POD, RAY_CLUSTER, EVENT], ids=lambda each: each.kind
)
def test_a_name_that_no_object_can_bear_is_refused(kind: Resource, name: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=f"is not the name of a {kind.kind}"):
        kind.path("tenant-a", name)


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_namespace_that_cannot_exist_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidSpec, match="is not the name of a Namespace"):
        SECRET.path(name, "a")


def test_a_message_does_not_repeat_a_long_name() -> None:
    with pytest.raises(errors.InvalidSpec) as refused:
        SECRET.path("ns", "x/" * 5_000)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("name", ["system:controller", "a b", "Ä"])
def test_the_names_that_rbac_admits_are_encoded(name: str) -> None:
    path = ROLE.path("ns", name)
    assert URL(f"http://api{path}", encoded=True).path.rpartition("/")[2] == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%b"])
def test_the_names_that_rbac_refuses_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        ROLE.path("ns", name)


def test_a_path_is_what_the_api_server_knows() -> None:
    assert (
        RAY_CLUSTER.path("ns", "demo", "status")
        == "/apis/ray.io/v1/namespaces/ns/rayclusters/demo/status"
    )
    assert SECRET.path("ns") == "/api/v1/namespaces/ns/secrets"
    assert (
        SERVICE.proxy("ns", "demo", "dashboard", "/api")
        == "/api/v1/namespaces/ns/services/demo:dashboard/proxy/api"
    )


@given(some.text(max_size=40), some.text(max_size=40))
def test_no_text_reaches_another_object(namespace: str, name: str) -> None:
    for kind in (SECRET, ROLE, SERVICE):
        try:
            path = kind.path(namespace, name)
        except errors.InvalidSpec:
            continue
        parts = URL(f"http://api{path}").parts  # as a library sees it that decodes and collapses
        assert parts[-4:] == ("namespaces", namespace, kind.plural, name)


@pytest.mark.parametrize("value", ["a,ray.io/group!=b", "a in (b)", "a b", "a/b", "a" * 64, "a\n"])
def test_a_selector_is_not_widened_by_a_value(value: str) -> None:
    with pytest.raises(errors.InvalidSpec, match="is not a label"):
        format_selector({"ray.io/cluster": "demo", "ray.io/group": value})


def test_a_selector_asks_for_all_of_its_labels() -> None:
    assert (
        format_selector({"ray.io/cluster": "demo", "ray.io/group": "small"})
        == "ray.io/cluster=demo,ray.io/group=small"
    )
