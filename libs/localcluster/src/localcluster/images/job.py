"""The job of the process in a private mount namespace, as JSON on its standard input."""

import msgspec

from localcluster.images.dockerfile import MakeFolder, Run


class CopyFiles(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Copy `sources`, found under the root of `layers` (top first) or under `folder`, to `target`."""

    line: int
    sources: tuple[str, ...]
    target: str
    layers: tuple[str, ...] = ()
    folder: str = ""


class HostFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the host with which a RUN reaches package indexes; mounted over the root, never part of it."""

    resolv_conf: str
    folder: str
    """Appears as `MOUNT`: certificates and configuration."""
    find_links: tuple[str, ...] = ()
    """Local folders of wheels; each appears at its own path."""


MOUNT = "/run/build"
"""Where a RUN finds `HostFiles.folder`; /run is a fresh tmpfs."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One step on one root file system."""

    root: str
    """The empty folder that the step sees as /, filled."""

    store: str
    """The folder that layers, upper and work are relative to: mount options stay small and free of signs that mean something there."""

    lowers: tuple[str, ...]
    """The layers below, top first."""

    upper: str
    work: str
    host: HostFiles
    step: Run | CopyFiles | MakeFolder
