"""Parse Serve configs outside of the event loop, and remember the results while there is room."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from common.ray import serve_config
from common.ray.serve_config import ParsedConfigs, ServeConfig
from common.runtime.cache import BoundedDict

SHORT: Final = 4096
"""Maximum characters of a Serve config that is parsed without a thread, in a few milliseconds."""
_OVERHEAD: Final = 1_000


class ServeConfigCache:
    """The Serve configs that one process has parsed; only the event loop changes it."""

    def __init__(self) -> None:
        self._parsed = BoundedDict[str, ServeConfig](
            size=lambda text, config: (
                len(text) + len(config.json) + _OVERHEAD * (1 + len(config.applications))
            )
        )
        # One thread: parsers share the interpreter lock with the event loop.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="serve-config")

    def get(self, text: str) -> ServeConfig | None:
        """Return a config that is parsed already; None if it is not."""
        return self._parsed.get(text)

    def parse(self, text: str) -> ServeConfig:
        """Return a config, and parse it in the caller's thread if necessary."""
        config = self._parsed[text] = serve_config.get(text, self._parsed)
        return config

    async def read(self, *texts: str | None) -> ParsedConfigs:
        """Return the parsed configs by their text; skip None. Long texts are parsed in a thread."""
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
