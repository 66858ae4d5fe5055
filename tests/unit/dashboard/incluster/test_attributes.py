"""The attributes of a request: equal to those of the API server for each path that this program builds, and none for any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube import resources
from common.kube.resources import Resource
from raybus_dashboard.incluster import attributes
from raybus_dashboard.incluster.attributes import Attributes, Unparsable

KINDS = [each for each in vars(resources).values() if isinstance(each, Resource)]
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
SUBRESOURCES = st.sampled_from([None, "status", "log", "scale"])
RAY_SERVICES = "/apis/ray.io/v1/namespaces/a/rayservices"
PIECES = st.sampled_from(
    [
        "/",
        "//",
        "api",
        "apis",
        "v1",
        "ray.io",
        "namespaces",
        "a",
        "pods",
        "x",
        "log",
        "proxy",
        "watch",
        "status",
        "finalize",
        "..",
        ".",
        "%2f",
        "%2e%2e",
        "%",
        "?",
        "?watch=1",
        "#",
        ";",
        "\\",
        "\x00",
        "é",
        ":8265",
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
    """What is accepted is its own canonical form, so no two readers can disagree about its object."""
    try:
        found = attributes.parse("GET", path)
    except Unparsable:
        return
    tail = path[len(path_of(found)) :]
    assert path == path_of(found, tail)
    assert not tail or (found.subresource == "proxy" and tail.startswith("/"))
    for wrong in ("..", "//", "%", "?", "#", "\\", "/./"):
        assert wrong not in path


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        pytest.param("GET", f"{RAY_SERVICES}/x", {}, "get rayservices x in namespace a", id="get"),
        pytest.param("GET", RAY_SERVICES, {}, "list rayservices in namespace a", id="list"),
        pytest.param(
            "GET",
            "/apis/ray.io/v1/rayservices",
            {},
            "list rayservices in all namespaces",
            id="everywhere",
        ),
        pytest.param(
            "GET", RAY_SERVICES, {"watch": "true"}, "watch rayservices in namespace a", id="watch"
        ),
        pytest.param("POST", RAY_SERVICES, {}, "create rayservices in namespace a", id="create"),
        pytest.param(
            "PUT",
            f"{RAY_SERVICES}/x/status",
            {},
            "update rayservices/status x in namespace a",
            id="update",
        ),
        pytest.param(
            "PATCH", f"{RAY_SERVICES}/x", {}, "patch rayservices x in namespace a", id="patch"
        ),
        pytest.param(
            "DELETE", f"{RAY_SERVICES}/x", {}, "delete rayservices x in namespace a", id="delete"
        ),
        pytest.param(
            "DELETE",
            RAY_SERVICES,
            {},
            "deletecollection rayservices in namespace a",
            id="delete all",
        ),
        pytest.param(
            "GET", "/api/v1/namespaces/a/pods/x/log", {}, "get pods/log x in namespace a", id="log"
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/a/services/x:8265/proxy/api/serve/applications/",
            {},
            "get services/proxy x:8265 in namespace a",
            id="a dashboard",
        ),
        pytest.param(
            "GET", "/api/v1/namespaces/a", {}, "get namespaces a in namespace a", id="a namespace"
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/a/pods/proxy/log",
            {},
            "get pods/log proxy in namespace a",
            id="the log of a pod called proxy",
        ),
        pytest.param(
            "POST",
            "/api/v1/namespaces/proxy/pods/proxy/eviction",
            {},
            "create pods/eviction proxy in namespace proxy",
            id="names like a subresource",
        ),
    ],
)
def test_the_verb_follows_from_method_name_and_query(
    method: str, path: str, query: dict[str, str], expected: str
) -> None:
    assert str(attributes.parse(method, path, query)) == expected


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        pytest.param("GET", "/version", {}, id="no resource"),
        pytest.param("GET", "/apis", {}, id="no group"),
        pytest.param("GET", "/api/v1/", {}, id="no kind"),
        pytest.param("GET", "/apis/ray.io/v1", {}, id="no kind of a group"),
        pytest.param("GET", "/apis/ray%2eio/v1/pods", {}, id="an encoded group"),
        pytest.param("GET", "/apis/../v1/pods", {}, id="a dot segment as a group"),
        pytest.param("GET", "/apis/ray.io/latest/pods", {}, id="no version"),
        pytest.param("GET", "/api/v1/watch/pods", {}, id="a verb in the path"),
        pytest.param("GET", "/api/v1/proxy/nodes", {}, id="a proxy in the path"),
        pytest.param("GET", "/api/v1/namespaces/a/status", {}, id="a subresource of a namespace"),
        pytest.param("GET", "/api/v1/namespaces/a/pods/x/log/y", {}, id="too deep"),
        pytest.param(
            "GET", "/api/v1/namespaces/a/services/x/proxy/../../y", {}, id="out of the proxy"
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/a/services/x/proxy/api//y",
            {},
            id="an empty segment behind the proxy",
        ),
        pytest.param("GET", "/api/v1/namespaces/a%2f..%2fb/pods", {}, id="an encoded slash"),
        pytest.param("GET", "/api/v1/namespaces/a/pods/x?watch=1", {}, id="a query"),
        pytest.param("GET", "/api/v1/namespaces/a/pods/", {}, id="a slash at the end"),
        pytest.param("GET", "/apis/ray.io/../v1/namespaces/a/pods", {}, id="a dot segment"),
        pytest.param("HEAD", RAY_SERVICES, {}, id="another method"),
        pytest.param("get", RAY_SERVICES, {}, id="a method in lower case"),
        pytest.param("PATCH", RAY_SERVICES, {}, id="a patch of a collection"),
        pytest.param("POST", f"{RAY_SERVICES}/x", {"watch": "1"}, id="a watch that is no read"),
        pytest.param(
            "GET", RAY_SERVICES, {"watch": "yes"}, id="a watch that Kubernetes does not read"
        ),
    ],
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
