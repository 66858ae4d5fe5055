"""Imported first of all by a process without a terminal: structlog and httpx import rich where it is installed, 5 MiB for what a log of JSON lines never uses."""

import sys
from typing import Any, cast

cast("dict[str, Any]", sys.modules).setdefault("rich", None)
