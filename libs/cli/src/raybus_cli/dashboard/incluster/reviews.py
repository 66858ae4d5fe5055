"""TokenReviews and SubjectAccessReviews: what Kubernetes answers about a token, and about a user's right.

An answer is used for ten seconds from the moment of its request, so a revoked token or right ends within that time. A failed review is
an error, never a permission. Answers, and reviews that wait for the API server, are bounded in number; a flood of tokens that nobody
has drops no answer about a token that Kubernetes accepted, and takes no place of its reviews.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from common import errors
from common.api.opaque import Body
from common.clock import steady
from raybus_cli.dashboard.incluster.attributes import Attributes
from raybus_cli.dashboard.incluster.identity import (
    ANONYMOUS,
    UNAUTHENTICATED,
    Identity,
    Unauthenticated,
)
from raybus_cli.session import Denied

SECONDS: Final = 10.0
"""How long an answer is used."""
MOST_ANSWERS: Final = 4096
KNOWN_SECONDS: Final = 3600.0
"""How long a token that Kubernetes accepted is told apart from new ones. It grants nothing."""
AT_ONCE: Final = 16
"""Reviews of a kind at the API server at once."""
MOST_WAITING: Final = 256
"""Further ones that wait for their turn; a request beyond them is refused, so that a flood has a bound."""
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  (a path)
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Requests(Protocol):
    """The API server, as far as a review needs it."""

    async def request(self, method: str, path: str, *, body: Body | None = None) -> bytes:
        """Send one request, and return the body of the answer."""
        ...


class _User(msgspec.Struct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] | None = None


class _AccessStatus(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = False
    denied: bool = False


class _TokenReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _AccessStatus = _AccessStatus()


class Recent(Generic[K, V]):
    """Answers by what was asked, each for some seconds; the oldest is dropped for one too many."""

    def __init__(
        self, now: Callable[[], float], seconds: float = SECONDS, most: int = MOST_ANSWERS
    ) -> None:
        self._now = now
        self._seconds = seconds
        self._most = most
        self._answers: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """Return an answer that is recent enough."""
        asked, answer = self._answers.get(key, (None, None))
        if asked is None or self._now() - asked >= self._seconds:
            self._answers.pop(key, None)
            return None
        return answer

    def drop(self, key: K) -> None:
        """Forget an answer."""
        self._answers.pop(key, None)

    def put(self, key: K, answer: V, asked: float) -> None:
        """Keep an answer, with the time of its request."""
        self._answers.pop(key, None)
        self._answers[key] = (asked, answer)
        while len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]


class Turns:
    """Lets some requests run at once, and some more wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(AT_ONCE)
        self._count = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a place; raise `Throttled` when too many wait."""
        if self._count >= AT_ONCE + MOST_WAITING:
            raise errors.Throttled(
                "too many requests wait for reviews of the API server: try again in a moment",
                after=1,
            )
        self._count += 1
        try:
            async with self._running:
                yield
        finally:
            self._count -= 1


class Reviews:
    """Reviews by the rights of this program's own ServiceAccount (`system:auth-delegator`)."""

    def __init__(
        self, kube: Requests, audiences: Sequence[str] = (), now: Callable[[], float] = steady
    ) -> None:
        self._kube = kube
        self._audiences = tuple(audiences)
        self._now = now
        # Of a token only its hash is kept.
        self._identities: Recent[bytes, Identity] = Recent(now)
        self._rejected: Recent[bytes, Unauthenticated] = Recent(now)
        self._known: Recent[bytes, bool] = Recent(now, KNOWN_SECONDS)
        """Tokens that Kubernetes accepted: their reviews do not wait for those of new tokens."""
        self._rights: Recent[tuple[Identity, Attributes], bool] = Recent(now)
        self._new_in_turn, self._known_in_turn, self._rights_in_turn = Turns(), Turns(), Turns()

    async def authenticate(self, token: str) -> Identity:
        """Return the user of a token; raise `Unauthenticated` for one that Kubernetes does not accept."""
        key = hashlib.sha256(token.encode()).digest()
        found = self._reviewed(key)
        if found is None:
            turns = self._known_in_turn if self._known.get(key) else self._new_in_turn
            async with turns.turn():
                found = self._reviewed(key) or await self._authenticate(token, key)
        if isinstance(found, Unauthenticated):
            raise Unauthenticated(str(found))
        return found

    def _reviewed(self, key: bytes) -> Identity | Unauthenticated | None:
        return self._identities.get(key) or self._rejected.get(key)

    async def require(self, identity: Identity, wanted: Attributes) -> None:
        """Return if the user has a right; raise `Denied`, naming it, if not."""
        key = (identity, wanted)
        allowed = self._rights.get(key)
        if allowed is None:
            async with self._rights_in_turn.turn():
                allowed = self._rights.get(key)
                if allowed is None:
                    asked = self._now()
                    allowed = await self._is_allowed(identity, wanted)
                    self._rights.put(key, allowed, asked)
        if not allowed:
            raise Denied(f"cannot {wanted}")

    async def _authenticate(self, token: str, key: bytes) -> Identity | Unauthenticated:
        asked = self._now()
        spec: Body = (
            {"token": token, "audiences": list(self._audiences)}
            if self._audiences
            else {"token": token}
        )
        answer = await self._review(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec)
        found = identity_of(_decoded(answer, _TokenReview).status, self._audiences)
        if isinstance(found, Unauthenticated):
            self._known.drop(key)
            self._rejected.put(key, found, asked)
        else:
            self._known.put(key, True, asked)
            self._identities.put(key, found, asked)
        return found

    async def _is_allowed(self, identity: Identity, wanted: Attributes) -> bool:
        spec: Body = {
            "user": identity.user,
            "groups": list(identity.groups),
            "uid": identity.uid,
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": msgspec.structs.asdict(wanted),
        }
        answer = await self._review(
            ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec
        )
        status = _decoded(answer, _AccessReview).status
        return status.allowed and not status.denied

    async def _review(self, path: str, version: str, kind: str, spec: Body) -> bytes:
        return await self._kube.request(
            "POST", path, body={"apiVersion": version, "kind": kind, "spec": spec}
        )


def _decoded(answer: bytes, view: type[V]) -> V:
    try:
        return msgspec.json.decode(answer, type=view)
    except msgspec.MsgspecError as problem:
        raise errors.Unavailable(
            f"the API server's answer to a review cannot be read: {problem}"
        ) from problem


def identity_of(status: _TokenStatus, audiences: Sequence[str]) -> Identity | Unauthenticated:
    """Return the user of a TokenReview's status, or why there is none."""
    user, groups = status.user, tuple(status.user.groups or ())
    if not status.authenticated or user.username in {"", ANONYMOUS} or UNAUTHENTICATED in groups:
        return Unauthenticated("the token is not valid, or has expired")
    # An authenticator that knows nothing of audiences leaves them out, and has checked that of the API server alone.
    if audiences and not set(audiences) & set(status.audiences or ()):
        return Unauthenticated(f"the token is not for the audience {' or '.join(audiences)}")
    extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
    return Identity(user=user.username, groups=groups, uid=user.uid, extra=extra)
