"""Reduce memory and start time of a service; imported before all other modules.

- structlog and httpx import rich if it is installed: 5 MiB, although the logs are JSON lines. The
  import is blocked.
- aiohttp loads the system's certificate authorities twice when it is imported: 2 MiB and 50 ms of
  CPU time. They are hidden during the import, so aiohttp's default TLS contexts trust nobody.
  Connections to the API server have a TLS context of their own.
- Garbage collection is off until the work begins (`common.runtime.process`): imported modules stay,
  and searching them for garbage takes a tenth of the start time.
- uvloop reads TLS in 256 KiB buffers, although OpenSSL returns at most one record (16 KiB). Mapping
  and unmapping such a buffer takes longer than decrypting a record, so `RecordReader` limits the
  reads.
"""

import gc
import os
import ssl
import sys
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_RECORD_SIZE: Final = 16 * 2**10
"""Bytes of a TLS record (RFC 8446, 5.1)."""


class RecordReader(ssl.SSLObject):
    """The TLS object of a connection; a read allocates one record at most."""

    def read(
        self,
        len: int = MAX_RECORD_SIZE,  # noqa: A002
        buffer: "WriteableBuffer | None" = None,
    ) -> bytes:
        """Read up to `len` bytes, but at most one record."""
        return super().read(min(len, MAX_RECORD_SIZE), buffer)


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
