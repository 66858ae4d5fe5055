"""Imported first of all by a process without a terminal, which pays for nothing that it never uses.

structlog and httpx import rich where it is installed: 5 MiB for a log of JSON lines. aiohttp loads the authorities of the system twice when
it is imported: 2 MiB and 50 ms of a processor. Each connection to the API server has a context of its own; any other would trust nobody.
Garbage collection begins with the work (`common.runtime.process`): what is imported stays, and to search it for garbage takes a tenth of the start.
"""

import gc
import os
import sys
from typing import Any, Final, cast

_NO_AUTHORITIES: Final[dict[str, str]] = dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR"), os.devnull)

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
