"""The first process of a node's PID namespace: it reaps orphans until it is killed.

Started by path with one argument that names the node, so that a node can be found without any record of it.
"""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Reap children until the end; SIGTERM ends the node (the kernel then kills every process in it)."""
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigwait({signal.SIGCHLD})


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
