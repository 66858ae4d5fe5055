"""The two errors of a local cluster, each one line that names the remedy.

`MisuseError` (exit code 2): what was asked for makes no sense as it stands.
`ClusterError` (exit code 1): it makes sense, and this machine or this run could not do it.
"""


class ClusterError(Exception):
    """The cluster could not be made, used or removed; the text names the remedy."""


class MisuseError(ClusterError):
    """The request itself is wrong; the text names a valid one."""
