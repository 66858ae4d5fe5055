"""A real control plane, for what a watcher publishes while NATS servers come and go."""

from support.servers.control_plane import control_plane

__all__ = ["control_plane"]
