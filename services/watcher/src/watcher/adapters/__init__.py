"""The adapters of the watcher's ports: NATS and the API server."""
