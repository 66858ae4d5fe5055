"""The client writes and reads the headers of messages as nats-py does."""

import pytest
from nats.aio.client import Client

from common.bus.client import NatsClient, encode_headers

HEADERS = {"Raybus-Kind": "RayJob", "Raybus-Uid": "é: ü", "Nats-Msg-Id": "a@1"}


class NatsPy(Client):
    """nats-py without a connection: it records what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        self.sent += cmd

    async def write(self, headers: dict[str, str]) -> bytes:
        """Return the bytes of a message with these headers."""
        self._flush_queue = None
        await self._send_publish("ray.state.1", "_INBOX.1", b"payload", 7, headers)
        assert self.stats["out_msgs"] == 1
        return self.sent

    def read(self, lines: bytes) -> dict[str, str]:
        """Return the headers in the lines of a message."""
        return self._parse_header_lines(lines)


class Ours(NatsPy, NatsClient):
    """Our client, recorded in the same way."""


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(HEADERS, id="as they are"),
        pytest.param({"Raybus-Uid": "two\r\nlines"}, id="one with a line break"),
        pytest.param({}, id="none"),
    ],
)
async def test_a_message_is_written_as_nats_py_writes_it(headers: dict[str, str]) -> None:
    assert await Ours().write(headers) == await NatsPy().write(headers)


def test_headers_are_read_as_nats_py_reads_them() -> None:
    lines = encode_headers(HEADERS)
    assert lines is not None
    raw = lines.removeprefix(b"NATS/1.0\r\n") + b"Description:\tno space\r\nno colon\r\n"
    found = Ours().read(raw)
    assert found == NatsPy().read(raw)
    assert found.items() > HEADERS.items()
