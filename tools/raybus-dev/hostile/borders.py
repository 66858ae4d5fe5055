"""Attacks that need no object: keys of NATS, the streams, and additional consumers.

These are the attacks 8, 9 and 13 of `scenario.hostile.numbered`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from common import errors
from common.bus import nkeys, subjects
from common.bus.nats import connect
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP
from common.settings import Settings
from nats_admin.subscribers import NamedSubscriber
from support.manifests import NAMESPACE
from support.servers.relayed import Secured

SUBSCRIBER: Final = NamedSubscriber("tenant", ("tenant-0",))
KEYS: Final = f"{nkeys.KEYS_PREFIX}watcher"
REGISTERED: Final = PatchRequest(
    body={"data": {"watcher-0": nkeys.derive_public_key(nkeys.new_seed())}}
)
SECONDS: Final = 5.0
"""Seconds within which NATS or the API server must refuse a request."""
DELETE: Final = f"STREAM.DELETE.{subjects.STATE_STREAM}"
CONSUME: Final = f"CONSUMER.CREATE.{subjects.EVENTS_STREAM}.one-more"


async def crossed(tenants: Sequence[KubeClient], secured: Secured) -> list[str]:
    """Try forbidden requests as tenants and as services.

    Return a line for each request that was granted.
    """
    await _build_request(
        secured, "provisioner", f"STREAM.INFO.{subjects.STATE_STREAM}", None
    )()  # a granted request, or refusals would prove nothing
    watcher = secured.settings("watcher")
    violations = [
        await _report_if_granted(
            "a tenant registers a key of the watcher",
            lambda: tenants[0].patch(CONFIG_MAP, NAMESPACE, KEYS, REGISTERED),
        ),
        await _report_if_granted(
            "NATS takes a client without a key",
            lambda: _asks(msgspec.structs.replace(watcher, nats_seed_file=None)),
        ),
    ]
    for user, subject, body in (
        ("cluster-reconciler", DELETE, None),
        ("watcher", DELETE, None),
        (
            SUBSCRIBER.user,
            CONSUME,
            {"stream_name": subjects.EVENTS_STREAM, "config": {"name": "one-more"}},
        ),
    ):
        asked = _build_request(secured, user, subject, body)
        violations.append(await _report_if_granted(f"{user} may {subject}", asked))
    return [violation for violation in violations if violation is not None]


def _build_request(
    secured: Secured, user: str, subject: str, body: dict[str, Any] | None
) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        async with connect(secured.settings(user)) as bus:
            await bus.session()
            return await bus.api(subject, body, dict[str, Any])

    return ask


async def _asks(settings: Settings) -> object:
    async with connect(settings) as bus:
        return await bus.session()


async def _report_if_granted(what: str, ask: Callable[[], Awaitable[object]]) -> str | None:
    """Return `what` if the request was granted; None if it was refused or not answered.

    `NotFound` counts as granted, because the client was allowed to ask.
    """
    try:
        async with asyncio.timeout(SECONDS):
            await ask()
    except errors.NotFound:  # the server answered, so the client may ask
        return what
    except (errors.RaybusError, TimeoutError):
        return None
    return what
