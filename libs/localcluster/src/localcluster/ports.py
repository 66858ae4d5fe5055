"""Free TCP ports on loopback."""

import random
import socket
from contextlib import ExitStack
from typing import Final

Listening = socket.socket

_LOOPBACK = "127.0.0.1"
_CHOICE: Final = range(10_000, 30_000)
"""Below what kernels give to connections that go out, and below Kubernetes' node ports."""


def free(count: int) -> list[int]:
    """Return different ports that were free a moment ago, drawn where no connection that goes out can take one.

    Between this call and the program's own bind another program may: the caller checks that its program came up.
    """
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_CHOICE, len(_CHOICE)):
            if len(found) == count:
                return found
            if _is_free(port, stack.enter_context(socket.socket())):
                found.append(port)
    raise OSError(f"fewer than {count} of the ports {_CHOICE.start} to {_CHOICE.stop - 1} are free on {_LOOPBACK}")


def _is_free(port: int, holder: socket.socket) -> bool:
    try:
        holder.bind((_LOOPBACK, port))
    except OSError:
        return False
    return True


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
