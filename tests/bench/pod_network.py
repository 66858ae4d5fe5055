"""A network of our own in which every pod address is this machine: so fake heads answer where the API server looks for pods."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

PODS: Final = "10.0.0.0/8"
"""Where kwok gives pods their addresses."""
_COMMANDS: Final = (("ip", "link", "set", "lo", "up"), ("ip", "route", "add", "local", PODS, "dev", "lo"))


def enter(module: str, arguments: Sequence[str]) -> None:
    """Begin this program again, inside; it does not return."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    argv = ["unshare", *user, "--net", "--", sys.executable, "-m", module, "--inside", *arguments]
    os.execvp(argv[0], argv)  # noqa: S606  (no shell is wanted)


def prepare() -> None:
    """Take all pod addresses, once inside."""
    for command in _COMMANDS:
        subprocess.run(command, check=True)
