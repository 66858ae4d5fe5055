"""TokenReviews and SubjectAccessReviews: whether a token is valid, and whether a user has a right.

An answer is reused for ten seconds after its request was sent, so a revoked token or right stops
working within that time. A failed review is an error, never a permission. The number of cached
answers, and of reviews that wait for the API server, is limited. A flood of invalid tokens does not
evict the answers about valid tokens, and does not delay their reviews.
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
from raybus_cli.session import AccessDenied
from raybus_dashboard.incluster.attributes import Attributes
from raybus_dashboard.incluster.identity import (
    ANONYMOUS,
    UNAUTHENTICATED,
    InvalidCredentials,
    UserIdentity,
)

SECONDS: Final = 10.0
"""Seconds for which an answer is reused."""
MAX_ANSWERS: Final = 4096
KNOWN_SECONDS: Final = 3600.0
"""Seconds for which an accepted token is remembered as known, so that its reviews do not queue
behind those of new tokens. Being known grants no rights.
"""
MAX_CONCURRENT_REVIEWS: Final = 16
"""Maximum number of concurrent reviews of one kind."""
MAX_WAITING_REQUESTS: Final = 256
"""Maximum number of reviews that wait for a free slot.

Further requests are refused, so that a flood of them stays bounded.
"""
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  (a path)
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReviewClient(Protocol):
    """The part of the API server's client that reviews need."""

    async def request(self, method: str, path: str, *, body: Body | None = None) -> bytes:
        """Send a request and return the body of the response."""
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


class RecentAnswers(Generic[K, V]):
    """A cache of answers that expire after some seconds.

    If it is full, the oldest answer is evicted.
    """

    def __init__(
        self, now: Callable[[], float], seconds: float = SECONDS, most: int = MAX_ANSWERS
    ) -> None:
        self._now = now
        self._seconds = seconds
        self._most = most
        self._answers: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        """Return the answer; None if there is none or it has expired."""
        asked, answer = self._answers.get(key, (None, None))
        if asked is None or self._now() - asked >= self._seconds:
            self._answers.pop(key, None)
            return None
        return answer

    def drop(self, key: K) -> None:
        self._answers.pop(key, None)

    def put(self, key: K, answer: V, asked: float) -> None:
        """Store an answer; `asked` is the time at which its request was sent."""
        self._answers.pop(key, None)
        self._answers[key] = (asked, answer)
        while len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]


class RequestTurns:
    """Limits how many requests run concurrently, and how many more wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        self._count = 0

    @contextlib.asynccontextmanager
    async def wait_for_turn(self) -> AsyncGenerator[None]:
        """Wait for a free slot and occupy it within a `with` block.

        Raise `Throttled` if too many requests wait.
        """
        if self._count >= MAX_CONCURRENT_REVIEWS + MAX_WAITING_REQUESTS:
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
    """Sends reviews to the API server, and caches the answers.

    Reviews need the rights of `system:auth-delegator`, which this program's ServiceAccount has.
    """

    def __init__(
        self, kube: ReviewClient, audiences: Sequence[str] = (), now: Callable[[], float] = steady
    ) -> None:
        self._kube = kube
        self._audiences = tuple(audiences)
        self._now = now
        # Tokens are stored as hashes only.
        self._identities: RecentAnswers[bytes, UserIdentity] = RecentAnswers(now)
        self._rejected: RecentAnswers[bytes, InvalidCredentials] = RecentAnswers(now)
        self._known: RecentAnswers[bytes, bool] = RecentAnswers(now, KNOWN_SECONDS)
        """Tokens that Kubernetes accepted within the last hour; their reviews do not queue behind
        new tokens.
        """
        self._rights: RecentAnswers[tuple[UserIdentity, Attributes], bool] = RecentAnswers(now)
        self._new_in_turn, self._known_in_turn, self._rights_in_turn = (
            RequestTurns(),
            RequestTurns(),
            RequestTurns(),
        )

    async def authenticate(self, token: str) -> UserIdentity:
        """Return the user of a token.

        Raise `InvalidCredentials` if Kubernetes does not accept the token.
        """
        key = hashlib.sha256(token.encode()).digest()
        verdict = self._get_cached(key)
        if verdict is None:
            turns = self._known_in_turn if self._known.get(key) else self._new_in_turn
            async with turns.wait_for_turn():
                verdict = self._get_cached(key) or await self._authenticate(token, key)
        if isinstance(verdict, InvalidCredentials):
            raise InvalidCredentials(str(verdict))
        return verdict

    def _get_cached(self, key: bytes) -> UserIdentity | InvalidCredentials | None:
        return self._identities.get(key) or self._rejected.get(key)

    async def require(self, identity: UserIdentity, wanted: Attributes) -> None:
        """Return if the user has the right `wanted`; else raise `AccessDenied`, which names it."""
        key = (identity, wanted)
        allowed = self._rights.get(key)
        if allowed is None:
            async with self._rights_in_turn.wait_for_turn():
                allowed = self._rights.get(key)
                if allowed is None:
                    asked = self._now()
                    allowed = await self._is_allowed(identity, wanted)
                    self._rights.put(key, allowed, asked)
        if not allowed:
            raise AccessDenied(f"cannot {wanted}")

    async def _authenticate(self, token: str, key: bytes) -> UserIdentity | InvalidCredentials:
        asked = self._now()
        spec: Body = (
            {"token": token, "audiences": list(self._audiences)}
            if self._audiences
            else {"token": token}
        )
        answer = await self._send_review(
            TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec
        )
        verdict = read_identity(_decode(answer, _TokenReview).status, self._audiences)
        if isinstance(verdict, InvalidCredentials):
            self._known.drop(key)
            self._rejected.put(key, verdict, asked)
        else:
            self._known.put(key, True, asked)
            self._identities.put(key, verdict, asked)
        return verdict

    async def _is_allowed(self, identity: UserIdentity, wanted: Attributes) -> bool:
        spec: Body = {
            "user": identity.user,
            "groups": list(identity.groups),
            "uid": identity.uid,
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": msgspec.structs.asdict(wanted),
        }
        answer = await self._send_review(
            ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec
        )
        status = _decode(answer, _AccessReview).status
        return status.allowed and not status.denied

    async def _send_review(self, path: str, version: str, kind: str, spec: Body) -> bytes:
        return await self._kube.request(
            "POST", path, body={"apiVersion": version, "kind": kind, "spec": spec}
        )


def _decode(answer: bytes, view: type[V]) -> V:
    try:
        return msgspec.json.decode(answer, type=view)
    except msgspec.MsgspecError as problem:
        raise errors.Unavailable(
            f"the API server's answer to a review cannot be read: {problem}"
        ) from problem


def read_identity(
    status: _TokenStatus, audiences: Sequence[str]
) -> UserIdentity | InvalidCredentials:
    """Return the user in the status of a TokenReview, or an error if the token is not valid.

    With `audiences`, the token must be for one of them.
    """
    user, groups = status.user, tuple(status.user.groups or ())
    if not status.authenticated or user.username in {"", ANONYMOUS} or UNAUTHENTICATED in groups:
        return InvalidCredentials("the token is not valid, or has expired")
    # An authenticator that does not support audiences leaves them out; it has only checked that the
    # token is for the API server.
    if audiences and not set(audiences) & set(status.audiences or ()):
        return InvalidCredentials(f"the token is not for the audience {' or '.join(audiences)}")
    extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
    return UserIdentity(user=user.username, groups=groups, uid=user.uid, extra=extra)
