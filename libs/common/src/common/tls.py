"""TLS contexts of raybus's connections, which verify the server.

uvloop reads TLS in 256 KiB buffers, although OpenSSL returns at most one record (16 KiB). Mapping
and unmapping such a buffer takes longer than decrypting a record, so these contexts limit the
reads.
"""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_RECORD_SIZE: Final = 16 * 2**10
"""Maximum bytes of a TLS record (RFC 8446, 5.1)."""


class RecordReader(ssl.SSLObject):
    """The TLS object of a connection; each read allocates at most the size of one record."""

    def read(
        self,
        len: int = MAX_RECORD_SIZE,  # noqa: A002
        buffer: "WriteableBuffer | None" = None,
    ) -> bytes:
        """Read up to `len` bytes, but at most one record."""
        return super().read(min(len, MAX_RECORD_SIZE), buffer)


def create_client_context(
    *, cafile: Path | str | None = None, cadata: str | None = None
) -> ssl.SSLContext:
    """Return a TLS context that trusts the CA certificates given, or by default the system's."""
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    choose_verification(context)
    context.sslobject_class = RecordReader
    return context


def choose_verification(context: ssl.SSLContext) -> None:
    """Make a client's context verify certificates as Go programs do, in every version of Python.

    Python 3.13 would also demand the extensions of RFC 5280, which the CAs of older Kubernetes
    clusters lack (EKS, MicroK8s). Older Pythons would refuse to trust an intermediate CA without
    its issuer. Signatures, dates and names are verified in any case.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
