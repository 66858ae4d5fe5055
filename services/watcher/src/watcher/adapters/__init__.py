"""What the watcher's ports stand for: NATS and the API server."""
