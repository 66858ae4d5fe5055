"""A network of our own in which every pod address is this machine: so fake heads answer where the API server connects to pods."""

import os
import subprocess
import sys
from typing import Final

PODS: Final = "10.0.0.0/8"
"""Where kwok gives pods their addresses."""
_COMMANDS: Final = (
    ("ip", "link", "set", "lo", "up"),
    ("ip", "route", "replace", "local", PODS, "dev", "lo"),
)
_INSIDE: Final = "RAYBUS_TEST_POD_NETWORK"


def enter(module: str) -> None:
    """Go on in such a network: a program that is not inside yet begins again there, from its module's name, with the same arguments."""
    if _INSIDE not in os.environ:
        user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        argv = ["unshare", *user, "--net", "--", sys.executable, "-m", module, *sys.argv[1:]]
        os.execvpe(argv[0], argv, os.environ | {_INSIDE: "yes"})  # noqa: S606  (no shell is wanted)
    for command in _COMMANDS:
        subprocess.run(command, check=True)
