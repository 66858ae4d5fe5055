"""The attributes of a request: equal to those of the API server for each path that this program builds, and none for any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube import resources
from common.kube.resources import Resource
from raybus_dashboard.incluster import attributes
from raybus_dashboard.incluster.attributes import Attributes, Unparsable
from support.tables import cases

KINDS = [each for each in vars(resources).values() if isinstance(each, Resource)]
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
SUBRESOURCES = st.sampled_from([None, "status", "log", "scale"])
RAY_SERVICES = "/apis/ray.io/v1/namespaces/a/rayservices"
PIECES = st.sampled_from(
    [
        *("/", "//", "api", "apis", "v1", "ray.io", "namespaces", "a", "pods", "x", "log"),
        *("proxy", "watch", "status", "finalize", "..", ".", "%2f", "%2e%2e", "%", "?"),
        *("?watch=1", "#", ";", "\\", "\x00", "é", ":8265"),
    ]
)


def path_of(found: Attributes, tail: str = "") -> str:
    """Return the canonical path of attributes: the reverse of the parser."""
    start = ["", "apis", found.group, found.version] if found.group else ["", "api", found.version]
    is_namespace = found.resource == "namespaces" and found.name == found.namespace
    place = ["namespaces", found.namespace] if found.namespace and not is_namespace else []
    parts = [each for each in (found.resource, found.name, found.subresource) if each]
    return "/".join([*start, *place, *parts]) + tail


@given(st.sampled_from(KINDS), NAMES, NAMES, SUBRESOURCES)
def test_each_path_that_this_program_builds_has_its_attributes(
    kind: Resource, namespace: str, name: str, subresource: str | None
) -> None:
    found = attributes.parse("GET", kind.path(namespace, name, subresource))
    assert (found.group, found.version, found.resource) == (kind.group, kind.version, kind.plural)
    assert (found.namespace, found.name, found.subresource) == (namespace, name, subresource or "")
    listed = attributes.parse("GET", kind.path(namespace))
    assert (listed.verb, listed.resource, listed.namespace, listed.name) == (
        "list",
        kind.plural,
        namespace,
        "",
    )
    everywhere = attributes.parse("GET", kind.path())
    assert (everywhere.verb, everywhere.resource, everywhere.namespace) == ("list", kind.plural, "")


@given(
    st.lists(PIECES, max_size=12).map("".join)
    | st.lists(PIECES, max_size=10).map("/".join)
    | st.text(max_size=60)
)
def test_no_other_path_has_attributes(path: str) -> None:
    """Every accepted path is its own canonical form, so no two readers can disagree about its
    object.
    """
    try:
        found = attributes.parse("GET", path)
    except Unparsable:
        return
    tail = path[len(path_of(found)) :]
    assert path == path_of(found, tail)
    assert not tail or (found.subresource == "proxy" and tail.startswith("/"))
    for wrong in ("..", "//", "%", "?", "#", "\\", "/./"):
        assert wrong not in path


@cases(
    ("method", "path", "query", "expected"),
    {
        "get": ("GET", f"{RAY_SERVICES}/x", {}, "get rayservices x in namespace a"),
        "list": ("GET", RAY_SERVICES, {}, "list rayservices in namespace a"),
        "everywhere": (
            "GET",
            "/apis/ray.io/v1/rayservices",
            {},
            "list rayservices in all namespaces",
        ),
        "watch": ("GET", RAY_SERVICES, {"watch": "true"}, "watch rayservices in namespace a"),
        "create": ("POST", RAY_SERVICES, {}, "create rayservices in namespace a"),
        "update": (
            "PUT",
            f"{RAY_SERVICES}/x/status",
            {},
            "update rayservices/status x in namespace a",
        ),
        "patch": ("PATCH", f"{RAY_SERVICES}/x", {}, "patch rayservices x in namespace a"),
        "delete": ("DELETE", f"{RAY_SERVICES}/x", {}, "delete rayservices x in namespace a"),
        "delete all": ("DELETE", RAY_SERVICES, {}, "deletecollection rayservices in namespace a"),
        "log": ("GET", "/api/v1/namespaces/a/pods/x/log", {}, "get pods/log x in namespace a"),
        "a dashboard": (
            "GET",
            "/api/v1/namespaces/a/services/x:8265/proxy/api/serve/applications/",
            {},
            "get services/proxy x:8265 in namespace a",
        ),
        "a namespace": ("GET", "/api/v1/namespaces/a", {}, "get namespaces a in namespace a"),
        "the log of a pod called proxy": (
            "GET",
            "/api/v1/namespaces/a/pods/proxy/log",
            {},
            "get pods/log proxy in namespace a",
        ),
        "names like a subresource": (
            "POST",
            "/api/v1/namespaces/proxy/pods/proxy/eviction",
            {},
            "create pods/eviction proxy in namespace proxy",
        ),
    },
)
def test_the_verb_follows_from_method_name_and_query(
    method: str, path: str, query: dict[str, str], expected: str
) -> None:
    assert str(attributes.parse(method, path, query)) == expected


@cases(
    ("method", "path", "query"),
    {
        "no resource": ("GET", "/version", {}),
        "no group": ("GET", "/apis", {}),
        "no kind": ("GET", "/api/v1/", {}),
        "no kind of a group": ("GET", "/apis/ray.io/v1", {}),
        "an encoded group": ("GET", "/apis/ray%2eio/v1/pods", {}),
        "a dot segment as a group": ("GET", "/apis/../v1/pods", {}),
        "no version": ("GET", "/apis/ray.io/latest/pods", {}),
        "a verb in the path": ("GET", "/api/v1/watch/pods", {}),
        "a proxy in the path": ("GET", "/api/v1/proxy/nodes", {}),
        "a subresource of a namespace": ("GET", "/api/v1/namespaces/a/status", {}),
        "too deep": ("GET", "/api/v1/namespaces/a/pods/x/log/y", {}),
        "out of the proxy": ("GET", "/api/v1/namespaces/a/services/x/proxy/../../y", {}),
        "an empty segment behind the proxy": (
            "GET",
            "/api/v1/namespaces/a/services/x/proxy/api//y",
            {},
        ),
        "an encoded slash": ("GET", "/api/v1/namespaces/a%2f..%2fb/pods", {}),
        "a query": ("GET", "/api/v1/namespaces/a/pods/x?watch=1", {}),
        "a slash at the end": ("GET", "/api/v1/namespaces/a/pods/", {}),
        "a dot segment": ("GET", "/apis/ray.io/../v1/namespaces/a/pods", {}),
        "another method": ("HEAD", RAY_SERVICES, {}),
        "a method in lower case": ("get", RAY_SERVICES, {}),
        "a patch of a collection": ("PATCH", RAY_SERVICES, {}),
        "a watch that is no read": ("POST", f"{RAY_SERVICES}/x", {"watch": "1"}),
        "a watch that Kubernetes does not read": ("GET", RAY_SERVICES, {"watch": "yes"}),
    },
)
def test_what_has_no_certain_attributes_is_refused(
    method: str, path: str, query: dict[str, str]
) -> None:
    with pytest.raises(Unparsable, match="its object cannot be determined"):
        attributes.parse(method, path, query)


def test_a_refusal_repeats_no_more_than_the_beginning_of_a_path() -> None:
    with pytest.raises(Unparsable) as met:
        attributes.parse("GET", "/api/v1/\n" + "x" * 10_000)
    assert len(str(met.value)) < 250
    assert "\n" not in str(met.value)


@pytest.mark.parametrize(
    ("length", "is_whole"), [(attributes.SHOWN, True), (attributes.SHOWN + 1, False)]
)
def test_a_short_path_is_repeated_whole(length: int, is_whole: bool) -> None:
    path = "/" + "x" * (length - 1)
    with pytest.raises(Unparsable) as met:
        attributes.parse("GET", path)
    assert (path in str(met.value)) is is_whole
