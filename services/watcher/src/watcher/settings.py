"""What the watcher is called: as a service, and towards the API server. Its settings are those of all services."""

from typing import Final

SERVICE: Final = "watcher"
USER_AGENT: Final = "raybus-watcher"
