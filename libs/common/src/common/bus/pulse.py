"""Liveness check of the server at the other end of a connection, whatever its streams do; and the end of a connection.

nats-py's own `flush` would do, but a ping that has timed out breaks its connection when the answer comes after all.
"""

import asyncio
import contextlib

from nats import errors as nats_errors

from common.bus.session import REQUEST_SECONDS, Session


async def is_answered(session: Session) -> bool:
    """Return whether the server answers a ping in the time that a request is given."""
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    try:
        await session.client._send_ping(answer)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]  (see above)
    except (nats_errors.Error, OSError, AssertionError):
        return False
    await asyncio.wait((answer,), timeout=REQUEST_SECONDS)
    return answer.done()


async def let_go(session: Session, why: str) -> None:
    """Close a connection, so that another one is made, to another server if there are several."""
    session.end(why)
    with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(REQUEST_SECONDS):
            await session.client.close()
