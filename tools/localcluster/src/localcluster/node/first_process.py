"""The first process of a node's PID namespace.

It reaps orphaned processes until it is killed. It is started by its path, with an argument that
names the node, so that a node can be found without a record.
"""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Reap children forever. SIGTERM ends this process, and thereby all processes of the node."""
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
