"""The credentials that count: the proxy's with its secret, otherwise a token; a replaced secret is
used, and without one every request is refused.
"""

from pathlib import Path

import pytest
from multidict import CIMultiDict

from common import errors
from raybus_dashboard.incluster.authentication import (
    AuthenticatingProxy,
    Authentication,
    SecretFile,
)
from raybus_dashboard.incluster.identity import InvalidCredentials, ProxyHeaders, UserIdentity

OLD, NEW = "o" * 32, "n" * 32


class Tokens:
    """Accepts one token."""

    async def authenticate(self, token: str) -> UserIdentity:
        if token != "good":
            raise InvalidCredentials("no")
        return UserIdentity(user="by token")


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "secret"
    found.write_text(OLD + "\n")
    return found


def proxied(secret: str, **more: str) -> CIMultiDict[str]:
    return CIMultiDict({"X-Forwarded-User": "ann", "X-Raybus-Proxy-Secret": secret, **more})


async def test_the_proxy_comes_first_and_a_wrong_secret_does_not_fall_back_to_a_token(
    file: Path,
) -> None:
    both = Authentication(
        tokens=Tokens(), proxy=AuthenticatingProxy(ProxyHeaders(), SecretFile(file))
    )
    assert await both.authenticate(proxied(OLD, Authorization="Bearer good")) == UserIdentity(
        user="ann"
    )
    assert await both.authenticate(CIMultiDict({"Authorization": "Bearer good"})) == UserIdentity(
        user="by token"
    )
    forged = CIMultiDict({"X-Forwarded-User": "root", "Authorization": "Bearer good"})
    assert await both.authenticate(forged) == UserIdentity(user="by token")
    with pytest.raises(InvalidCredentials):
        await both.authenticate(proxied(NEW, Authorization="Bearer good"))
    with pytest.raises(InvalidCredentials):
        await both.authenticate(CIMultiDict[str]())


async def test_credentials_of_a_kind_that_is_not_accepted_count_for_nothing(file: Path) -> None:
    by_token = Authentication(tokens=Tokens())
    by_proxy = Authentication(proxy=AuthenticatingProxy(ProxyHeaders(), SecretFile(file)))
    with pytest.raises(InvalidCredentials):
        await by_token.authenticate(proxied(OLD))
    with pytest.raises(InvalidCredentials):
        await by_proxy.authenticate(CIMultiDict({"Authorization": "Bearer good"}))


async def test_a_replaced_secret_counts_after_ten_seconds_and_the_former_one_no_more(
    file: Path,
) -> None:
    now = Time()
    found = Authentication(proxy=AuthenticatingProxy(ProxyHeaders(), SecretFile(file, now)))

    def write(secret: str | None) -> None:
        file.unlink() if secret is None else file.write_text(secret)

    write(NEW)
    now.at = 109.9
    await found.authenticate(proxied(OLD))
    now.at = 110
    await found.authenticate(proxied(NEW))
    with pytest.raises(InvalidCredentials):
        await found.authenticate(proxied(OLD))
    write(None)
    now.at = 120
    with pytest.raises(errors.Unavailable) as met:
        await found.authenticate(proxied(NEW))
    assert NEW not in str(met.value)


@pytest.mark.parametrize("secret", ["", "\n", "s" * 31])
def test_a_short_secret_is_refused(file: Path, secret: str) -> None:
    file.write_text(secret)
    with pytest.raises(errors.InvalidSpec, match="at least 32"):
        SecretFile(file)
