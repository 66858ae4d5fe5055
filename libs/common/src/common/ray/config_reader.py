"""Reads long Serve configs in a thread, before deciding code asks what they mean."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from common.ray import serve_config

SHORT: Final = 4096
"""Characters that take a few milliseconds."""
_thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="serve-config")
"""One: readers share the interpreter with the loop, and each takes as much of it as the loop."""


async def ready(*texts: str | None) -> None:
    """Return once these configs were read, each once; the loop goes on meanwhile."""
    for text in texts:
        if text is not None and len(text) > SHORT and not serve_config.is_read(text):
            await asyncio.get_running_loop().run_in_executor(_thread, serve_config.read, text)
