"""Parse Serve configs outside of the event loop, and cache the results up to a size limit."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from common.ray import serve_config
from common.ray.serve_config import ParsedConfigs, ServeConfig
from common.runtime.cache import BoundedDict

SHORT: Final = 4096
"""Maximum characters of a config that is parsed in the event loop, which takes milliseconds."""
_OVERHEAD: Final = 1_000


class ServeConfigCache:
    """A cache of the Serve configs that one process has parsed; only the event loop changes it."""

    def __init__(self) -> None:
        self._parsed = BoundedDict[str, ServeConfig](
            size=lambda text, config: (
                len(text) + len(config.json) + _OVERHEAD * (1 + len(config.applications))
            )
        )
        # One thread: more would not be faster, because all threads share the interpreter lock.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="serve-config")

    def get(self, text: str) -> ServeConfig | None:
        """Return the config with this text if it is parsed already, or else None."""
        return self._parsed.get(text)

    def parse(self, text: str) -> ServeConfig:
        """Return the config with this text; if it is not cached, parse it in this thread."""
        config = self._parsed[text] = serve_config.get(text, self._parsed)
        return config

    async def read(self, *texts: str | None) -> ParsedConfigs:
        """Return the parsed configs by text; parse long ones in another thread. None is skipped."""
        configs: dict[str, ServeConfig] = {}
        loop = asyncio.get_running_loop()
        for text in texts:
            if text is None:
                continue
            if len(text) > SHORT and text not in self._parsed:
                self._parsed[text] = await loop.run_in_executor(
                    self._thread, serve_config.parse, text
                )
            configs[text] = self.parse(text)
        return configs
