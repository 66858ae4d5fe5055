"""The errors of commands for local clusters. Each message is one line that names the remedy.

`MisuseError` (exit code 2): the request is invalid. `ClusterError` (exit code 1): the request is
valid, but failed on this machine.
"""


class ClusterError(Exception):
    """The cluster could not be created, used or removed; the message names the remedy."""


class MisuseError(ClusterError):
    """The request is invalid. The message says what is valid."""
