"""Free TCP ports on loopback, chosen by the kernel."""

import socket
from contextlib import ExitStack

Listening = socket.socket

_LOOPBACK = "127.0.0.1"


def free(count: int) -> list[int]:
    """Return different ports that were free a moment ago.

    Between this call and the program's own bind another may take one: who starts a program checks that it came up.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind((_LOOPBACK, 0))
        return [opened.getsockname()[1] for opened in sockets]


def listen(port: int = 0) -> Listening:
    """Open a listening socket on loopback, for a program that inherits it."""
    opened = socket.socket()
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((_LOOPBACK, port))
        opened.listen(128)
    except OSError:
        opened.close()
        raise
    return opened
