"""Free ports: different ones, out of the way of connections that go out and of node ports."""

import socket

import pytest

from raybus_cli import child_processes


def test_drawn_ports_are_different_and_below_those_of_connections_and_nodes() -> None:
    drawn = child_processes.find_free_ports(50)
    assert len(set(drawn)) == 50
    assert all(10_000 <= port < 30_000 for port in drawn)


def test_a_port_in_use_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        monkeypatch.setattr(child_processes, "_CHOICE", range(used, used + 1))
        with pytest.raises(OSError, match="fewer than 1 of the ports"):
            child_processes.find_free_ports(1)
