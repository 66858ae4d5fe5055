"""Imported first of all by a process without a terminal, which pays for nothing that it never uses.

structlog and httpx import rich where it is installed: 5 MiB for a log of JSON lines. aiohttp loads the authorities of the system twice when
it is imported: 2 MiB and 50 ms of a processor. Each connection to the API server has a context of its own; any other would trust nobody.
Garbage collection begins with the work (`common.runtime.process`): what is imported stays, and to search it for garbage takes a tenth of the start.
uvloop reads TLS by 256 KiB, which OpenSSL answers with one record at most: to map and unmap that much for each takes longer than to decrypt it.
"""

import gc
import os
import ssl
import sys
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LARGEST_RECORD: Final = 16 * 2**10
"""Bytes of a TLS record (RFC 8446, 5.1)."""


class RecordReader(ssl.SSLObject):
    """The TLS of a connection; a read allocates no more than a record."""

    def read(self, len: int = LARGEST_RECORD, buffer: "WriteableBuffer | None" = None) -> bytes:  # noqa: A002  (as the base)
        """Read up to so many bytes, of one record."""
        return super().read(min(len, LARGEST_RECORD), buffer)


_NO_AUTHORITIES: Final[dict[str, str]] = dict.fromkeys(
    ("SSL_CERT_FILE", "SSL_CERT_DIR"), os.devnull
)

ssl.SSLContext.sslobject_class = RecordReader
gc.disable()
cast("dict[str, Any]", sys.modules).setdefault("rich", None)
_before: Final = {name: os.environ[name] for name in _NO_AUTHORITIES if name in os.environ}
os.environ.update(_NO_AUTHORITIES)
try:
    import aiohttp  # noqa: F401  # pyright: ignore[reportUnusedImport]
finally:
    for _name in _NO_AUTHORITIES:
        del os.environ[_name]
    os.environ.update(_before)
