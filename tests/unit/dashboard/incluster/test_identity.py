"""The user of a request: forged headers, Kubernetes' own users and groups, and tokens that are none."""

import pytest
from multidict import CIMultiDict

from raybus_dashboard.incluster import identity
from raybus_dashboard.incluster.identity import Identity, ProxyHeaders, Refused, Unauthenticated

SECRET = b"s" * 32
PROXY = ProxyHeaders()


def headers(*more: tuple[str, str], user: str = "ann", groups: str = "team-a") -> CIMultiDict[str]:
    return CIMultiDict(
        [
            ("X-Forwarded-User", user),
            ("X-Forwarded-Groups", groups),
            ("X-Raybus-Proxy-Secret", SECRET.decode()),
            *more,
        ]
    )


def without(name: str) -> CIMultiDict[str]:
    found = headers()
    del found[name]
    return found


def test_the_proxy_names_the_user_and_its_groups() -> None:
    found = PROXY.identity(headers(("X-Forwarded-Groups", "b"), groups="team-a, ,c,team-a"), SECRET)
    assert found == Identity(user="ann", groups=("team-a", "c", "b"))


def test_without_the_secret_the_headers_count_for_nothing() -> None:
    assert PROXY.identity(without("X-Raybus-Proxy-Secret"), SECRET) is None


@pytest.mark.parametrize("secret", ["", "x", "s" * 31, "s" * 33, "\udcff" * 32])
def test_another_secret_is_refused(secret: str) -> None:
    forged = headers()
    forged["X-Raybus-Proxy-Secret"] = secret
    with pytest.raises(Unauthenticated) as met:
        PROXY.identity(forged, SECRET)
    assert SECRET.decode() not in str(met.value)


def test_a_second_secret_is_refused() -> None:
    with pytest.raises(Unauthenticated):
        PROXY.identity(headers(("X-Raybus-Proxy-Secret", "other")), SECRET)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(headers(("X-Forwarded-User", "root")), id="two users"),
        pytest.param(headers(user="  "), id="an empty user"),
        pytest.param(without("X-Forwarded-User"), id="no user"),
    ],
)
def test_there_is_exactly_one_user(found: CIMultiDict[str]) -> None:
    with pytest.raises(Unauthenticated, match="expected one user"):
        PROXY.identity(found, SECRET)


@pytest.mark.parametrize(
    ("proxy", "found"),
    [
        pytest.param(PROXY, headers(user="system:admin"), id="a user of Kubernetes"),
        pytest.param(PROXY, headers(groups="a,system:masters"), id="a group of Kubernetes"),
        pytest.param(PROXY, headers(groups="a, System:masters"), id="in capitals"),
        pytest.param(
            PROXY, headers(("X-Forwarded-Groups", "system:masters")), id="in a second header"
        ),
        pytest.param(
            ProxyHeaders(group_prefix="sys"),
            headers(groups="tem:masters"),
            id="with the help of the prefix",
        ),
        pytest.param(
            ProxyHeaders(user_prefix="oidc:"), headers(user="system:admin"), id="behind a prefix"
        ),
        pytest.param(
            PROXY, headers(groups=",".join(f"g{each}" for each in range(201))), id="too many groups"
        ),
        pytest.param(PROXY, headers(user="u" * 257), id="a long user"),
        pytest.param(PROXY, headers(user="a\nb"), id="a line break"),
        pytest.param(PROXY, headers(user="a\udcffb"), id="no text"),
    ],
)
def test_a_name_that_may_not_come_from_a_proxy(
    proxy: ProxyHeaders, found: CIMultiDict[str]
) -> None:
    with pytest.raises(Refused):
        proxy.identity(found, SECRET)


def test_prefixes_are_those_of_the_api_server() -> None:
    found = ProxyHeaders(user_prefix="oidc:", group_prefix="sso:").identity(headers(), SECRET)
    assert found == Identity(user="oidc:ann", groups=("sso:team-a",))


@pytest.mark.parametrize(
    "value",
    [
        "Bearer",
        "Basic abc",
        "Bearer a b",
        "Bearer é",
        "Bearer " + "a" * 8193,
        "Bearer a\x00",
        "token",
    ],
)
def test_what_is_no_token_is_refused(value: str) -> None:
    with pytest.raises(Unauthenticated) as met:
        identity.bearer(CIMultiDict([("Authorization", value)]))
    assert value not in str(met.value) or value == "Bearer"


def test_a_token() -> None:
    assert identity.bearer(CIMultiDict([("Authorization", "bearer  a.b-c_d=")])) == "a.b-c_d="
    assert identity.bearer(CIMultiDict[str]()) is None
    with pytest.raises(Unauthenticated):
        identity.bearer(CIMultiDict([("Authorization", "Bearer a"), ("Authorization", "Bearer b")]))


def test_the_greatest_names_and_tokens_are_accepted() -> None:
    groups = tuple(f"g{each}" for each in range(identity.MAX_GROUPS))
    user = "u" * identity.MAX_NAME_LENGTH
    assert PROXY.identity(headers(user=user, groups=",".join(groups)), SECRET) == Identity(
        user=user, groups=groups
    )
    token = "t" * identity.MAX_TOKEN_LENGTH
    assert identity.bearer(CIMultiDict([("Authorization", f"Bearer {token}")])) == token
