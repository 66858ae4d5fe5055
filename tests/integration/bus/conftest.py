"""A real control plane for the tests that need one."""

from support.servers.control_plane import control_plane

__all__ = ["control_plane"]
