"""Reads the answer of a server that a tenant may have written: bounded bytes, never unpacked.

A few kilobytes of gzip unpack to gigabytes, so an answer is asked for as it is (`IDENTITY`), and a compressed one is refused.
"""

from collections.abc import AsyncIterable, Mapping
from typing import Final

from common import errors

IDENTITY: Final = {"Accept-Encoding": "identity"}
"""Headers of a request for an answer that is not compressed."""


async def read(headers: Mapping[str, str], chunks: AsyncIterable[bytes], *, most: int) -> bytes:
    """Return the body; `Unavailable` for one that is compressed or has more than `most` bytes."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise errors.Unavailable(f"the answer is compressed ({encoding[:20]}), which was not asked for")
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise errors.Unavailable(f"the answer has more than {most} bytes")
    return bytes(body)
