"""The client of nats-py, with the three things that nats-py does not offer publicly.

Only this module uses names of nats-py that begin with an underscore. The contract tests
(`tests/contract/common/bus/test_client.py`) check them against a real server, so that a new version
of nats-py that changes these names fails there.
"""

import asyncio
import ssl
from typing import cast

from nats.aio.client import Client


class NatsClient(Client):
    """A connection to a NATS server."""

    def make_unique_name(self) -> str:
        """Return a name that no other client has."""
        return self._nuid.next().decode()

    def find_tls_peer(self) -> ssl.SSLObject | None:
        """Return the TLS object of the connection; None without TLS.

        The object has the server's certificate.
        """
        writer = cast("asyncio.StreamWriter | None", getattr(self._transport, "_io_writer", None))
        return None if writer is None else writer.get_extra_info("ssl_object")

    def read_server_version(self) -> tuple[int, int, int] | None:
        """Return the version of the connected server; None if it names none."""
        version = self.connected_server_version
        try:
            numbers = (version.major, version.minor, version.patch)
        except ValueError:
            return None
        return numbers if any(numbers) else None

    async def send_ping(self, answer: asyncio.Future[bool]) -> None:
        """Send a ping; the server's answer sets the result of `answer`.

        `Client.flush` is no replacement: a late answer to a ping that timed out breaks its
        connection. Raises `AssertionError` if the client has no transport any more.
        """
        await self._send_ping(answer)  # pyright: ignore[reportUnknownMemberType]
