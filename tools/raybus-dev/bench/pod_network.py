"""Runs a benchmark in a network namespace where every pod address leads to this machine.

The API server can then reach simulated Ray heads under the addresses of their pods.
"""

import os
import subprocess
import sys
from typing import Final

PODS: Final = "10.0.0.0/8"
"""The range from which kwok assigns pod addresses."""
_COMMANDS: Final = (
    ("ip", "link", "set", "lo", "up"),
    ("ip", "route", "replace", "local", PODS, "dev", "lo"),
)
_INSIDE: Final = "RAYBUS_TEST_POD_NETWORK"


def enter(module: str) -> None:
    """Run the program in a new network namespace: restart it as `module` with the same arguments.

    In the restarted program, set up the routes and return.
    """
    if _INSIDE not in os.environ:
        user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        argv = ["unshare", *user, "--net", "--", sys.executable, "-m", module, *sys.argv[1:]]
        os.execvpe(argv[0], argv, os.environ | {_INSIDE: "yes"})  # noqa: S606  (no shell is wanted)
    for command in _COMMANDS:
        subprocess.run(command, check=True)
