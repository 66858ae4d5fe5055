"""The user of a request: forged headers, Kubernetes' own users and groups, and tokens that are none."""

import pytest
from multidict import CIMultiDict

from raybus_dashboard.incluster import identity
from raybus_dashboard.incluster.identity import (
    InvalidCredentials,
    ProxyHeaders,
    Refused,
    UserIdentity,
)
from support.tables import cases

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
    found = PROXY.read_identity(
        headers(("X-Forwarded-Groups", "b"), groups="team-a, ,c,team-a"), SECRET
    )
    assert found == UserIdentity(user="ann", groups=("team-a", "c", "b"))


def test_without_the_secret_the_headers_count_for_nothing() -> None:
    assert PROXY.read_identity(without("X-Raybus-Proxy-Secret"), SECRET) is None


@pytest.mark.parametrize("secret", ["", "x", "s" * 31, "s" * 33, "\udcff" * 32])
def test_another_secret_is_refused(secret: str) -> None:
    forged = headers()
    forged["X-Raybus-Proxy-Secret"] = secret
    with pytest.raises(InvalidCredentials) as met:
        PROXY.read_identity(forged, SECRET)
    assert SECRET.decode() not in str(met.value)


def test_a_second_secret_is_refused() -> None:
    with pytest.raises(InvalidCredentials):
        PROXY.read_identity(headers(("X-Raybus-Proxy-Secret", "other")), SECRET)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(headers(("X-Forwarded-User", "root")), id="two users"),
        pytest.param(headers(user="  "), id="an empty user"),
        pytest.param(without("X-Forwarded-User"), id="no user"),
    ],
)
def test_there_is_exactly_one_user(found: CIMultiDict[str]) -> None:
    with pytest.raises(InvalidCredentials, match="expected one user"):
        PROXY.read_identity(found, SECRET)


@cases(
    ("proxy", "found"),
    {
        "a user of Kubernetes": (PROXY, headers(user="system:admin")),
        "a group of Kubernetes": (PROXY, headers(groups="a,system:masters")),
        "in capitals": (PROXY, headers(groups="a, System:masters")),
        "in a second header": (PROXY, headers(("X-Forwarded-Groups", "system:masters"))),
        "with the help of the prefix": (
            ProxyHeaders(group_prefix="sys"),
            headers(groups="tem:masters"),
        ),
        "behind a prefix": (ProxyHeaders(user_prefix="oidc:"), headers(user="system:admin")),
        "too many groups": (PROXY, headers(groups=",".join(f"g{each}" for each in range(201)))),
        "a long user": (PROXY, headers(user="u" * 257)),
        "a line break": (PROXY, headers(user="a\nb")),
        "no text": (PROXY, headers(user="a\udcffb")),
    },
)
def test_a_name_that_may_not_come_from_a_proxy(
    proxy: ProxyHeaders, found: CIMultiDict[str]
) -> None:
    with pytest.raises(Refused):
        proxy.read_identity(found, SECRET)


def test_prefixes_are_those_of_the_api_server() -> None:
    found = ProxyHeaders(user_prefix="oidc:", group_prefix="sso:").read_identity(headers(), SECRET)
    assert found == UserIdentity(user="oidc:ann", groups=("sso:team-a",))


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
    with pytest.raises(InvalidCredentials) as met:
        identity.get_bearer_token(CIMultiDict([("Authorization", value)]))
    assert value not in str(met.value) or value == "Bearer"


def test_a_token() -> None:
    assert (
        identity.get_bearer_token(CIMultiDict([("Authorization", "bearer  a.b-c_d=")]))
        == "a.b-c_d="
    )
    assert identity.get_bearer_token(CIMultiDict[str]()) is None
    with pytest.raises(InvalidCredentials):
        identity.get_bearer_token(
            CIMultiDict([("Authorization", "Bearer a"), ("Authorization", "Bearer b")])
        )


def test_the_greatest_names_and_tokens_are_accepted() -> None:
    groups = tuple(f"g{each}" for each in range(identity.MAX_GROUPS))
    user = "u" * identity.MAX_NAME_LENGTH
    assert PROXY.read_identity(headers(user=user, groups=",".join(groups)), SECRET) == UserIdentity(
        user=user, groups=groups
    )
    token = "t" * identity.MAX_TOKEN_LENGTH
    assert identity.get_bearer_token(CIMultiDict([("Authorization", f"Bearer {token}")])) == token
